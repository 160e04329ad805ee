"""The test nodes themselves: what the other tests of this folder take for granted."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.netlab_program import until
from tests.support.stand.cgroup import groups
from tests.support.stand.command import CommandError
from tests.support.stand.node import Node
from tests.support.stand.room import make_room
from tests.support.stand.stand import Stand

# Boots a machine, says by which mark it is known, and waits to be killed.
FORGETFUL = """
import sys
from tests.support.stand.stand import Stand
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


def test_the_operator_logs_in_with_a_key_and_becomes_root(node: Node) -> None:
    """A fresh machine lets one admin in by SSH, who may use sudo."""
    assert node.ssh("sudo id --user").stdout.strip() == "0"


def test_a_node_whose_host_key_is_another_is_refused(node: Node, stand: Stand, tmp_path: Path) -> None:
    """The operator knows the node's key beforehand; nothing is trusted at first sight."""
    nobody = tmp_path / "known_hosts"
    nobody.write_text("")
    option = f"UserKnownHostsFile={nobody}"

    done = stand.desk.run("ssh", "-F", str(stand.ssh_config), "-o", option, node.name, "true")

    assert "Host key verification failed" in done.stderr


def test_a_cut_node_is_silent_and_a_healed_one_answers(node: Node) -> None:
    """A cut loses every packet without a word, and what the console says goes on."""
    node.cut()
    silent = node.desk.host.pings(node.address)
    going_on = node.run("echo here")
    node.heal()

    assert not silent
    assert going_on == "here\n"
    assert node.ssh("true").returncode == 0


def test_settings_of_the_kernel_are_the_nodes_own(node: Node) -> None:
    """A node may set what it likes: the machine under it keeps its settings."""
    here = Path("/proc/sys/vm/swappiness").read_text()

    told = node.run("sysctl -qw vm.swappiness=7 net.ipv4.conf.all.log_martians=1; sysctl -n vm.swappiness")

    assert told.strip() == "7"
    assert Path("/proc/sys/vm/swappiness").read_text() == here


@pytest.mark.parametrize("way", ["restart", "crash"])
def test_a_node_comes_back_with_what_was_written(node: Node, way: str) -> None:
    """Shutting down and losing power both keep the disk; what ran is gone."""
    node.run(f"echo kept > /srv/{way}; sync; echo lost > /run/{way}")

    getattr(node, way)()

    assert node.run(f"cat /srv/{way}").strip() == "kept"
    with pytest.raises(CommandError, match="No such file"):
        node.run(f"cat /run/{way}")


def test_nodes_reach_one_another_by_their_addresses(node: Node, stand: Stand) -> None:
    """A second machine of the LAN is reached, and sees who asks."""
    nas = stand.boot("nas.cellar", "192.168.40.5")

    told = nas.run(f"ping -c 1 -W 2 {node.address} && ip -brief address show eth0")

    assert "1 received" in told
    assert "192.168.40.5" in told


def test_services_of_one_name_are_each_nodes_own(stand: Stand, node: Node) -> None:
    """Stopping one ends its processes, all of them, and nobody else's."""
    other = stand.boot("titan-09.cellar", "192.168.40.29")
    for each in (other, node):
        each.run("systemd-run --quiet --unit=twin --property=Type=forking sh -c 'sleep 901 & sleep 902 &'")

    node.run("systemctl stop twin")

    counted = "pgrep --count --full '^sleep 90[12]' || true"
    assert (node.run(counted).strip(), other.run(counted).strip()) == ("0", "2")


def test_a_node_installs_packages(node: Node) -> None:
    """The archives of this machine's apt are in reach of a node, signed as Debian signs them."""
    told = node.run("apt-get update --quiet && apt-cache policy hello", seconds=300)

    assert "Candidate: 2" in told


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
