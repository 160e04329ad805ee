"""The node lab itself, which all other tests of this folder use."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.testlab.machines.container import CommandError, cgroups
from tests.testlab.machines.layers import remove_leftovers
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

# Boots a node, prints the prefix of its folders, and waits to be killed.
KILLED = """
import sys
from tests.testlab.machines.node_lab import NodeLab
node_lab = NodeLab()
node_lab.boot("forgotten.cellar", "192.168.40.9")
print(node_lab.folder.name.rpartition("-")[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a node of the site."""
    return node_lab.boot("titan-01.cellar", "192.168.40.21")


def test_node_boots_without_failed_services(node: Node) -> None:
    """A test node boots completely, and only the audit fails, which a container lacks."""
    failed = node.run("systemctl list-units --failed --plain --no-legend | cut -d. -f1").split()

    assert set(failed) <= {"auditd", "audit-rules"}


def test_cut_drops_packets_until_heal(node: Node) -> None:
    """`cut` drops all packets of a node while its console still works; `heal` restores them."""
    node.cut()
    silent = node.workstation.host.pings(node.address)
    console = node.run("echo here")
    node.heal()

    assert not silent
    assert console == "here\n"
    assert node.ssh("true").returncode == 0


@pytest.mark.parametrize("method", ["restart", "crash"])
def test_disk_survives_restart_and_crash(node: Node, method: str) -> None:
    """Synced data survives a restart and a power loss, and processes do not."""
    node.run(f"echo kept > /srv/{method}; sync; echo lost > /run/{method}")

    getattr(node, method)()

    assert node.run(f"cat /srv/{method}").strip() == "kept"
    with pytest.raises(CommandError, match="No such file"):
        node.run(f"cat /run/{method}")


def test_closed_lab_leaves_nothing() -> None:
    """A closed node lab leaves no folders, mounts, namespaces or processes."""
    with NodeLab() as node_lab:
        node_lab.boot("gone.cellar", "192.168.40.9")

    assert traces(node_lab.folder.name.rpartition("-")[0]) == []


def test_next_lab_removes_leftovers() -> None:
    """The nodes of a killed process shut down, and the next node lab removes their folders and namespaces."""
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as process:
        prefix = (process.stdout or sys.stdin).readline().strip()
        process.kill()
    until(lambda: not processes(prefix), 60, "the node did not shut down")

    remove_leftovers()

    assert traces(prefix) == []


def traces(prefix: str) -> list[str]:
    """Return paths, mounts, control groups and processes with the prefix of a lab."""
    folders = (Path("/tmp"), Path("/run/netns"), Path("/etc/netns"))  # noqa: S108  where to look
    left = [str(entry) for folder in folders if folder.is_dir() for entry in folder.iterdir() if prefix in entry.name]
    left += [group for group in cgroups() if prefix in group]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if prefix in line]
    return [*left, *mounts, *processes(prefix)]


def processes(prefix: str) -> list[str]:
    """Return the processes whose root is in a folder with the prefix, or whose command line contains it."""
    matching = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
            roots = [mount[-1] for mount in mounts if mount[4] == "/"]
            is_named = prefix in (process / "cmdline").read_text()
            matching += [process.name] if is_named or any(f"/{prefix}" in root for root in roots) else []
    return matching
