"""Containers and pods on machines under their packet filter: whom they reach, and who reaches them.

A namespace behind a bridge stands for a container, with the rules that Docker writes for one that publishes a port.
"""

from ipaddress import IPv4Interface, IPv4Network

import pytest

from roles.hardened.filter import ruleset
from tests.support.nodes import lab_node
from tests.support.stand.command import CommandError
from tests.support.stand.node import Node
from tests.support.stand.stand import Stand

WORKBENCH, WORKER = "titan-03.cellar", "titan-01.cellar"
BRIDGE = IPv4Interface("172.17.0.1/16")
PUBLISHED = 8080
# Of no block that a door names.
STRANGER = "10.99.0.9"


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give a machine with a container behind Docker's bridge, and a server in it that is published."""
    booted = stand.boot(WORKBENCH, "192.168.40.23")
    stand.desk.host.run("ip", "address", "add", f"{STRANGER}/32", "dev", "lo")
    box = BRIDGE + 1
    booted.run(
        f"""
        ip netns add box; ip link add docker0 type bridge; ip address add {BRIDGE} dev docker0
        ip link set docker0 up; ip link add vbox type veth peer name eth0 netns box; ip link set vbox master docker0 up
        ip -n box address add {box.ip}/16 dev eth0; ip -n box link set eth0 up
        ip -n box route add default via {BRIDGE.ip}; sysctl -qw net.ipv4.ip_forward=1
        systemd-run --quiet --unit=box ip netns exec box python3 -m http.server 80
        for i in $(seq 100); do ip netns exec box ss -ltn | grep -q :80 && break; sleep 0.2; done
        nft 'table ip docker {{
          chain post {{ type nat hook postrouting priority 100; ip saddr {BRIDGE.network} masquerade; }}
          chain pre {{ type nat hook prerouting priority -100; tcp dport {PUBLISHED} dnat to {box.ip}:80; }}
        }}'
        """
    )
    return booted


@pytest.fixture
def workbench(node: Node) -> Node:
    """Let the machine have a workbench's filter."""
    plan = lab_node(WORKBENCH)
    load(node, ruleset(plan.doors, plan.duties))
    return node


def test_a_container_reaches_the_world(workbench: Node) -> None:
    """What runs on a workbench goes out, and is answered."""
    assert "1 received" in workbench.run(f"ip netns exec box ping -c 1 -W 20 {workbench.desk.address}")


def test_what_is_published_is_reached_by_whom_everything_is_open_to(workbench: Node) -> None:
    """A machine of the site comes in at a container's published port; a stranger, to whom no door is open, does not."""
    assert fetched(workbench, str(workbench.desk.address))
    assert not fetched(workbench, STRANGER)


def test_nobody_comes_to_a_container_behind_its_port(workbench: Node) -> None:
    """Whoever sends packets for the container's own address to the machine, as to a router, is not led there."""
    workbench.desk.host.run(
        "ip", "route", "replace", str(BRIDGE.network), "via", str(workbench.address), "onlink", *_dev(workbench)
    )

    assert not fetched(workbench, str(workbench.desk.address), f"http://{(BRIDGE + 1).ip}")


def test_nobody_is_led_through_a_workbench(workbench: Node) -> None:
    """It forwards for its containers, and is nobody's router."""
    workbench.desk.host.run(
        "ip", "route", "replace", "10.98.0.0/16", "via", str(workbench.address), "onlink", *_dev(workbench)
    )
    before = dropped(workbench)

    workbench.desk.run("ping", "-c", "1", "-W", "1", "10.98.0.1")

    assert dropped(workbench) == before + 1


def test_a_container_reaches_its_machine_as_a_stranger_does(workbench: Node) -> None:
    """What no door opens is closed to it, too."""
    with pytest.raises(CommandError):
        knock(workbench)


@pytest.mark.parametrize("has_door", [True, False], ids=["pods", "without"])
def test_a_pod_reaches_its_own_machine(node: Node, has_door: bool) -> None:  # noqa: FBT001  pytest passes it by name
    """By the plan's door for pods, and by no other: its packets come under its own address."""
    plan = lab_node(WORKER)
    doors = [rule for rule in plan.doors if has_door or rule.name != "all-from-pods"]
    load(node, ruleset(doors, plan.duties).replace(str(pods(WORKER)), str(BRIDGE.network)))

    if has_door:
        knock(node)
    else:
        with pytest.raises(CommandError):
            knock(node)


def load(node: Node, packets: str) -> None:
    """Put a packet filter in force."""
    (node.root / "run-filter.nft").write_text(packets)
    node.run("nft -f /run-filter.nft")


def pods(name: str) -> IPv4Network:
    """Return the block of pods as a machine's doors name it."""
    (block,) = [rule.block for rule in lab_node(name).doors if rule.name == "all-from-pods"]
    return block


def knock(node: Node) -> None:
    """Open a connection from the container to its machine's sshd. Raises CommandError."""
    node.run(f"ip netns exec box timeout 5 bash -c 'exec 3<>/dev/tcp/{node.address}/22'")


def fetched(node: Node, source: str, url: str = "") -> bool:
    """Tell whether the container's server answers the desk under one of its addresses."""
    to = url or f"http://{node.address}:{PUBLISHED}"
    limit = "5" if source == STRANGER or url else "60"
    done = node.desk.run("curl", "-fsS", "--noproxy", "*", "--interface", source, "--max-time", limit, to, seconds=90)
    return done.returncode == 0


def dropped(node: Node) -> int:
    """Return how many packets the machine did not lead on."""
    told = node.run("nft list chain inet bedplate forward").split("counter packets ")
    return int(told[-1].split()[0])


def _dev(node: Node) -> tuple[str, str]:
    """Return the desk's device that leads to a machine."""
    told = node.desk.host.run("ip", "route", "get", str(node.address)).split()
    return "dev", told[told.index("dev") + 1]
