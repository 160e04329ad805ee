"""The role `workbench`: what people find on a machine that they log in to."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from bedplate.plan.accounts import Account
from bedplate.plan.node import Hardware
from roles.template import text_of
from roles.workbench.micromamba import BUILDS, NOTE, PATH, VERSION, Unreached, taken
from roles.workbench.paths import CUDA, with_program_folder
from roles.workbench.role import TOOLS, Workbench
from roles.workbench.scratch import UNIT
from roles.workbench.uv import UvVersion, version
from tests.support.disk import Entry
from tests.support.recorded import Recorded, recorded
from tests.support.recorder import Recorder

ROOT = Path(__file__).parents[2]
DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
ADA = Account("ada", 20000, admin=False, keys=())
BEN = Account("ben", 20001, admin=False, keys=())
GPUS = Hardware("h100", 8)
BENCH = Workbench((ADA, BEN), None)
# What Ubuntu gives every session.
USUAL = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games"


def test_tools_come_in_one_call() -> None:
    """tmux, screen, git, a compiler and htop are there, from the distribution."""
    command = Recorder(DEBIAN).play(BENCH).step("Tools").commands[-1]

    assert {"tmux", "screen", "git", "build-essential", "htop", "cmake"} <= set(command.split())


@pytest.mark.parametrize(
    ("table", "gpus", "installed"),
    [(UBUNTU, GPUS, True), (UBUNTU, None, False), (DEBIAN, GPUS, False)],
    ids=["gpus", "no gpus", "debian"],
)
def test_nvtop_is_there_for_gpus(table: Recorded, gpus: Hardware | None, *, installed: bool) -> None:
    """A machine without GPUs needs none, and Debian's main archive has none."""
    command = Recorder(table).play(Workbench((), gpus)).step("Tools").commands[-1]

    assert ("nvtop" in command.split()) is installed


def test_uv_is_the_version_and_the_sums_of_this_projects_own_lock() -> None:
    """One list of sums, for every architecture, renewed with `make lock`."""
    lock = (ROOT / "requirements.lock").read_text()
    (own,) = re.findall(r"^uv==.*(?:\n    --hash=.*)*", lock, re.MULTILINE)

    assert text_of("workbench/uv.txt").split() == own.split()


def test_uv_is_taken_by_its_sum() -> None:
    """Pip takes no wheel whose sum is not on the list, builds nothing, and trusts the machine's authorities."""
    played = Recorder(DEBIAN).play(BENCH)

    install = played.step(f"uv {version()}").commands[-1]
    assert all(option in install for option in ("--require-hashes", "--only-binary :all:", "--no-deps", "PIP_CERT="))
    assert played.written("/opt/uv.txt") == text_of("workbench/uv.txt")
    assert played.disk.entries["/usr/local/bin/uv"] == Entry("link", "/opt/uv/bin/uv", mode=777)


@pytest.mark.parametrize(("found", "installs"), [("0.1.0", True), (version(), False)], ids=["older", "same"])
def test_another_version_of_uv_is_replaced(found: str, *, installs: bool) -> None:
    """What is there is asked, not what was once installed."""
    table = DEBIAN.but({"roles.workbench.uv.UvVersion": (f"uv {found} (x86_64-unknown-linux-gnu)",)})

    played = Recorder(table).play(BENCH)

    assert (f"uv {version()}" in played.names) is installs


def test_a_broken_uv_counts_for_none() -> None:
    """A folder that pip left half done is made anew."""
    assert UvVersion().process([]) == ""


@pytest.mark.parametrize("machine", sorted(BUILDS))
def test_micromamba_is_taken_for_the_machines_architecture(machine: str) -> None:
    """Each architecture has its own program and its own sum."""
    played = Recorder(DEBIAN.but({"server.Arch": (machine,)})).play(BENCH)

    (command,) = [each for each in played.commands if "micromamba" in each]
    assert BUILDS[machine].digest in command
    assert BUILDS[machine].url in command


@pytest.mark.parametrize(("content", "fine"), [(b"program", True), (b"other", False)], ids=["right", "wrong"])
def test_only_a_program_of_the_right_sum_comes_under_its_name(tmp_path: Path, content: bytes, *, fine: bool) -> None:
    """What was fetched is nothing until its sum is right, and is gone when it is wrong."""
    source, target = tmp_path / "source", tmp_path / "micromamba"
    source.write_bytes(content)
    build = BUILDS["x86_64"]
    digest = subprocess.run(["sha256sum"], input=b"program", capture_output=True, check=True).stdout[:64].decode()
    script = taken(build).replace(build.url, f"file://{source}").replace(PATH, str(target))

    done = subprocess.run(["sh", "-c", script.replace(build.digest, digest)], capture_output=True, check=False)

    assert (done.returncode == 0) is fine
    assert {path.name for path in tmp_path.iterdir()} == ({"source", "micromamba"} if fine else {"source"})


