"""A laptop opens a page of a pod by its name: OpenVPN, the pods router, flannel, kube-proxy and CoreDNS are real.

No kubelet runs: the programs of the add-ons are processes with the settings of the rendered manifests, and the pod is a
web server in a network namespace. dnsmasq is in the place of Route 53 Resolver, and static routes are those of AWS.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from ruamel.yaml import YAML

from bedplate.catalog.catalog import load_addons
from bedplate.kubernetes.desired import desired_objects
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from bedplate.plan.links import cluster_blocks, pods_router
from bedplate.plan.nodes import NodeRole, permanent_nodes
from roles.hardened.firewall import ruleset
from tests.testlab.fleets.variants import RESOLVERS, lab_plan
from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.joined_node import local_address
from tests.testlab.kubernetes.upstream import available_pins, read_upstream
from tests.testlab.network.laptops import NODE_NAME, LaptopLab
from tests.testlab.network.netlab import Lab, LabHost, checked, until
from tests.testlab.run import lack

_NUMBER = os.getpid() % 250
# The API server runs on this machine, outside the laboratory.
API, API_HOST = f"10.90.{_NUMBER}.1", f"10.90.{_NUMBER}.2"
WORKER = "10.64.32.40"
PAGE, PORT = "board.grace.pods.lab.internal", 6006
# More than one packet of every device on the path.
_CURL = ("curl", "--noproxy", "*", "-sSf")
TEXT = "loss\n" * 60_000


@dataclass
class Overlay:
    """The home region with a member of the control plane and a worker, and a laptop on the VPN."""

    plan: FleetPlan
    cluster: ClusterPlan
    plane: ControlPlane
    lab: LaptopLab
    router: LabHost
    worker: LabHost
    pod: str

    def open(self, host: str, place: str = "ada") -> str:
        """Return the page that a laptop gets from a host."""
        return self.lab.named(self.lab.laptops[place].host, *_CURL, "-m", "10", f"http://{host}:{PORT}/page")

    def filter(self, roles: frozenset[NodeRole]) -> None:
        """Load the packet filter of the router's role."""
        (node,) = (node for node in permanent_nodes(self.plan) if NodeRole.ROUTER in node.roles)
        self.router.load_rules(ruleset(node.firewall_rules, roles, node.pod_rules))


@pytest.fixture(scope="module")
def overlay() -> Iterator[Overlay]:
    """Yield the laboratory with all programs started."""
    programs = find_programs()
    needed = ("openvpn", "dnsmasq", "nft", "curl")
    if programs is None or os.geteuid() or not all(map(shutil.which, needed)):
        lack(f"needs root, the programs of Kubernetes, and {', '.join(needed)}")
    plan = lab_plan()
    cluster = cluster_plan(plan)
    assert cluster
    with local_address(API), LaptopLab("pods", "ada") as lab, Lab("vpc") as vpc:
        lab.answer_names(f"--server=/{cluster.short_domain}/{cluster.dns}")
        router, worker, pod = (vpc.host(name) for name in ("router", "worker", "pod"))
        with _api_behind(lab.node), ControlPlane(programs, API, str(cluster.services)) as plane:
            overlay = Overlay(plan, cluster, plane, lab, router, worker, "10.112.1.5")
            _wire(overlay, vpc, pod)
            _start(overlay, pod)
            lab.serve()
            lab.laptops["ada"].connect(lab.profile("ada"))
            lab.laptops["ada"].wait()
            yield overlay


@contextmanager
def _api_behind(node: LabHost) -> Iterator[None]:
    """Connect this machine with the region, for the API server."""
    far, near = f"api{_NUMBER}", "api0"
    checked(["ip", "link", "add", far, "type", "veth", "peer", "name", near, "netns", node.namespace])
    try:
        checked(["ip", "address", "add", f"{API}/30", "dev", far])
        checked(["ip", "link", "set", far, "up"])
        node.run("ip", "address", "add", f"{API_HOST}/30", "dev", near)
        node.run("ip", "link", "set", near, "up")
        checked(["ip", "route", "add", "10.64.32.0/24", "via", API_HOST])
        yield
    finally:
        checked(["ip", "link", "delete", far])


