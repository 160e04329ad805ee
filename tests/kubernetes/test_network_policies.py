"""kube-network-policies enforces the network policy of each person, with the kernel's queue of packets.

The program, the API server and the packet filter of a worker are real. The worker is one QEMU machine with Debian's
kernel, because this machine's kernel may lack the queue. Pods are network namespaces at its bridge; no kubelet runs.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import join

import pytest

from bedplate.catalog.catalog import load_addons
from bedplate.kubernetes.addons import ADDON_LABEL, Object
from bedplate.kubernetes.apply import apply_objects
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import admit_routers, desired_objects
from bedplate.plan.cluster import PEOPLE, cluster_plan
from roles.hardened.firewall import ruleset
from tests.testlab.fleets.variants import lab_node, lab_plan
from tests.testlab.kubernetes.binaries import POLICIES, find_extra, find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.joined_node import local_address
from tests.testlab.kubernetes.upstream import MIRROR, available_pins, read_upstream
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.virtual import gateway_layers
from tests.testlab.network.netlab import LabHost, checked, until
from tests.testlab.run import clock_pace, lack, need_program, need_root

WORKER, OTHER, ADDON, PORT = "titan-01.cellar", "titan-02.cellar", "kube-network-policies", 8080
_NUMBER = os.getpid() % 250
# The API server runs on this machine, outside the laboratory.
API, API_HOST = f"10.91.{_NUMBER}.1", f"10.91.{_NUMBER}.2"
ADA, ADA_TOO, GRACE = "10.112.1.5", "10.112.1.6", "10.112.1.7"
ADA_AWAY, GRACE_AWAY, ROUTER, OTHER_NODE, OUTSIDE = (
    *("10.112.2.5", "10.112.2.7", "10.112.0.0", "10.112.2.0"),
    "192.168.77.2",
)
PODS = {ADA: "ada", ADA_TOO: "ada", GRACE: "grace", ADA_AWAY: "ada", GRACE_AWAY: "grace"}
_LOCAL = (ADA, ADA_TOO, GRACE)
_CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount"
_LISTEN = f"import socket, time; s = socket.create_server(('', {PORT})); time.sleep(1e6)"
# The kernel answers a connection, which no program needs to accept.
_CONNECT = """\
import socket, sys
try:
    socket.create_connection((sys.argv[2], int(sys.argv[3])), 5, (sys.argv[1], 0))
    print("connected")
except TimeoutError:
    print("no answer")
