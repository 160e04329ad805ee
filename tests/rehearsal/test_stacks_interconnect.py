"""Connections between regions: every pair is independent, so a new or removed region changes only its own pairs."""

from collections.abc import Iterator, Mapping
from itertools import permutations

import pytest

from bedplate.catalog import load_catalog
from bedplate.graph.reach import Packet, read_fabric, walk
from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.links import transit_asn
from bedplate.plan.reachability import EndpointKind, endpoints
from bedplate.rehearsal import state as urns
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, graph, run
from bedplate.rehearsal.state import Op
from tests.testlab.fleets.sketch import ZONES, laptops, sketch

FOURTH = {**ZONES, "ap-south-1": ("ap-south-1a",)}
NOTHING = Record({})
_WAYS = {"transitGatewayId", "vpcPeeringConnectionId", "networkInterfaceId"}
GATEWAY = {"public_ip": "198.51.100.9", "private_ip": "10.67.0.9", "interface_id": "eni-9", "group_id": "sg-9"}


def plan_of(regions: Mapping[str, tuple[str, ...]], interconnect: str, record: Record = NOTHING) -> FleetPlan:
    """Return the plan of a fleet in these regions; without an interconnect, VPN gateways connect them."""
    gateways = {"vpn": laptops(*({"region": name} for name in regions))} if interconnect == "none" else {}
    fleet = sketch(regions, network={"interconnect": interconnect}, **gateways)
    return plan_fleet(fleet, record, load_catalog())


@pytest.fixture(scope="module", params=["transit", "peering", "none"])
def linked(request: pytest.FixtureRequest) -> Iterator[tuple[FleetPlan, SharedState]]:
    """Return a deployed fleet of three regions, for each interconnect."""
    plan = plan_of(ZONES, request.param)
    with running(plan.account) as simulation:
        world = SharedState(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        yield plan, world


def test_a_second_run_changes_nothing(linked: tuple[FleetPlan, SharedState]) -> None:
    """Peerings, options and routes in AWS match the program."""
    plan, world = linked

    steps = [step for wave in waves(plan) for stack in wave for step in run(stack, world, preview=True).steps]

    assert not [step.urn for step in steps if step.is_change]


def test_all_pairs_of_regions_reach_each_other(linked: tuple[FleetPlan, SharedState]) -> None:
    """Replies reach every node subnet from every other, with each interconnect."""
    plan, world = linked
    entries = (entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values())
    fabric = read_fabric(graph(entries))
    nodes = [int(spot.address) for spot in endpoints(plan) if spot.kind is EndpointKind.NODES]

    answers = [walk(fabric, Packet(*pair).reply) for pair in permutations(nodes, 2)]

    assert [answer.end for answer in answers if not answer.delivered] == []


def test_a_fourth_region_changes_no_existing_link(linked: tuple[FleetPlan, SharedState]) -> None:
    """Its pairs and the routes to it are created; nothing is updated, replaced or deleted."""
    plan, world = linked
    grown = plan_of(FOURTH, plan.interconnect.value, plan.recorded())
    world.exports |= {
        stack.full_name: {"vpc_id": "vpc-9", "transit_gateway_id": "tgw-9", "transit_table_id": "tgw-rtb-9"}
        | {"edge_table_id": "rtb-9", "node_table_ids": {"ap-south-1a": "rtb-8"}, "laptop_gateway": GATEWAY}
        for wave in waves(grown, ["ap-south-1"])
        for stack in wave
        if stack.name == "lab.ap-south-1"
    }
    links = next(stack for stack in waves(grown)[-1] if stack.name == "lab.links")

    steps = [step for step in run(links, world, preview=True).steps if step.is_change and step.is_in_cloud]

    assert steps
    assert {step.op for step in steps} == {Op.CREATE}
    assert all("ap-south-1" in urns.parse_urn(step.urn).name for step in steps)


def test_a_removed_region_removes_only_its_own_links(linked: tuple[FleetPlan, SharedState]) -> None:
    """The other regions and their link keep everything except routes to the removed region."""
    plan, world = linked
    remaining = plan_of({name: ZONES[name] for name in list(ZONES)[:2]}, plan.interconnect.value, plan.recorded())
    removed = list(ZONES)[2]

    changes = [
        step
        for wave in waves(remaining)[1:]
        for stack in wave
        for step in run(stack, world, preview=True).steps
        if step.is_change and step.is_in_cloud
    ]

    assert {step.op for step in changes} == {Op.DELETE}
    assert all(removed in urns.parse_urn(step.urn).name for step in changes)


def test_as_numbers_of_transit_gateways_depend_only_on_blocks() -> None:
    """Each region has a unique AS number, which other regions do not change."""
    three, four = plan_of(ZONES, "transit"), plan_of(FOURTH, "transit")
    numbers = {region.name: transit_asn(region) for region in four.regions}

    assert len(set(numbers.values())) == 4
    assert {region.name: transit_asn(region) for region in three.regions}.items() <= numbers.items()


def test_routes_lead_only_to_the_fleet_and_the_internet(linked: tuple[FleetPlan, SharedState]) -> None:
    """Route tables contain the blocks of the fleet and the default route, nothing else."""
    plan, world = linked
    blocks = {
        str(block) for block in (*(region.block for region in plan.regions), *(item.block for item in plan.laptops))
    }
    entries = [entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values()]
    routes = [entry.inputs for entry in entries if entry.type == "aws:ec2/route:Route"]

    remote = [item["destinationCidrBlock"] for item in routes if item.keys() & _WAYS]
    transit_routes = [entry.inputs for entry in entries if entry.type == "aws:ec2transitgateway/route:Route"]

    # Gateways route both blocks of each other region, and their own laptop pool.
    assert len(remote) == 3 * 4 * (5 if plan.laptops else 2)
    assert {*remote, *(item["destinationCidrBlock"] for item in transit_routes)} == blocks
    assert {item["destinationCidrBlock"] for item in routes} == {*blocks, "0.0.0.0/0"}
