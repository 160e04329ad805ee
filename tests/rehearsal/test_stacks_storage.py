"""Who reaches a file system's mount targets: nodes, and no machine that faces the internet."""

from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.audit.document import graph_of
from bedplate.audit.run import audit
from bedplate.catalog import load_catalog
from bedplate.cli.waves import waves
from bedplate.plan import Record, plan_fleet
from bedplate.plan.intent import Kind, spots
from bedplate.reach import Fabric, Packet, read_fabric, trip
from bedplate.reach.stand import Stand
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World, run
from tests.support.sketch import ZONES, cluster, group, laptops, sketch

WEST, EAST = "us-west-2", "us-east-1"
PLAN = plan_fleet(
    sketch(
        {name: ZONES[name][:1] for name in (WEST, EAST)},
        groups={"box": group({"region": WEST}, {"region": EAST}, types=("m7i.xlarge",))},
        storage={"home": {"kind": "efs", "region": WEST, "mount": "/home"}},
        vpn=laptops({"region": WEST}),
        kubernetes=cluster(),
    ),
    Record({}),
    load_catalog(),
)
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
Graph = list[Mapping[str, Any]]


@pytest.fixture(scope="module")
def made() -> Graph:
    """Give the resources of all stacks, as they exist in the simulated AWS."""
    with running(PLAN.account) as simulation:
        world = World(simulation)
        assert not [failure for wave in waves(PLAN) for stack in wave for failure in run(stack, world).failures]
        return [node for snapshot in world.snapshots.values() for node in graph(snapshot.entries.values())]


@pytest.fixture(scope="module")
def fabric(made: Graph) -> Fabric:
    """Give the network of these resources."""
    return read_fabric(made)


def target_of(fabric: Fabric) -> Stand:
    """Return the mount target."""
    (target,) = (stand for stand in fabric.stands.values() if stand.name == "lab-home-us-west-2a")
    return target


def mount_from(fabric: Fabric, source: int) -> Packet:
    """Return the first packet of a client of NFS."""
    return Packet(source, target_of(fabric).address or 0, "tcp", 2049)


def test_nodes_of_every_region_mount(fabric: Fabric) -> None:
    """From any subnet of nodes, NFS to the mount target is answered."""
    for spot in (spot for spot in spots(PLAN) if spot.kind is Kind.NODES):
        found = trip(fabric, mount_from(fabric, int(spot.address)))

        assert found.answered, (spot.name, found.out.end)


def test_edge_and_control_plane_do_not(fabric: Fabric) -> None:
    """The laptops' gateway, members of the control plane, and any address of an edge subnet are refused."""
    machines = [each for each in fabric.stands.values() if each.name in ("lab-laptops", "lab-control-1")]
    edges = [int(spot.address) for spot in spots(PLAN) if spot.kind is Kind.EDGE]
    assert (len(machines), len(edges)) == (2, 2)

    for source in (each.address or 0 for each in machines):
        end = trip(fabric, mount_from(fabric, source)).out.end
        assert end == "no security group of lab-home-us-west-2a in lab-us-west-2a-nodes lets it in"
    for source in edges:
        assert not fabric.lets_in(target_of(fabric), mount_from(fabric, source))


def test_the_audit_finds_an_edge_that_mounts(made: Graph) -> None:
    """The stacks break no rule; a rule for the whole region's block breaks S403."""
    wide = {"ipProtocol": "tcp", "fromPort": 2049, "toPort": 2049, "cidrIpv4": str(PLAN.home.block)}
    (storage,) = (str(node["id"]) for node in made if node["urn"].endswith("::lab-storage"))
    planted = {"urn": "planted", "type": INGRESS, "id": "sgr-0", "inputs": {**wide, "securityGroupId": storage}}

    assert not [fault for fault in audit(graph_of(made, "here")) if fault.code == "S403"]
    found = [fault for fault in audit(graph_of([*made, planted], "here")) if fault.code == "S403"]
    assert [fault.urn for fault in found] == ["planted"]