"""
_NETWORK = f"""
modprobe --all br_netfilter nft_queue nfnetlink_queue veth
sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
ip link add cni0 type bridge
ip address add 10.112.1.1/24 dev cni0
ip link set cni0 up
add() {{
  ip netns add $1; ip link add $2 type veth peer name eth0 netns $1
  ip link set $2 up; ip -n $1 link set lo up; ip -n $1 link set eth0 up
}}
for pod in {" ".join(_LOCAL)}; do
  add $pod pod${{pod##*.}}; ip link set pod${{pod##*.}} master cni0
  ip -n $pod address add $pod/24 dev eth0; ip -n $pod route add default via 10.112.1.1
  systemd-run --quiet ip netns exec $pod python3 -c {join([_LISTEN])}
done
add away flannel.1
ip address add 192.168.77.1/24 dev flannel.1
ip -n away address add {OUTSIDE}/24 dev eth0
ip -n away route add default via 192.168.77.1
for address in {ADA_AWAY} {GRACE_AWAY} {ROUTER} {OTHER_NODE}; do
  ip -n away address add $address/32 dev eth0; ip route add $address dev flannel.1
done
"""


@dataclass
class Enforced:
    """A worker that enforces policies, and the API server that has them."""

    plane: ControlPlane
    objects: tuple[Object, ...]
    worker: Node

    def connects(self, sender: str, receiver: str) -> bool:
        """Return whether an address gets a connection to a pod of the worker; a refusal is a failure of the test."""
        space = sender if sender in _LOCAL else "away"
        words = ("ip", "netns", "exec", space, "python3", "-c", _CONNECT, sender, receiver, str(PORT))
        answer = self.worker.run(join(words)).strip()
        assert answer in {"connected", "no answer"}
        return answer == "connected"

    def wait_for(self, *pods: str) -> None:
        """Wait until packets from and to these pods, and no others, are queued."""

        def is_loaded() -> bool:
            text = self.worker.run(f"nft -j list set inet {ADDON} podips-v4 || true")
            entries = json.loads(text or "{}").get("nftables", [])
            return [set(entry["set"].get("elem", ())) for entry in entries if "set" in entry] == [set(pods)]

        until(is_loaded, 120 * clock_pace(), "the program loads no addresses of pods", every=0.5)

    def apply(self) -> None:
        """Apply the objects."""
        assert not apply_objects(ClusterClient(self.plane.client()), self.objects).failures


@pytest.fixture(scope="module")
def enforced() -> Iterator[Enforced]:
    """Yield the worker after the program has loaded the addresses of its pods."""
    need_root()
    for program in ("systemd-nspawn", "mmdebstrap", "slirp4netns", "nft", "ssh", "qemu-system-x86_64", "mke2fs"):
        need_program(program)
    programs, built = find_programs(), find_extra(POLICIES)
    if programs is None or built is None or not MIRROR.exists():
        lack("needs Kubernetes and kube-network-policies: `python -m tests.testlab.kubernetes` builds them")
    plan, worker = lab_plan(), lab_node(WORKER)
    cluster = cluster_plan(plan)
    assert cluster
    with (
        NodeLab(gateway_layers()) as lab,
        local_address(API),
        _reachable(lab.workstation.host, str(worker.address)),
        ControlPlane(programs, API, str(cluster.services)) as plane,
    ):
        desired = desired_objects(plan, cluster, available_pins(load_addons()), read_upstream)
        objects = tuple(
            item
            for item in desired
            if item["metadata"]["labels"][ADDON_LABEL] in {ADDON, PEOPLE} or item["kind"] == "Namespace"
        )
        admit_routers(objects, [f"{ROUTER}/31"])
        node = lab.boot(WORKER, str(worker.address))
        shutil.copy(built / "netpol", node.root / "usr/local/bin/netpol")
        moved = lab.move(WORKER)
        enforced = Enforced(plane, objects, moved)
        enforced.apply()
        _create_pods(plane)
        moved.machine.wait()
        moved.run(_NETWORK)
        moved.run(f"nft -f - <<'END'\n{ruleset(worker.firewall_rules, worker.roles, worker.pod_rules)}\nEND")
        _start(enforced)
        enforced.wait_for(*_LOCAL)
        yield enforced


@contextmanager
def _reachable(workstation: LabHost, worker: str) -> Iterator[None]:
    """Connect this machine with the workstation, for the API server."""
    far, near = f"pol{_NUMBER}", "api0"
    checked(["ip", "link", "add", far, "type", "veth", "peer", "name", near, "netns", workstation.namespace])
    try:
        checked(["ip", "address", "add", f"{API}/30", "dev", far])
        checked(["ip", "link", "set", far, "up"])
        workstation.run("ip", "address", "add", f"{API_HOST}/30", "dev", near)
        workstation.run("ip", "link", "set", near, "up")
        checked(["ip", "route", "add", f"{worker}/32", "via", API_HOST])
        yield
    finally:
        checked(["ip", "link", "delete", far])


def _create_pods(plane: ControlPlane) -> None:
    """Create the pods as a kubelet leaves them, on the worker and on another node."""
    for name in (WORKER, OTHER):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        plane.kubectl("create", "-f", "-", text=json.dumps(node))
    for space in sorted(set(PODS.values())):
        plane.wait_for_namespace(space)
    for address, space in PODS.items():
        name = f"p{address.replace('.', '-')}"
        spec = {
            "nodeName": WORKER if address in _LOCAL else OTHER,
            "containers": [{"name": "main", "image": "none"}],
            "tolerations": [{"operator": "Exists"}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space}, "spec": spec}
        plane.kubectl("create", "-f", "-", text=json.dumps(pod))
        status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
        plane.kubectl("patch", "pod", name, "-n", space, "--subresource=status", "-p", json.dumps(status))


def _start(enforced: Enforced) -> None:
    """Start the program with the arguments and the rights of the add-on."""
    (daemons,) = (item for item in enforced.objects if item["kind"] == "DaemonSet")
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    words = [word.replace("$(MY_NODE_NAME)", WORKER) for word in container["args"]]
    assert words.pop(0) == "/bin/netpol"
    token = enforced.plane.kubectl("create", "token", ADDON, "-n", "kube-system").strip()
    authority = enforced.plane.authority.certificate.read_text()
    enforced.worker.run(
        f"mkdir -p {_CREDENTIALS}; printf %s {token} > {_CREDENTIALS}/token\n"
        f"cat > {_CREDENTIALS}/ca.crt <<'END'\n{authority}\nEND\n"
        f"systemd-run --quiet --unit=netpol -E KUBERNETES_SERVICE_HOST={API} -E KUBERNETES_SERVICE_PORT=6443 "
        f"netpol {join(words)}"
    )


@pytest.mark.parametrize(
    ("sender", "receiver", "connects"),
    [
        pytest.param(ADA_TOO, ADA, True, id="own pod of the node"),
        pytest.param(ADA_AWAY, ADA, True, id="own pod of another node"),
        pytest.param(OUTSIDE, ADA, True, id="outside"),
        pytest.param(ROUTER, ADA, True, id="machine that forwards from laptops"),
        pytest.param(OTHER_NODE, ADA, False, id="other machine of the overlay"),
        pytest.param(GRACE, ADA, False, id="pod of another person on the node"),
        pytest.param(GRACE_AWAY, ADA, False, id="pod of another person on another node"),
        pytest.param(ADA, GRACE, False, id="the other direction"),
    ],
)
def test_pods_accept_the_own_person_and_outside(
    enforced: Enforced, sender: str, receiver: str, *, connects: bool
) -> None:
    """Pods accept connections of pods of their person and from outside the block of pods, and no others."""
    assert enforced.connects(sender, receiver) == connects


def test_without_a_policy_pods_accept_everybody(enforced: Enforced) -> None:
    """A person who deletes the policy opens their pods; the next apply closes them again."""
    enforced.plane.kubectl("delete", "networkpolicy", "default", "-n", "ada")
    enforced.wait_for(GRACE)
    assert enforced.connects(GRACE, ADA)

    enforced.apply()

    enforced.wait_for(*_LOCAL)
    assert not enforced.connects(GRACE, ADA)
