"""Containers and pods on nodes with a packet filter: which connections pass in both directions.

A network namespace behind a bridge simulates a container, with Docker's rules for a published port.
"""

from ipaddress import IPv4Interface, IPv4Network

import pytest

from roles.hardened.firewall import ruleset
from roles.storage.mounts import TUNNEL_UID, TUNNEL_USER
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.node_lab import Node, NodeLab

pytestmark = pytest.mark.nightly

WORKBENCH, WORKER = "titan-03.cellar", "titan-01.cellar"
BRIDGE = IPv4Interface("172.17.0.1/16")
PUBLISHED = 8080
# A compute node of the plan, and a host of the LAN that no firewall rule names.
COMPUTE_NODE, LAN_HOST = "192.168.40.21", "192.168.40.99"


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a node with a container behind Docker's bridge, whose web server has a published port."""
    booted = node_lab.boot(WORKBENCH, "192.168.40.23")
    for address in (COMPUTE_NODE, LAN_HOST):
        node_lab.workstation.host.run("ip", "address", "add", f"{address}/32", "dev", "lo")
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
    """Return the node with the packet filter of a workbench."""
    plan = lab_node(WORKBENCH)
    load(node, ruleset(plan.firewall_rules, plan.roles))
    return node


def test_container_reaches_the_internet(workbench: Node) -> None:
    """A container on a workbench can open connections to the outside."""
    assert "1 received" in workbench.run(f"ip netns exec box ping -c 1 -W 20 {workbench.workstation.address}")


def test_published_port_is_open_to_compute_nodes_only(workbench: Node) -> None:
    """A compute node of the site reaches the published port of a container; another host of the LAN does not."""
    assert is_served(workbench, COMPUTE_NODE)
    assert not is_served(workbench, LAN_HOST)


def test_container_address_is_not_reachable(workbench: Node) -> None:
    """Packets to the container's own address are not forwarded."""
    workbench.workstation.host.run(
        "ip", "route", "replace", str(BRIDGE.network), "via", str(workbench.address), "onlink", *_dev(workbench)
    )

    assert not is_served(workbench, COMPUTE_NODE, f"http://{(BRIDGE + 1).ip}")


def test_workbench_is_not_a_router(workbench: Node) -> None:
    """A workbench forwards packets for its containers only."""
    workbench.workstation.host.run(
        "ip", "route", "replace", "10.98.0.0/16", "via", str(workbench.address), "onlink", *_dev(workbench)
    )
    before = dropped(workbench)

    workbench.workstation.run("ping", "-c", "1", "-W", "1", "10.98.0.1")

    assert dropped(workbench) == before + 1


def test_container_needs_a_firewall_rule_for_its_node(workbench: Node) -> None:
    """A container reaches only those ports of its node that a firewall rule opens."""
    with pytest.raises(CommandError):
        connect_to_node(workbench)


@pytest.mark.parametrize("has_rule", [True, False], ids=["pods", "without"])
def test_pod_reaches_its_node(node: Node, has_rule: bool) -> None:  # noqa: FBT001  pytest passes it by name
    """A pod reaches its node by the firewall rule for pods, and not without it."""
    plan = lab_node(WORKER)
    rules = [rule for rule in plan.firewall_rules if has_rule or rule.name != "all-from-pods"]
    load(node, ruleset(rules, plan.roles).replace(str(pods(WORKER)), str(BRIDGE.network)))

    if has_rule:
        connect_to_node(node)
    else:
        with pytest.raises(CommandError):
            connect_to_node(node)


FILES = "127.61.7.9"
# Another network namespace behind the node simulates a file server; packets of pods are forwarded to it.
SERVER = IPv4Interface("10.97.0.1/24")


@pytest.fixture(scope="module")
def served(node: Node) -> Node:
    """Return the node with servers at the local address of an EFS tunnel, and at port 2049 of a file server."""
    node.run(
        f"""
        id ada 2>/dev/null || useradd --uid 20001 ada
        ip netns add nas; ip link add vnas type veth peer name eth0 netns nas; ip address add {SERVER} dev vnas
        ip link set vnas up; ip -n nas address add {(SERVER + 1).ip}/24 dev eth0; ip -n nas link set eth0 up
        ip -n nas route add default via {SERVER.ip}
        systemd-run --quiet --unit=files python3 -m http.server --bind {FILES} 2049
        systemd-run --quiet --unit=nas ip netns exec nas python3 -m http.server 2049
        for i in $(seq 100); do ss -ltn | grep -q :2049 && ip netns exec nas ss -ltn | grep -q :2049 && break
        sleep 0.2; done
        """
    )
    return node


