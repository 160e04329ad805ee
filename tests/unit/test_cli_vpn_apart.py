"""Several operators: two clones that sign apart, an older one, and two at work at once."""

import os
import shlex
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.cli.vpn_opening import keys_of, known_passphrase, now
from tests.support.laptop_desk import HOSTS
from tests.support.page import ROOT, told_blocks
from vpn.pki_folder import folder_of
from vpn.revocation import read_lists
from vpn.signing import relist

# An ssh that waits until somebody lets it go, and is then the one behind it.
_LATE = """#!/bin/sh
touch "$ASKED"
while [ ! -e "$GO" ]; do sleep 0.05; done
exec {ssh} "$@"
"""


def _let_in(gateways: Path) -> "list[set[str]]":
    return [{file.name for file in (gateways / host / "udp.laptops").iterdir()} for host in HOSTS.values()]


def _clone(fleet: Path) -> Path:
    return Path(shutil.copytree(fleet.parent, fleet.parent.with_name("clone"))) / fleet.name


def test_two_that_signed_apart_are_told_and_join(
    begun: Path, gateways: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gateways keep the first; joined, both people get in, and whoever came first takes the result over."""
    other = _clone(begun)
    run(["vpn", "add", "ada", str(begun)])
    assert run(["vpn", "sync", str(begun)]) == 0
    run(["vpn", "add", "grace", str(other)])
    capsys.readouterr()

    assert run(["vpn", "sync", str(other)]) == 6
    told = capsys.readouterr().err
    assert _let_in(gateways) == [{"ada.laptop"}] * 2
    assert run(["vpn", "join", str(folder_of(begun).journal), str(other)]) == 0
    joined = capsys.readouterr().out
    assert run(["vpn", "sync", str(other)]) == 0
    assert run(["vpn", "sync", str(begun)]) == 6

    late = capsys.readouterr().err
    assert "two have signed apart" in told
    assert "`bedplate vpn join`" in told
    assert "+ ada.laptop" in joined
    assert "ada.laptop has another address" in joined
    assert "somebody has signed since" in late
    assert _let_in(gateways) == [{"ada.laptop", "grace.laptop"}] * 2


def test_a_clock_that_was_ahead_is_made_good(
    begun: Path, gateways: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was signed then is not carried; with the files that were committed before, all goes on."""
    run(["vpn", "add", "ada", str(begun)])
    run(["vpn", "sync", str(begun)])
    folder = folder_of(begun)
    files = (folder.journal, folder.copy, folder.lists)
    kept = [each.read_bytes() for each in files]
    relist(keys_of("lab", begun), now() + timedelta(days=365), known_passphrase(None))

    assert run(["vpn", "sync", str(begun)]) == 2

    assert "The clock was ahead" in capsys.readouterr().err
    for each, text in zip(files, kept, strict=True):
        each.write_bytes(text)
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    assert _let_in(gateways) == [set(), set()]


def test_the_page_tells_how_clones_are_joined(
    begun: Path, gateways: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By git, as people have it: two who committed what they signed, and the commands of the page in their order."""
    git = ("git", "-c", "user.name=ada", "-c", "user.email=ada@lab.internal")
    origin, here = tmp_path / "origin", begun.parent
    (commands,) = (block for block in told_blocks("vpn-keys.md") if any("vpn join" in line for line in block))

    def done(*words: str, at: Path) -> None:
        subprocess.run(words, cwd=at, check=True, capture_output=True)

    run(["vpn", "sync", str(begun)])
    done("git", "init", "-q", "-b", "main", at=here)
    done("git", "add", ".", at=here)
    done(*git, "commit", "-qm", "begun", at=here)
    done("git", "clone", "-q", "--bare", str(here), str(origin), at=tmp_path)
    done("git", "remote", "add", "origin", str(origin), at=here)
    done("git", "clone", "-q", str(origin), "clone", at=tmp_path)
    shutil.copytree(folder_of(begun).keys, folder_of(tmp_path / "clone" / "fleet.yaml").keys)
    run(["vpn", "add", "ada", str(tmp_path / "clone" / "fleet.yaml")])
    done(*git, "commit", "-qam", "ada", at=tmp_path / "clone")
    done("git", "push", "-q", "origin", "main", at=tmp_path / "clone")
    run(["vpn", "add", "grace", str(begun)])
    done(*git, "commit", "-qam", "grace", at=here)

    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "ada")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ada@lab.internal")
    pulled = subprocess.run(["git", "pull", "-q", "--no-rebase", "origin", "main"], capture_output=True, check=False)
    assert pulled.returncode != 0
    for command in commands:
        if command.startswith("bedplate"):
            assert run(shlex.split(command)[1:]) == 0
        else:
            done("sh", "-c", command, at=here)

    assert subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout == ""
    assert _let_in(gateways) == [{"ada.laptop", "grace.laptop"}] * 2


def test_an_older_book_never_comes_after_a_newer(begun: Path, gateways: Path, tmp_path: Path) -> None:
    """Two real processes: a sync that is slow to arrive, and a revocation meanwhile. Both end well, and it stands."""
    run(["vpn", "add", "ada", str(begun)])
    late, asked, go = tmp_path / "late", tmp_path / "asked", tmp_path / "go"
    late.mkdir()
    (late / "ssh").write_text(_LATE.format(ssh=shutil.which("ssh")))
    (late / "ssh").chmod(0o755)
    env = {**os.environ, "PATH": f"{late}:{os.environ['PATH']}", "ASKED": str(asked), "GO": str(go)}
    command = [sys.executable, "-m", "bedplate", "vpn", "sync", str(begun)]

    slow = subprocess.Popen(command, env={**env, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
    while not asked.exists():
        assert slow.poll() is None, slow.communicate()[1]
    assert run(["vpn", "revoke", "ada", str(begun)]) == 0
    go.touch()
    errors = slow.communicate(timeout=120)[1]

    assert slow.returncode == 0, errors
    assert _let_in(gateways) == [set()] * 2
    assert [len(read_lists((gateways / host / "crl.pem").read_text())[0]) for host in HOSTS.values()] == [1, 1]
