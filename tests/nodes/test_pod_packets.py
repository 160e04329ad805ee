"""Packets to and from pods, on machines with the packet filter of the plan, in network namespaces.

Two workers of a site have flannel's devices, and one pod each; a workbench and another host are on the same LAN.
"""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

import pytest

from roles.hardened.firewall import ruleset
from tests.testlab.fleets.variants import lab_node
from tests.testlab.network.netlab import Lab, LabHost, until
from tests.testlab.run import need_program, need_root

WORKER, PEER, BENCH = "titan-01.cellar", "titan-02.cellar", "titan-03.cellar"
# A host of the LAN that is in no plan.
STRANGER = "192.168.40.99"
PODS = {WORKER: "10.112.1.5", PEER: "10.112.2.5"}
PORTS, NODE_PORT, METADATA = (80, 8888, 31337), 30080, "169.254.169.254"
PERSON = ("setpriv", "--reuid", "20001", "--clear-groups")
_SERVER = """
import selectors, socket
waiting = selectors.DefaultSelector()
for port in {ports}:
    server = socket.create_server(("{address}", port))
    waiting.register(server, selectors.EVENT_READ)
while True:
    for key, _ in waiting.select():
        connection, (sender, _) = key.fileobj.accept()
        connection.sendall(sender.encode())
        connection.close()
"""
_READ = "import socket,sys; print(socket.create_connection(('{}', {}), 1).recv(99).decode())"
# A VXLAN packet to the worker, with a datagram to its pod from an address that is no pod's.
_FORGE = """
import socket, struct
def ip(payload, protocol, sender, target):
    head = struct.pack("!BBHHHBBH4s4s", 69, 0, 20 + len(payload), 0, 0, 64, protocol, 0, sender, target)
    words = sum(struct.unpack("!10H", head))
    check = ~((words & 0xffff) + (words >> 16)) & 0xffff
    return head[:10] + struct.pack("!H", check) + head[12:] + payload
datagram = struct.pack("!HHHH", 1234, 9999, 8 + {size}, 0) + b"{text}"
packet = ip(datagram, 17, socket.inet_aton("10.112.9.9"), socket.inet_aton("{pod}"))
frame = bytes.fromhex("020000000021" "020000000099" "0800") + packet
vxlan = struct.pack("!II", 8 << 24, 1 << 8) + frame
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(vxlan, ("{target}", 8472))
except OSError:
    pass
"""
_RECEIVE = """
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("", 9999))
while True:
    print(receiver.recv(99).decode(), flush=True)
"""


class Machines:
    """The hosts by name, and what they send to each other."""

    def __init__(self, lab: Lab) -> None:
        self.hosts = {name: lab.host(name.partition(".")[0]) for name in (WORKER, PEER, BENCH)}
        self.stranger = lab.host("stranger")
        self.pods = {name: lab.host(f"pod{number}") for number, name in enumerate(PODS)}
        self._connect(lab)
        self.received = self.pods[WORKER].start("python3", "-c", _RECEIVE, log="received.log")
        for name, pod in self.pods.items():
            pod.start("python3", "-c", _SERVER.format(ports=PORTS, address=PODS[name]), log="server.log")
        self.filter()
        until(lambda: bool(self.read(self.hosts[WORKER], PODS[WORKER], 80)), 20, "no server in the pod")

    def _connect(self, lab: Lab) -> None:
        lan = lab.host("lan")
        lan.run("ip", "link", "add", "br0", "type", "bridge")
        lan.run("ip", "link", "set", "br0", "up")
        addresses = {name: str(lab_node(name).address) for name in self.hosts}
        ends = [(host, addresses[name]) for name, host in self.hosts.items()]
        for number, (host, address) in enumerate([*ends, (self.stranger, STRANGER)]):
            lab.wire((host, "eth0", f"{address}/22"), (lan, f"port{number}", ""))
            lan.run("ip", "link", "set", f"port{number}", "master", "br0")
        for name, other in ((WORKER, PEER), (PEER, WORKER)):
            self._overlay(lab, name, addresses[name], other, addresses[other])
        for host in (self.stranger, self.hosts[BENCH]):
            host.route("10.112.0.0/13", addresses[WORKER])
        for address in ("192.168.40.98/22", f"{METADATA}/32"):
            lan.run("ip", "address", "add", address, "dev", "br0")
        lan.route(f"{PODS[WORKER]}/32", addresses[WORKER])
        for host in self.hosts.values():
            host.run("ip", "route", "add", f"{METADATA}/32", "dev", "eth0")
        lan.start("python3", "-c", _SERVER.format(ports=(80,), address=METADATA), log="metadata.log")

    def _overlay(self, lab: Lab, name: str, address: str, other: str, far: str) -> None:
        """Make the devices of flannel and of the pods on a worker."""
        host, bridge = self.hosts[name], IPv4Address(PODS[name]) - 4
        lab.wire((host, "cni0", f"{bridge}/24"), (self.pods[name], "eth0", f"{PODS[name]}/24"))
        self.pods[name].route("default", bridge)
        host.forward()
        options = ("type", "vxlan", "id", "1", "dstport", "8472", "local", address, "nolearning", "dev", "eth0")
        host.run("ip", "link", "add", "flannel.1", "address", _mac(address), *options)
        host.run("ip", "address", "add", f"{bridge - 1}/32", "dev", "flannel.1")
        host.run("ip", "link", "set", "flannel.1", "up")
        gateway = str(IPv4Address(PODS[other]) - 5)
        host.run("ip", "route", "add", f"{gateway}/24", "via", gateway, "dev", "flannel.1", "onlink")
        host.run("ip", "neighbour", "add", gateway, "lladdr", _mac(far), "dev", "flannel.1")
        host.run("bridge", "fdb", "append", _mac(far), "dev", "flannel.1", "dst", far)

    def filter(self, change: Callable[[str], str] = str) -> None:
        """Load the packet filters of the plan, changed."""
        for name, host in self.hosts.items():
            node = lab_node(name)
            host.load_rules(change(ruleset(node.firewall_rules, node.roles, node.pod_rules)))

    def read(self, host: LabHost, address: str, port: int, user: tuple[str, ...] = ()) -> str:
        """Return the sender that a server sees; empty if the connection is not made."""
        program = (*user, "python3", "-c", _READ.format(address, port))
        return host.run("sh", "-c", '"$@" 2>/dev/null || true', "sh", *program).strip()

    def forge(self, host: LabHost, text: str, *user: str) -> None:
        """Send a VXLAN packet with a datagram for the pod of the worker."""
        target = lab_node(WORKER).address
        script = _FORGE.format(size=len(text), text=text, pod=PODS[WORKER], target=target)
        host.run(*user, "python3", "-c", script)


