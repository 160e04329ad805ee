"""What ties regions together: each pair by itself, so that a region that comes or goes touches only its own pairs."""

from collections.abc import Iterator, Mapping
from itertools import permutations

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.waves import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.beyond import transit_asn
from bedplate.plan.intent import Kind, spots
from bedplate.reach import Packet, read_fabric, walk
from bedplate.rehearsal import urn as urns
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World, run
from bedplate.rehearsal.step import Op
from tests.support.sketch import ZONES, laptops, sketch

FOURTH = {**ZONES, "ap-south-1": ("ap-south-1a",)}
NOTHING = Record({})
_WAYS = {"transitGatewayId", "vpcPeeringConnectionId", "networkInterfaceId"}
GATEWAY = {"public_ip": "198.51.100.9", "private_ip": "10.67.0.9", "interface_id": "eni-9", "group_id": "sg-9"}


def plan_of(regions: Mapping[str, tuple[str, ...]], interconnect: str, record: Record = NOTHING) -> FleetPlan:
    """Return the plan of a fleet of those regions; without AWS's links, each has a gateway that joins it to others."""
    gateways = {"vpn": laptops(*({"region": name} for name in regions))} if interconnect == "none" else {}
    fleet = sketch(regions, network={"interconnect": interconnect}, **gateways)
    return plan_fleet(fleet, record, load_catalog())


@pytest.fixture(scope="module", params=["transit", "peering", "none"])
def linked(request: pytest.FixtureRequest) -> Iterator[tuple[FleetPlan, World]]:
    """Give three regions and the links between them, as they exist."""
    plan = plan_of(ZONES, request.param)
    with running(plan.account) as simulation:
        world = World(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        yield plan, world


def test_a_second_run_changes_nothing(linked: tuple[FleetPlan, World]) -> None:
    """Peerings, options and routes are in AWS what the program declares."""
    plan, world = linked

    steps = [step for wave in waves(plan) for stack in wave for step in run(stack, world, preview=True).steps]

    assert not [step.urn for step in steps if step.is_change]


def test_every_two_regions_are_led_to_each_other(linked: tuple[FleetPlan, World]) -> None:
    """However they are tied together: what answers a connection gets from every node subnet to every other."""
    plan, world = linked
    entries = (entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values())
    fabric = read_fabric(graph(entries))
    nodes = [int(spot.address) for spot in spots(plan) if spot.kind is Kind.NODES]

    answers = [walk(fabric, Packet(*pair).reply) for pair in permutations(nodes, 2)]

    assert [each.end for each in answers if not each.delivered] == []


def test_a_fourth_region_touches_no_link_of_the_other_three(linked: tuple[FleetPlan, World]) -> None:
    """It brings its own pairs and everybody's routes to it; nothing is updated, replaced or deleted."""
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
    assert all("ap-south-1" in urns.parse(step.urn).name for step in steps)


def test_a_region_that_goes_takes_only_its_own_links(linked: tuple[FleetPlan, World]) -> None:
    """The link between the two that stay, and the two themselves, are as they were but for routes to it."""
    plan, world = linked
    left = plan_of({name: ZONES[name] for name in list(ZONES)[:2]}, plan.interconnect.value, plan.recorded())
    gone = list(ZONES)[2]

    changes = [
        step
        for wave in waves(left)[1:]
        for stack in wave
        for step in run(stack, world, preview=True).steps
        if step.is_change and step.is_in_cloud
    ]

    assert {step.op for step in changes} == {Op.DELETE}
    assert all(gone in urns.parse(step.urn).name for step in changes)


def test_numbers_of_transit_gateways_follow_from_blocks_alone() -> None:
    """Each region has its own number, and keeps it whoever else is there."""
    three, four = plan_of(ZONES, "transit"), plan_of(FOURTH, "transit")
    numbers = {region.name: transit_asn(region) for region in four.regions}

    assert len(set(numbers.values())) == 4
    assert {region.name: transit_asn(region) for region in three.regions}.items() <= numbers.items()


def test_no_route_leads_further_than_the_fleet(linked: tuple[FleetPlan, World]) -> None:
    """Each table leads to the other regions' blocks, to its own, to the internet where it should, and nowhere else."""
    plan, world = linked
    blocks = {
        str(block) for block in (*(region.block for region in plan.regions), *(one.block for one in plan.laptops))
    }
    entries = [entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values()]
    lone = [entry.inputs for entry in entries if entry.type == "aws:ec2/route:Route"]

    beyond = [one["destinationCidrBlock"] for one in lone if one.keys() & _WAYS]
    inside = [entry.inputs for entry in entries if entry.type == "aws:ec2transitgateway/route:Route"]

    # Gateways lead to both blocks behind each other one, and to the pool behind themselves.
    assert len(beyond) == 3 * 4 * (5 if plan.laptops else 2)
    assert {*beyond, *(one["destinationCidrBlock"] for one in inside)} == blocks
    assert {one["destinationCidrBlock"] for one in lone} == {*blocks, "0.0.0.0/0"}
