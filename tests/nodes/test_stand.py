"""The test nodes themselves: what the other tests of this folder take for granted."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.testlab.machines.container import CommandError, groups
from tests.testlab.machines.layers import make_room
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

# Boots a machine, says by which mark it is known, and waits to be killed.
FORGETFUL = """
import sys
from tests.testlab.machines.stand import Stand
stand = Stand()
stand.boot("forgotten.cellar", "192.168.40.9")
print(stand.folder.name.rpartition("-")[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give one machine of the cellar."""
    return stand.boot("titan-01.cellar", "192.168.40.21")


def test_a_node_boots_without_a_failed_service(node: Node) -> None:
    """A node is a whole machine: systemd has started all that starts at boot."""
    assert node.run("systemctl is-system-running").strip() == "running"


def test_a_cut_node_is_silent_and_a_healed_one_answers(node: Node) -> None:
    """A cut loses every packet without a word, and what the console says goes on."""
    node.cut()
    silent = node.desk.host.pings(node.address)
    going_on = node.run("echo here")
    node.heal()

    assert not silent
    assert going_on == "here\n"
    assert node.ssh("true").returncode == 0


@pytest.mark.parametrize("way", ["restart", "crash"])
def test_a_node_comes_back_with_what_was_written(node: Node, way: str) -> None:
    """Shutting down and losing power both keep the disk; what ran is gone."""
    node.run(f"echo kept > /srv/{way}; sync; echo lost > /run/{way}")

    getattr(node, way)()

    assert node.run(f"cat /srv/{way}").strip() == "kept"
    with pytest.raises(CommandError, match="No such file"):
        node.run(f"cat /run/{way}")


def test_nothing_is_left_of_a_stand() -> None:
    """Whoever leaves takes everything down: folders, mounts, spaces, processes."""
    with Stand() as stand:
        stand.boot("gone.cellar", "192.168.40.9")

    assert traces(stand.folder.name.rpartition("-")[0]) == []


def test_a_killed_process_leaves_nothing_for_long() -> None:
    """Its machines shut down by themselves, and the next stand clears away their folders and spaces."""
    with subprocess.Popen([sys.executable, "-c", FORGETFUL], stdout=subprocess.PIPE, text=True) as process:
        mark = (process.stdout or sys.stdin).readline().strip()
        process.kill()
    until(lambda: not processes(mark), 60, "the machine shuts down")

    make_room()

    assert traces(mark) == []


def traces(mark: str) -> list[str]:
    """Return what bears the mark of a stand: paths, mounts, spaces, processes."""
    folders = (Path("/tmp"), Path("/run/netns"), Path("/etc/netns"))  # noqa: S108  where to look
    left = [str(entry) for folder in folders if folder.is_dir() for entry in folder.iterdir() if mark in entry.name]
    left += [group for group in groups() if mark in group]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if mark in line]
    return [*left, *mounts, *processes(mark)]


def processes(mark: str) -> list[str]:
    """Return the processes whose root lies in a stand's folder, and those that were started for it by name."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
            roots = [mount[-1] for mount in mounts if mount[4] == "/"]
            named = mark in (process / "cmdline").read_text()
            found += [process.name] if named or any(f"/{mark}" in root for root in roots) else []
    return found
