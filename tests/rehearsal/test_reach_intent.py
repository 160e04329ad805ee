"""The networks that stacks make carry what the plan intends, and let in nothing else: walked packet by packet."""

from itertools import permutations

import pytest

from bedplate.plan import FleetPlan
from bedplate.plan.intent import INTERNET, SSH, Flow, Kind, Spot, carries, reaches, spots
from bedplate.reach import Fabric, Packet, read_fabric, trip
from tests.support.reached import NAMES, graph_of, plan_named

Walked = tuple[FleetPlan, Fabric]


@pytest.fixture(scope="module", params=NAMES)
def walked(request: pytest.FixtureRequest) -> Walked:
    """Give the plan of each fleet in turn, and the network that its stacks made."""
    return plan_named(request.param), read_fabric(graph_of(request.param))


def over_aws(plan: FleetPlan) -> list[tuple[Spot, Spot]]:
    """Return every two spots both ways, but for two of one site: those meet on its own LAN."""
    every = (*spots(plan), INTERNET)
    sites = {site.name for site in plan.sites}
    pairs = permutations(every, 2)
    return [(one, two) for one, two in pairs if not (one.place == two.place and one.place in sites)]


def packet(source: Spot, target: Spot, flow: Flow) -> Packet:
    """Return the first packet of a connection."""
    return Packet(int(source.address), int(target.address), flow.protocol, flow.port)


@pytest.mark.parametrize("flow", [SSH, Flow("tcp", 6443), Flow("udp", 53), Flow("icmp", 0)], ids=str)
def test_every_pair_of_blocks_reaches_as_intended(flow: Flow, walked: Walked) -> None:
    """A connection comes about, with its answer, exactly where the plan says so."""
    plan, fabric = walked

    wrong = []
    for source, target in over_aws(plan):
        found = trip(fabric, packet(source, target, flow))
        if found.answered != reaches(plan, source, target, flow):
            wrong.append(f"{source.name} to {target.name}: {(found.back or found.out).end}")
    assert not wrong


def test_what_is_carried_gets_as_far_as_a_door(walked: Walked) -> None:
    """Where the network is to lead and a door is shut, it is the door that ends the packet, not a missing route."""
    plan, fabric = walked

    for source, target in over_aws(plan):
        if carries(plan, source, target) and Kind.EDGE is not source.kind:
            found = trip(fabric, packet(source, target, SSH)).out
            assert found.delivered or "security group" in found.end, (source.name, target.name, found.end)


def test_what_is_not_carried_ends_before_any_door_is_asked(walked: Walked) -> None:
    """No security group is all that stands between two blocks that nothing is to connect."""
    plan, fabric = walked

    for source, target in over_aws(plan):
        if not carries(plan, source, target) and Kind.EDGE is not source.kind:
            assert not trip(fabric, packet(source, target, SSH)).out.delivered
