"""Fleets of every shape: every stack is made, runs again and goes, and the network carries what the plan intends.

One region, one with a site, peering, none between regions, regions joined by their gateways, no sites, two sites,
twelve regions, and the larger example.
"""

import re
from dataclasses import replace
from itertools import islice, permutations

import pytest

from bedplate.cli.stacks import judged, waves
from bedplate.graph.reach import Fabric, Packet, read_fabric, trip
from bedplate.plan import FleetPlan
from bedplate.plan.reachability import INTERNET, SSH, Flow, Kind, Spot, carries, reaches, refused_by_gateway, spots
from bedplate.rehearsal.kind import Support
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.rehearse import Phase
from bedplate.rehearsal.state import Op
from bedplate.report.rehearsal import next_line, outlook_lines
from tests.testlab.rehearsal.live import NAMES, graph_of, plan_named, report_of

Walked = tuple[FleetPlan, Fabric]


# All tests of a fleet run in one process; those of the lab on each push, all others at night.
_FLEETS = [
    pytest.param(name, marks=[pytest.mark.xdist_group(name), *([] if name == "lab" else [pytest.mark.nightly])])
    for name in NAMES
]


@pytest.fixture(scope="module", params=_FLEETS)
def fleet(request: pytest.FixtureRequest) -> str:
    """Give the name of each fleet in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def walked(fleet: str) -> Walked:
    """Give the plan of each fleet in turn, and the network that its stacks made."""
    return plan_named(fleet), read_fabric(graph_of(fleet))


def test_every_resource_is_made_and_a_second_run_changes_none(fleet: str) -> None:
    """Nothing is refused, and nothing differs from what was asked for."""
    report = report_of(fleet)

    expected = [stack.name for wave in waves(plan_named(fleet)) for stack in wave]
    assert [stack.name for stack in report.stacks] == expected
    for stack in report.stacks:
        made = stack.count(Phase.CREATE, Op.CREATE)
        assert not stack.failures
        assert made == sum(stack.types.values())
        assert made or stack.name.endswith(".links")
        assert (stack.count(Phase.AGAIN, Op.SAME), stack.changes(Phase.AGAIN)) == (made, ())


def test_all_goes_but_what_is_protected(fleet: str) -> None:
    """What stays is what holds data, and what that needs."""
    for stack in report_of(fleet).stacks:
        assert stack.count(Phase.DESTROY, Op.DELETE) + len(stack.kept) == stack.count(Phase.CREATE, Op.CREATE)


def test_what_is_faked_has_its_reason(fleet: str) -> None:
    """Whoever reads that a type is faked reads why; nearly nothing of a fleet is."""
    used = {token for stack in report_of(fleet).stacks for token in stack.types}
    faked = {token for token in used if KINDS[token].support is Support.FAKED}

    assert all(KINDS[token].note for token in faked)
    assert len(faked) <= len(used) / 10


def test_what_stacks_hold_keeps_every_rule(fleet: str) -> None:
    """However large the fleet is, and however its regions reach each other."""
    assert judged(report_of(fleet)) == ()


def test_an_operator_is_told_what_there_would_be(fleet: str) -> None:
    """Each region with its block, and the commands in the order in which they are run."""
    plan, report = plan_named(fleet), report_of(fleet)

    told = "\n".join(outlook_lines(plan, report))
    assert all(re.search(rf"{region.name} +{re.escape(str(region.block))} ", told) for region in plan.regions)
    assert next_line(plan, report).endswith(f"{plan.name}.links")


def clear(spot: Spot, fabric: Fabric) -> Spot:
    """Return a spot at an address that no interface bears, for AWS may draw any; one of a single machine is its own."""
    borne = {stand.address for stand in fabric.stands.values()}
    free = (address for address in islice(spot.block.hosts(), 9, None) if int(address) not in borne)
    return replace(spot, address=next(free, spot.address))


def over_aws(plan: FleetPlan, fabric: Fabric) -> list[tuple[Spot, Spot]]:
    """Return every two spots both ways, but for two of one site: those meet on its own LAN."""
    every = (*(clear(spot, fabric) for spot in spots(plan)), INTERNET)
    sites = {site.name for site in plan.sites}
    pairs = permutations(every, 2)
    return [(one, two) for one, two in pairs if not (one.place == two.place and one.place in sites)]


def packet(source: Spot, target: Spot, flow: Flow) -> Packet:
    """Return the first packet of a connection."""
    return Packet(int(source.address), int(target.address), flow.protocol, flow.port)


@pytest.mark.parametrize("flow", [SSH, Flow("tcp", 6443), Flow("udp", 53), Flow("udp", 8472), Flow("icmp", 0)], ids=str)
def test_every_pair_of_blocks_reaches_as_intended(flow: Flow, walked: Walked) -> None:
    """A connection comes about, with its answer, exactly where the plan says so.

    Or where a gateway has to refuse it by a packet filter of its own, which AWS knows nothing of (tests/vpn).
    """
    plan, fabric = walked

    wrong = []
    for source, target in over_aws(plan, fabric):
        found = trip(fabric, packet(source, target, flow))
        if found.answered != (reaches(plan, source, target, flow) or refused_by_gateway(plan, source, target)):
            wrong.append(f"{source.name} to {target.name}: {(found.back or found.out).end}")
    assert not wrong


def test_what_is_carried_gets_as_far_as_a_door(walked: Walked) -> None:
    """Where the network is to lead and a door is shut, it is the door that ends the packet, not a missing route."""
    plan, fabric = walked

    for source, target in over_aws(plan, fabric):
        if carries(plan, source, target) and Kind.EDGE is not source.kind:
            found = trip(fabric, packet(source, target, SSH)).out
            assert found.delivered or "security group" in found.end, (source.name, target.name, found.end)


def test_what_is_not_carried_ends_before_any_door_is_asked(walked: Walked) -> None:
    """No security group is all that stands between two blocks that nothing is to connect."""
    plan, fabric = walked

    for source, target in over_aws(plan, fabric):
        if not carries(plan, source, target) and Kind.EDGE is not source.kind:
            assert not trip(fabric, packet(source, target, SSH)).out.delivered