def _mac(address: str) -> str:
    return f"02:00:00:00:00:{address.rpartition('.')[2]}"


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """Yield the machines, with their packet filters."""
    need_root()
    need_program("nft")
    with Lab("pods") as lab:
        yield Machines(lab)


def test_hosts_of_a_lan_reach_no_pod(machines: Machines) -> None:
    """A worker forwards no connection from its LAN to pods; without the rule, each host reaches each port."""
    results: dict[str, list[str]] = {}
    for name, change in (("rules", str), ("no rules", _without_last_drop)):
        machines.filter(change)
        results[name] = [machines.read(machines.stranger, PODS[WORKER], port) for port in PORTS]
    machines.filter()

    assert results == {"rules": ["", "", ""], "no rules": [STRANGER] * 3}


def _without_last_drop(text: str) -> str:
    before, chain, after = text.partition("chain forward {")
    return before + chain + after.replace("\t\tcounter drop\n", "", 1)


@pytest.mark.nightly
def test_pods_and_their_nodes_reach_each_other(machines: Machines) -> None:
    """Pods reach pods of other workers and hosts outside; each node reaches its pods, as probes of kubelet do."""
    worker, peer = machines.hosts[WORKER], machines.hosts[PEER]
    machines.stranger.start("python3", "-c", _SERVER.format(ports=(9000,), address=STRANGER), log="server.log")
    machines.stranger.route("10.112.1.0/24", str(lab_node(WORKER).address))
    until(lambda: bool(machines.read(machines.stranger, STRANGER, 9000)), 20, "no server outside")

    assert machines.read(machines.pods[PEER], PODS[WORKER], 8888) == PODS[PEER]
    assert machines.read(worker, PODS[WORKER], 8888)
    assert machines.read(peer, PODS[WORKER], 8888)
    assert machines.read(machines.pods[WORKER], STRANGER, 9000) == PODS[WORKER]


@pytest.mark.nightly
def test_ports_of_services_are_for_nodes_only(machines: Machines) -> None:
    """A node of the plan reaches a port that kube-proxy forwards to a pod; another host of the LAN does not."""
    worker, address = machines.hosts[WORKER], str(lab_node(WORKER).address)
    worker.load_rules(
        f"table ip service {{ chain pre {{ type nat hook prerouting priority -100; "
        f"tcp dport {NODE_PORT} dnat to {PODS[WORKER]}:8888; }}; }}\n"
    )
    try:
        assert machines.read(machines.hosts[BENCH], address, NODE_PORT)
        assert not machines.read(machines.stranger, address, NODE_PORT)
    finally:
        worker.run("nft", "delete", "table", "ip", "service")


def test_only_root_and_users_of_workbenches_have_the_role_of_a_machine(machines: Machines) -> None:
    """On a worker, the metadata service answers root, but neither another user nor a pod; on a workbench everybody."""
    worker, pod, bench = machines.hosts[WORKER], machines.pods[WORKER], machines.hosts[BENCH]

    def readers() -> list[str]:
        tries = {"root": (worker, ()), "person": (worker, PERSON), "pod": (pod, ()), "workbench": (bench, PERSON)}
        return [name for name, (host, user) in tries.items() if machines.read(host, METADATA, 80, user)]

    with_rules = readers()
    machines.filter(lambda text: "\n".join(line for line in text.splitlines() if METADATA not in line))
    without = readers()
    machines.filter()

    assert with_rules == ["root", "workbench"]
    assert without == ["root", "person", "pod", "workbench"]


def test_nobody_but_workers_injects_packets_into_pods(machines: Machines) -> None:
    """Packets of the overlay come from root of a worker only: no user, pod, workbench or other host is a sender."""
    worker, peer, bench = (machines.hosts[name] for name in (WORKER, PEER, BENCH))
    machines.forge(peer, "person", *PERSON)
    machines.forge(bench, "workbench")
    machines.forge(bench, "user", *PERSON)
    machines.forge(machines.stranger, "stranger")
    machines.forge(machines.pods[PEER], "other-pod")
    machines.forge(machines.pods[WORKER], "own-pod")
    machines.forge(peer, "root")
    until(lambda: "root" in machines.received.output, 10, "the packet of the worker did not arrive")

    assert machines.received.output.split() == ["root"]
    assert machines.read(worker, PODS[PEER], 8888)


def test_a_user_of_a_worker_reaches_pods_of_other_workers(machines: Machines) -> None:
    """Only datagrams to the overlay's port are limited to root, not connections that the kernel sends over it."""
    assert machines.read(machines.hosts[PEER], PODS[WORKER], 8888, PERSON)