def connects(node: Node, prefix: str, address: str) -> bool:
    """Return whether a program with a command prefix can connect to port 2049; otherwise it is refused at once."""
    script = f"exec 3<>/dev/tcp/{address}/2049"
    output = node.run(f"{prefix} timeout 20 bash -c '{script}' 2>&1 && echo connected || true")
    assert "connected" in output or "Connection refused" in output, output
    return "connected" in output


@pytest.mark.parametrize("name", [WORKBENCH, WORKER])
def test_people_cannot_connect_to_file_servers(served: Node, name: str) -> None:
    """Only root and the user of the EFS tunnels can connect to an EFS tunnel, but no dynamic user of systemd."""
    plan = lab_node(name)
    load(served, ruleset(plan.firewall_rules, plan.roles))
    users = {
        "root": "",
        TUNNEL_USER: f"setpriv --reuid {TUNNEL_UID} --clear-groups",
        "dynamic": "systemd-run --quiet --pipe --wait --property=DynamicUser=yes",
        **{name: f"runuser -u {name} --" for name in ("ada", "daemon", "nobody")},
    }

    connected = [user for user, prefix in users.items() if connects(served, prefix, FILES)]
    assert connected == ["root", TUNNEL_USER]


def test_people_could_connect_without_the_rule(served: Node) -> None:
    """Without the output rule a person can connect to the tunnel, so the rule is what prevents it."""
    plan = lab_node(WORKBENCH)
    load(served, ruleset(plan.firewall_rules, plan.roles))
    served.run("nft flush chain inet bedplate output")

    assert connects(served, "runuser -u ada --", FILES)


@pytest.mark.parametrize("name", [WORKBENCH, WORKER])
def test_containers_cannot_connect_to_file_servers(served: Node, name: str) -> None:
    """A container or pod, whose root would be root on the server, cannot connect; without the rule it can."""
    plan = lab_node(name)
    # The bridge of this node is that of Docker, on a worker in the place of the pods' one.
    packets = ruleset(plan.firewall_rules, plan.roles).replace('"cni0"', '"docker0"')
    server, in_container = str((SERVER + 1).ip), "ip netns exec box"

    load(served, packets)
    with_rule = connects(served, in_container, server)
    load(served, "\n".join(line for line in packets.splitlines() if "dport 2049 counter reject" not in line))
    assert (with_rule, connects(served, in_container, server)) == (False, True)


def load(node: Node, packets: str) -> None:
    """Load a packet filter."""
    (node.root / "run-filter.nft").write_text(packets)
    node.run("nft -f /run-filter.nft")


def pods(name: str) -> IPv4Network:
    """Return the block of pods in a node's firewall rules."""
    (block,) = [rule.block for rule in lab_node(name).firewall_rules if rule.name == "all-from-pods"]
    return block


def connect_to_node(node: Node) -> None:
    """Connect from the container to its node's sshd. Raises CommandError."""
    node.run(f"ip netns exec box timeout 5 bash -c 'exec 3<>/dev/tcp/{node.address}/22'")


def is_served(node: Node, source: str, url: str = "") -> bool:
    """Return whether the container's web server answers the workstation with a source address."""
    target = url or f"http://{node.address}:{PUBLISHED}"
    limit = "5" if source == LAN_HOST or url else "60"
    done = node.workstation.run(
        "curl", "-fsS", "--noproxy", "*", "--interface", source, "--max-time", limit, target, seconds=90
    )
    return done.returncode == 0


def dropped(node: Node) -> int:
    """Return the number of packets that the node did not forward."""
    parts = node.run("nft list chain inet bedplate forward").split("counter packets ")
    return int(parts[-1].split()[0])


def _dev(node: Node) -> tuple[str, str]:
    """Return the workstation's interface to a node, as arguments of ip."""
    words = node.workstation.host.run("ip", "route", "get", str(node.address)).split()
    return "dev", words[words.index("dev") + 1]