def _wire(overlay: Overlay, vpc: Lab, pod: LabHost) -> None:
    """Connect the machines to the region, which has the routes and the source check of AWS."""
    region, gateway = overlay.lab.node, overlay.lab.gateways["us-west-2"].host
    member = pods_router(overlay.plan)
    assert member
    for host, device, address in ((overlay.router, "router", str(member.address)), (overlay.worker, "worker", WORKER)):
        vpc.wire((host, "ens5", f"{address}/32"), (region, device, ""))
        region.run("ip", "route", "add", f"{address}/32", "dev", device)
        region.run("sysctl", "-qw", f"net.ipv4.conf.{device}.proxy_arp=1")
        host.run("ip", "route", "add", "10.64.32.10/32", "dev", "ens5")
        host.route("default", "10.64.32.10")
        host.forward()
    check = f"iifname worker ip saddr != {WORKER} counter drop"
    region.load_rules(f"table ip aws {{ chain forward {{ type filter hook forward priority 0; {check}; }}; }}\n")
    for block in cluster_blocks(overlay.plan).values():
        region.route(block, member.address)
        gateway.route(block, "10.64.32.10")
    vpc.wire((overlay.worker, "cni0", "10.112.1.1/24"), (pod, "eth0", f"{overlay.pod}/24"))
    pod.route("default", "10.112.1.1")


def _start(overlay: Overlay, pod: LabHost) -> None:
    """Create the objects, and start flannel and kube-proxy on both machines, CoreDNS and the page in the pod."""
    plane, programs = overlay.plane, overlay.plane.programs
    machines = {"control-1.us-west-2": overlay.router, "worker.us-west-2": overlay.worker}
    for number, (name, host) in enumerate(machines.items()):
        address = host.run("ip", "-br", "-4", "address", "show", "ens5").split()[2].removesuffix("/32")
        spec, status = {"podCIDR": f"10.112.{number}.0/24"}, {"addresses": [{"type": "InternalIP", "address": address}]}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}
        plane.kubectl("create", "-f", "-", text=json.dumps(node))
    plane.kubectl("create", "namespace", "grace")
    for space, name, ports, ip in (
        ("grace", "board", (("page", "TCP", PORT),), None),
        ("kube-system", "dns", (("dns", "UDP", 53), ("dns-tcp", "TCP", 53)), str(overlay.cluster.dns)),
    ):
        plane.kubectl("create", "-n", space, "-f", "-", text=_service(name, ports, ip, overlay.pod))
    settings = _settings(overlay)
    for name, host in machines.items():
        (host.folder / "net-conf.json").write_text(settings["net-conf.json"])
        (host.folder / "proxy.yaml").write_text(settings["config.conf"])
        host.start(
            *(str(programs / "flannel"), "--ip-masq", "--kube-subnet-mgr", f"--subnet-file={host.folder}/subnet.env"),
            *("--iface=ens5", f"--kubeconfig-file={plane.kubeconfig()}"),
            f"--net-config-path={host.folder}/net-conf.json",
            log="flannel.log",
            env={"NODE_NAME": name},
        )
        host.start(
            *(str(programs / "kube-proxy"), f"--config={host.folder}/proxy.yaml", f"--hostname-override={name}"),
            log="proxy.log",
        )
    overlay.filter(frozenset({NodeRole.CONTROL, NodeRole.ROUTER}))
    (pod.folder / "Corefile").write_text(settings["Corefile"])
    (pod.folder / "page").write_text(TEXT)
    pod.start(str(programs / "coredns"), "-conf", str(pod.folder / "Corefile"), log="dns.log")
    pod.start("python3", "-m", "http.server", str(PORT), "--directory", str(pod.folder), log="page.log")
    until(lambda: overlay.router.tries(*_CURL, f"http://{overlay.pod}:{PORT}/page"), 30, "no page at the router")


