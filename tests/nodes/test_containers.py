"""Containers and pods on machines under their packet filter: whom they reach, and who reaches them.

A namespace behind a bridge stands for a container, with the rules that Docker writes for one that publishes a port.
"""

from ipaddress import IPv4Interface, IPv4Network

import pytest

from roles.hardened.firewall import ruleset
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.stand import Node, Stand

pytestmark = pytest.mark.nightly

WORKBENCH, WORKER = "titan-03.cellar", "titan-01.cellar"
BRIDGE = IPv4Interface("172.17.0.1/16")
PUBLISHED = 8080
# Of no block that a door names.
# A machine of the plan, and another host of its LAN.
FELLOW, STRANGER = "192.168.40.21", "192.168.40.99"


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give a machine with a container behind Docker's bridge, and a server in it that is published."""
    booted = stand.boot(WORKBENCH, "192.168.40.23")
    for address in (FELLOW, STRANGER):
        stand.desk.host.run("ip", "address", "add", f"{address}/32", "dev", "lo")
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
    """A machine of the site that computes reaches a container's published port; another host of the LAN does not."""
    assert fetched(workbench, FELLOW)
    assert not fetched(workbench, STRANGER)


def test_nobody_comes_to_a_container_behind_its_port(workbench: Node) -> None:
    """Whoever sends packets for the container's own address to the machine, as to a router, is not led there."""
    workbench.desk.host.run(
        "ip", "route", "replace", str(BRIDGE.network), "via", str(workbench.address), "onlink", *_dev(workbench)
    )

    assert not fetched(workbench, FELLOW, f"http://{(BRIDGE + 1).ip}")


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


FILES = "127.61.7.9"
# Another namespace behind the machine, as a file server of the network stands: a pod's packets are led to it.
BEYOND = IPv4Interface("10.97.0.1/24")


@pytest.fixture(scope="module")
def served(node: Node) -> Node:
    """Let somebody listen where a tunnel to EFS begins, and at the port of a file server beyond the machine."""
    node.run(
        f"""
        id ada 2>/dev/null || useradd --uid 20001 ada
        ip netns add nas; ip link add vnas type veth peer name eth0 netns nas; ip address add {BEYOND} dev vnas
        ip link set vnas up; ip -n nas address add {(BEYOND + 1).ip}/24 dev eth0; ip -n nas link set eth0 up
        ip -n nas route add default via {BEYOND.ip}
        systemd-run --quiet --unit=files python3 -m http.server --bind {FILES} 2049
        systemd-run --quiet --unit=nas ip netns exec nas python3 -m http.server 2049
        for i in $(seq 100); do ss -ltn | grep -q :2049 && ip netns exec nas ss -ltn | grep -q :2049 && break
        sleep 0.2; done
        """
    )
    return node


def connects(node: Node, before: str, address: str) -> bool:
    """Tell whether a program that is started so comes in at a port of NFS; refused is refused at once."""
    words = f"exec 3<>/dev/tcp/{address}/2049"
    told = node.run(f"{before} timeout 20 bash -c '{words}' 2>&1 && echo came in || true")
    assert "came in" in told or "Connection refused" in told, told
    return "came in" in told


@pytest.mark.parametrize("name", [WORKBENCH, WORKER])
def test_a_person_is_nobody_to_a_file_server(served: Node, name: str) -> None:
    """Root and what systemd lends an id, as stunnel, come in at a tunnel; a person or another service does not."""
    plan = lab_node(name)
    load(served, ruleset(plan.doors, plan.duties))
    lent = "systemd-run --quiet --pipe --wait --property=DynamicUser=yes"

    who = {"root": "", "stunnel": lent, "ada": "runuser -u ada --", "nobody": "runuser -u nobody --"}
    found = {each: connects(served, before, FILES) for each, before in who.items()}
    assert found == {"root": True, "stunnel": True, "ada": False, "nobody": False}


def test_without_the_filter_a_person_would_be_anybody(served: Node) -> None:
    """What refuses a person is the rule, and nothing else on the way."""
    plan = lab_node(WORKBENCH)
    load(served, ruleset(plan.doors, plan.duties))
    served.run("nft flush chain inet bedplate output")

    assert connects(served, "runuser -u ada --", FILES)


@pytest.mark.parametrize("name", [WORKBENCH, WORKER])
def test_neither_a_container_nor_a_pod_speaks_to_a_file_server(served: Node, name: str) -> None:
    """Its root would be root there, too; with the rule taken out it comes in."""
    plan = lab_node(name)
    packets = ruleset(plan.doors, plan.duties)
    beyond, boxed = str((BEYOND + 1).ip), "ip netns exec box"

    load(served, packets)
    refused = connects(served, boxed, beyond)
    load(served, "\n".join(line for line in packets.splitlines() if "dport 2049 counter reject" not in line))
    assert (refused, connects(served, boxed, beyond)) == (False, True)


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
