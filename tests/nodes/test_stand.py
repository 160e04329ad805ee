"""The test nodes themselves: what the other tests of this folder take for granted."""

from pathlib import Path

import pytest

from tests.support.stand.command import CommandError
from tests.support.stand.node import Node
from tests.support.stand.stand import Stand


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


def test_a_node_installs_packages(node: Node) -> None:
    """The archives of this machine's apt are in reach of a node, signed as Debian signs them."""
    told = node.run("apt-get update --quiet && apt-cache policy hello", seconds=300)

    assert "Candidate: 2" in told


def test_nothing_is_left_of_a_stand(tmp_path: Path) -> None:
    """Whoever leaves takes everything down: names, mounts, spaces, processes."""
    with Stand() as stand:
        gone = stand.boot("gone.cellar", "192.168.40.9")

    assert not stand.folder.exists()
    assert str(stand.folder) not in Path("/proc/mounts").read_text()
    assert gone.machine.namespace not in {each.name for each in Path("/run/netns").iterdir()}