def _service(name: str, ports: tuple[tuple[str, str, int], ...], ip: str | None, pod: str) -> str:
    """Return a Service and its EndpointSlice, which a controller makes of a real pod."""
    listed = [{"name": port, "protocol": protocol, "port": number} for port, protocol, number in ports]
    service = {"ports": listed} | ({"clusterIP": ip} if ip else {})
    labels = {"kubernetes.io/service-name": name}
    items = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [pod], "conditions": {"ready": True}}],
            "ports": listed,
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _settings(overlay: Overlay) -> Mapping[str, str]:
    """Return the settings of the rendered add-ons, with the kubeconfig of the test."""
    objects = desired_objects(overlay.plan, overlay.cluster, available_pins(load_addons()), read_upstream)
    maps = {item["metadata"]["name"]: item["data"] for item in objects if item["kind"] == "ConfigMap"}
    config = overlay.plane.kubeconfig()
    proxy = YAML(typ="safe").load(maps["kube-proxy"]["config.conf"])
    # A namespace of a test may not change limits of the kernel.
    conntrack = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    proxy |= {"clientConnection": {"kubeconfig": str(config)}, "conntrack": conntrack}
    corefile = re.sub(
        r"(kubernetes cluster\.local[^{]*\{)", rf"\1\n    kubeconfig {config}", maps["coredns"]["Corefile"]
    )
    corefile = corefile.replace("forward . /etc/resolv.conf", f"forward . {RESOLVERS[0]}").replace("loop\n", "\n")
    return {**maps["kube-flannel-cfg"], "config.conf": json.dumps(proxy), "Corefile": corefile}


def test_a_laptop_opens_a_page_by_the_name_of_its_service(overlay: Overlay) -> None:
    """The name resolves to the address of the service, behind the router; a large page arrives whole."""
    assert overlay.open(PAGE) == TEXT


def test_a_laptop_opens_a_page_by_the_address_of_the_pod(overlay: Overlay) -> None:
    """The pod is on another machine than the router."""
    assert overlay.open(overlay.pod) == TEXT


def test_other_names_of_the_fleet_are_answered_as_before(overlay: Overlay) -> None:
    """Only the domain of pods is forwarded to the cluster."""
    laptop = overlay.lab.laptops["ada"].host

    assert "10.64.32.10" in overlay.lab.named(laptop, "getent", "ahostsv4", NODE_NAME)
    assert not overlay.lab.named(laptop, "sh", "-c", f"getent ahostsv4 none.{PAGE} || true")


def test_the_router_protects_itself(overlay: Overlay) -> None:
    """The security group admits pages, which the packet filter refuses on the router's own address."""
    member = pods_router(overlay.plan)
    assert member
    overlay.router.start("python3", "-m", "http.server", "6007", log="own.log")
    until(lambda: overlay.router.tries(*_CURL, "http://127.0.0.1:6007"), 10, "no server")
    laptop = overlay.lab.laptops["ada"].host

    assert not laptop.tries(*_CURL, "-m", "3", f"http://{member.address}:6007")


def test_without_translation_replies_are_lost(overlay: Overlay) -> None:
    """The seeded defect: flannel translates no sender from outside, and AWS drops the reply of the worker."""
    overlay.filter(frozenset({NodeRole.CONTROL}))
    try:
        assert not overlay.lab.laptops["ada"].host.tries(*_CURL, "-m", "4", f"http://{overlay.pod}:{PORT}/page")
    finally:
        overlay.filter(frozenset({NodeRole.CONTROL, NodeRole.ROUTER}))
    assert overlay.open(overlay.pod) == TEXT
