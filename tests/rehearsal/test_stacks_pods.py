"""Pods for laptops and sites: the routes to the pods router, its security groups, and names of services."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

import pytest

from bedplate.graph.reach import Fabric, Packet, read_fabric, trip
from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import cluster_plan
from bedplate.plan.links import cluster_blocks, pods_router
from bedplate.plan.reachability import endpoints, find_endpoint
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, graph, run
from bedplate.rehearsal.state import Entry
from bedplate.spec.network import Interconnect
from stacks.dns import forwarded_domains
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
PEOPLE = ("laptops.us-west-2", "laptops.cellar", "cellar")


@dataclass(frozen=True)
class PodsFleet:
    """A deployed fleet, and its network."""

    entries: tuple[Entry, ...]
    fabric: Fabric

    def answers(self, source: str, target: str, protocol: str, port: int) -> bool:
        """Return whether a connection between two places passes, there and back."""
        start, end = (int(find_endpoint(LAB, name).address) for name in (source, target))
        return trip(self.fabric, Packet(start, end, protocol, port)).answered


@pytest.fixture(scope="module")
def fleet() -> Iterator[PodsFleet]:
    """Return the larger example, deployed."""
    with running(LAB.account) as simulation:
        world = SharedState(simulation)
        assert not [failure for wave in waves(LAB) for stack in wave for failure in run(stack, world).failures]
        entries = tuple(entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values())
        yield PodsFleet(entries, read_fabric(graph(entries)))


@pytest.mark.parametrize("target", ["pods", "services", "10.112.7.9"])
@pytest.mark.parametrize("source", PEOPLE)
def test_laptops_and_sites_open_pages_of_pods(fleet: PodsFleet, source: str, target: str) -> None:
    """Web pages, and the ports that programs without privileges use by default."""
    for port in (80, 443, 3000, 6006, 8888, 9099):
        assert fleet.answers(source, target, "tcp", port), port


@pytest.mark.parametrize("port", [2379, 2380, 9100, 10250, 10257, 10259])
def test_ports_of_the_control_plane_stay_closed(fleet: PodsFleet, port: int) -> None:
    """A security group cannot tell a pod from its router, so ports of etcd and kubelet are closed at both."""
    for source in (name for name in PEOPLE if name.startswith("laptops")):
        assert not fleet.answers(source, "pods", "tcp", port)
        assert not fleet.answers(source, "control-1.us-west-2", "tcp", port)


def test_only_the_router_forwards(fleet: PodsFleet) -> None:
    """The other members keep AWS's check of source and destination."""
    members = {
        interface.name: interface.forwards
        for interface in fleet.fabric.interfaces.values()
        if "control" in interface.name
    }

    assert members == {"lab-control-1": True, "lab-control-2": False, "lab-control-3": False}


def test_the_resolver_at_home_asks_the_cluster(fleet: PodsFleet) -> None:
    """One rule for `pods.lab.internal`, and its endpoint reaches cluster DNS."""
    cluster = cluster_plan(LAB)
    assert cluster
    (rule,) = (entry for entry in fleet.entries if entry.type.endswith(":ResolverRule"))
    (endpoint,) = (
        entry
        for entry in fleet.entries
        if entry.type.endswith(":ResolverEndpoint") and entry.inputs["direction"] == "OUTBOUND"
    )
    assert rule.inputs["domainName"] == "pods.lab.internal"
    assert [target["ip"] for target in rule.inputs["targetIps"]] == [str(cluster.dns)]
    for block in endpoint.outputs["ipAddresses"]:
        for protocol in ("udp", "tcp"):
            packet = Packet(int(IPv4Address(block["ip"])), int(cluster.dns), protocol, 53)
            assert trip(fleet.fabric, packet).answered


@pytest.mark.parametrize(
    "plan",
    [
        replace(LAB, interconnect=Interconnect.PEERING),
        replace(LAB, interconnect=Interconnect.NONE),
        replace(LAB, laptops=(), sites=()),
        replace(LAB, control_plane=None),
    ],
    ids=["peering", "none", "nobody", "no cluster"],
)
def test_a_router_needs_a_path_and_people(plan: FleetPlan) -> None:
    """AWS routes a block that no VPC has over transit gateways only; without people nobody needs the router."""
    assert pods_router(plan) is None
    assert cluster_blocks(plan) == {}
    assert not any(domain.name == "cluster_pods" for domain in forwarded_domains(plan, plan.home))


def test_pods_are_no_source_of_packets() -> None:
    """Pods leave with the address of their node."""
    assert not {"pods", "services"} & {endpoint.name for endpoint in endpoints(LAB)}
