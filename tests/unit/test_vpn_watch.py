"""What looks after tunnels on a gateway, with a swanctl that says what a test has it say."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.support.netlab_program import until

SCRIPTS = Path(__file__).parents[2] / "vpn/sites"
# Every order is written down; `stands.NAME` is what a tunnel of that name has, `slow.NAME` has its dialling take long.
_SWANCTL = r"""#!/bin/bash
echo "$*" >>"$TOLD/orders"
case $1 in
--list-sas) cat "$TOLD/stands.$3" 2>/dev/null; exit 0 ;;
--initiate) [[ ! -e $TOLD/slow.$3 ]] || sleep 30; echo "[IKE] many"; echo "initiate failed: nobody there"; exit 1 ;;
esac
"""
STANDS = "{0}: #{1}, ESTABLISHED, IKEv2, 1_i* 2_r\n  local  'a' @ 192.0.2.1[500]\n"
CARRIES = "  {0}: #{1}, reqid 1, INSTALLED, TUNNEL, ESP:AES_GCM_16-256\n"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which a test says what stands, and reads what was ordered."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("swanctl", _SWANCTL), ("ping", '#!/bin/sh\necho "ping $*" >>"$TOLD/orders"\n')):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for script in ("ipsec-look", "ipsec-watch"):
        (tools / script).write_text((SCRIPTS / f"{script}.sh").read_text())
        (tools / script).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("TOLD", str(tmp_path))
    return tmp_path


def _orders(told: Path, word: str) -> list[str]:
    file = told / "orders"
    return [line for line in file.read_text().splitlines() if line.startswith(word)] if file.exists() else []


def _look(told: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([told / "tools/ipsec-look", "unix:///s", *words], text=True, capture_output=True, check=False)


@contextmanager
def _watching(told: Path, *rows: str) -> Iterator[Path]:
    """Have a table watched at a pace of tenths of a second; give the file of what is said."""
    (told / "table").write_text("".join(f"{row}\n" for row in rows))
    said = told / "said"
    paces = ("0", "0.1", "0", "1.5")
    with said.open("wb") as sink:
        command = [str(told / "tools/ipsec-watch"), str(told / "table"), "unix:///s", *paces]
        with subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True) as program:
            yield said
            os.killpg(program.pid, SIGTERM)


@pytest.mark.parametrize(
    ("told_of", "ended"),
    [
        (STANDS.format("attic", 7) + CARRIES.format("attic", 1), []),
        (
            STANDS.format("attic", 7)
            + CARRIES.format("attic", 1)
            + STANDS.format("attic", 9)
            + CARRIES.format("attic", 2),
            ["7"],
        ),
        (STANDS.format("attic", 7) + CARRIES.format("attic", 1) + STANDS.format("attic", 9), ["9"]),
        (STANDS.format("attic", 9) + STANDS.format("attic", 10), ["9"]),
        (
            STANDS.format("attic", 7).replace("ESTABLISHED", "REKEYED")
            + STANDS.format("attic", 9)
            + CARRIES.format("attic", 2),
            [],
        ),
    ],
    ids=["once", "newest-carries", "older-carries", "none-carries", "renewed"],
)
def test_of_a_tunnel_that_stands_twice_the_newest_that_carries_is_left(
    told_of: str, ended: list[str], told: Path
) -> None:
    """Who dials ends the others; who waits ends none."""
    (told / "stands.attic").write_text(told_of)

    _look(told, "attic", "waits")
    untouched = _orders(told, "--terminate")
    _look(told, "attic", "dials")

    assert untouched == []
    assert [line.split()[2] for line in _orders(told, "--terminate")] == ended


def test_what_does_not_stand_is_dialled_once_and_it_is_said_why_not(told: Path) -> None:
    """In two lines: what the daemon says besides is in its own journal."""
    done = _look(told, "attic", "waits")

    assert done.returncode == 1
    assert done.stdout == "attic does not stand: dialling\nattic: initiate failed: nobody there\n"
    assert len(_orders(told, "--initiate")) == 1


def test_a_word_is_said_through_what_stands_alone(told: Path) -> None:
    """To the address at its far end; one that is being built is left alone."""
    (told / "stands.attic").write_text(STANDS.format("attic", 7) + CARRIES.format("attic", 1))
    (told / "stands.cellar").write_text("cellar: #1, CONNECTING, IKEv2\n")

    assert [_look(told, name, "dials", "10.0.0.1").returncode for name in ("attic", "cellar", "barn")] == [0, 2, 1]

    assert len(_orders(told, "ping")) == 1
    assert [line.split()[2] for line in _orders(told, "--initiate")] == ["barn"]


def test_each_tunnel_is_looked_after_at_its_own_pace(told: Path) -> None:
    """One that nobody answers keeps no other waiting, and who waits for a caller looks less often than who dials."""
    for name in ("attic", "barn"):
        (told / f"stands.{name}").write_text(STANDS.format(name, 7) + CARRIES.format(name, 1))
    (told / "slow.silent").touch()

    def looks(name: str) -> int:
        return len(_orders(told, f"--list-sas --ike {name} "))

    with _watching(told, "silent 1 - 1400 - dials", "attic 2 - 1400 - dials", "barn 3 - 1400 - waits"):
        until(lambda: looks("attic") >= 12, 30, "it is not looked at again and again")
        seen = {name: looks(name) for name in ("silent", "attic", "barn")}

    assert seen["silent"] <= 2
    assert seen["barn"] < seen["attic"] / 2


def test_what_stays_as_it_is_is_said_once(told: Path) -> None:
    """A tunnel that is away for hours is two lines of the journal, and one when it is back, not while it is built."""
    with _watching(told, "attic 2 - 1400 - dials") as said:
        until(lambda: len(_orders(told, "--initiate")) >= 5, 30, "it is not dialled again and again")
        (told / "stands.attic").write_text("attic: #6, CONNECTING, IKEv2\n")
        looked = len(_orders(told, "--list-sas"))
        until(lambda: len(_orders(told, "--list-sas")) > looked + 3, 30, "it is not looked at again and again")
        away = said.read_text()
        (told / "stands.attic").write_text(STANDS.format("attic", 7) + CARRIES.format("attic", 1))
        until(lambda: "attic stands\n" in said.read_text(), 30, "it is not said that it stands")
        back = said.read_text()

    assert away == "attic does not stand: dialling\nattic: initiate failed: nobody there\n"
    assert back == f"{away}attic stands\n"