def test_a_node_that_does_not_reach_the_releases_does_without(tmp_path: Path) -> None:
    """A closed network is no reason to leave a machine unconfigured: it notes what it did not reach."""
    build, note = BUILDS["x86_64"], tmp_path / "state" / "note"
    script = taken(build).replace(build.url, f"file://{tmp_path}/none").replace(PATH, str(tmp_path / "micromamba"))

    done = subprocess.run(["sh", "-c", script.replace(NOTE, str(note))], capture_output=True, check=False)

    assert done.returncode == 0
    assert note.read_text() == f"file://{tmp_path}/none\n"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    ("noted", "tries"),
    [(None, True), (("https://example.org/older",), True), ((BUILDS["x86_64"].url,), False)],
    ids=["nothing", "another version", "this one"],
)
def test_what_was_not_reached_today_is_not_tried_again(noted: tuple[str, ...] | None, *, tries: bool) -> None:
    """The second apply changes nothing on a closed network too; another version is another address."""
    table = DEBIAN.but({"roles.workbench.micromamba.Unreached": noted})

    played = Recorder(table).play(BENCH)

    assert (f"micromamba {VERSION}" in played.names) is tries


def test_a_note_of_yesterday_counts_no_more(tmp_path: Path) -> None:
    """A network that was closed may be open again."""
    note = tmp_path / "note"
    command = Unreached().command().replace(NOTE, str(note))
    told = []
    for age in (60, 25 * 3600):
        note.write_text("https://example.org/\n")
        os.utime(note, (time.time() - age,) * 2)
        told.append(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)

    assert told == ["https://example.org/\n", ""]


def test_a_login_shell_keeps_caches_on_scratch(tmp_path: Path) -> None:
    """Caches fill no home, where a person has scratch; what somebody set himself stays."""
    (tmp_path / "ada").mkdir()
    script = text_of("workbench/shell.sh").replace("/scratch", str(tmp_path))
    say = 'echo "${UV_CACHE_DIR-none} ${PIP_CACHE_DIR-none}"'

    def told(**env: str) -> str:
        command = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), "sh", "-euc", f"{script}\n{say}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert told(USER="ada") == f"{tmp_path}/ada/.cache/uv {tmp_path}/ada/.cache/pip"
    assert told(USER="ada", PIP_CACHE_DIR="/mine") == f"{tmp_path}/ada/.cache/uv /mine"
    assert told(USER="zoe") == told() == "none none"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", f'PATH="{USUAL}:{CUDA}"\n'),
        ("LANG=C\n", f'LANG=C\nPATH="{USUAL}:{CUDA}"\n'),
        (f'PATH="{USUAL}:/snap/bin"\n', f'PATH="{USUAL}:/snap/bin:{CUDA}"\n'),
        ("PATH=/usr/bin\nLANG=C\n", f'LANG=C\nPATH="/usr/bin:{CUDA}"\n'),
        (f"PATH=/opt/bin:{CUDA}:/usr/bin\n", f"PATH=/opt/bin:{CUDA}:/usr/bin\n"),
    ],
    ids=["debian", "other words", "ubuntu", "a hand's", "a hand's own place"],
)
def test_cudas_folder_is_added_to_what_a_session_is_given(text: str, wanted: str) -> None:
    """Beside what the distribution or somebody says there; nothing is said twice."""
    assert with_program_folder(text, CUDA) == wanted
    assert with_program_folder(wanted, CUDA) == wanted


def test_cudas_programs_come_last_in_a_login_shell(tmp_path: Path) -> None:
    """Before they are installed, too; where there is no CUDA, nothing says where it lies."""
    script = text_of("workbench/shell.sh").replace("/usr/local/cuda", str(tmp_path / "cuda"))
    say = f'{script}\n{script}\necho "$PATH ${{CUDA_HOME-none}}"'

    def told() -> str:
        command = ["env", "-i", "PATH=/usr/bin:/bin", "sh", "-euc", say]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    before = told()
    (tmp_path / "cuda").mkdir()

    assert before == f"/usr/bin:/bin:{tmp_path}/cuda/bin none"
    assert told() == f"/usr/bin:/bin:{tmp_path}/cuda/bin {tmp_path}/cuda"


def test_a_second_run_changes_nothing() -> None:
    """What is in force is left alone."""
    settled = DEBIAN.but(
        {
            "deb.DebPackages": tuple(f"ii  {name}  0  all  -" for name in TOOLS),
            "roles.workbench.uv.UvVersion": (f"uv {version()} (x)",),
            "roles.workbench.micromamba.Unreached": (BUILDS["x86_64"].url,),
            "roles.workbench.found.Folders": ("ada ada:ada 700", "ben ben:ben 700"),
            "roles.texts.Texts": ("==bedplate== /etc/environment", f'PATH="{USUAL}:{CUDA}"'),
            "roles.running.States": ("active", f"multi-user.target.wants/{UNIT}"),
        }
    )
    recorder = Recorder(settled)
    recorder.play(BENCH)

    assert recorder.play(BENCH).changes == []
