"""Tests of whole rehearsals of fleets of several shapes, and of their networks against the reachability policy.

One region, one with a site, VPC peering, unconnected regions, regions connected by their gateways, no sites, two
sites, twelve regions, and the larger example.
"""

import re
from dataclasses import replace
from itertools import islice, permutations, product

import pytest

from bedplate.graph.reach import Fabric, Packet, read_fabric, trip
from bedplate.operate.rehearsal import audit_report, waves
from bedplate.plan import FleetPlan
from bedplate.plan.reachability import INTERNET, SSH, Endpoint, EndpointKind, Flow, endpoints, is_routed, pod_endpoints
from bedplate.rehearsal.kind import Support
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.rehearse import Phase
from bedplate.rehearsal.state import Op
from bedplate.report.rehearsal import outlook_lines
from tests.testlab.fleets.policy import is_reachable, is_refused_by_gateway
from tests.testlab.rehearsal.live import NAMES, graph_of, plan_named, report_of

Network = tuple[FleetPlan, Fabric]


# All tests of a fleet run in one process: the lab on each push, the others at night.
_FLEETS = [
    pytest.param(name, marks=[pytest.mark.xdist_group(name), *([] if name == "lab" else [pytest.mark.nightly])])
    for name in NAMES
]


@pytest.fixture(scope="module", params=_FLEETS)
def fleet(request: pytest.FixtureRequest) -> str:
    """Return the name of each fleet in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def network(fleet: str) -> Network:
    """Return the plan of each fleet in turn, and the network of its stacks."""
    return plan_named(fleet), read_fabric(graph_of(fleet))


def test_all_resources_are_created_and_a_second_run_changes_none(fleet: str) -> None:
    """No resource fails, and a second run takes only `same` steps."""
    report = report_of(fleet)

    expected = [stack.name for wave in waves(plan_named(fleet)) for stack in wave]
    assert [stack.name for stack in report.stacks] == expected
    for stack in report.stacks:
        created = stack.count(Phase.CREATE, Op.CREATE)
        assert not stack.failures
        assert created == sum(stack.types.values())
        assert created
        assert (stack.count(Phase.AGAIN, Op.SAME), stack.changes(Phase.AGAIN)) == (created, ())


def test_destroy_keeps_only_protected_resources(fleet: str) -> None:
    """Destroy keeps resources with data and their requirements."""
    for stack in report_of(fleet).stacks:
        assert stack.count(Phase.DESTROY, Op.DELETE) + len(stack.kept) == stack.count(Phase.CREATE, Op.CREATE)


def test_faked_types_have_a_reason(fleet: str) -> None:
    """Each faked type has a note, and at most a tenth of the types of a fleet is faked."""
    used = {token for stack in report_of(fleet).stacks for token in stack.types}
    faked = {token for token in used if KINDS[token].support is Support.FAKED}

    assert all(KINDS[token].note for token in faked)
    assert len(faked) <= len(used) / 10


def test_stacks_violate_no_rule(fleet: str) -> None:
    """The checks of stacks find nothing in any of the fleets."""
    assert audit_report(report_of(fleet)) == ()


def test_the_report_lists_regions_and_commands(fleet: str) -> None:
    """The report lists each region with its block."""
    plan, report = plan_named(fleet), report_of(fleet)

    text = "\n".join(outlook_lines(plan, report))
    assert all(re.search(rf"{region.name} +{re.escape(str(region.block))} ", text) for region in plan.regions)


def unused_address(spot: Endpoint, fabric: Fabric) -> Endpoint:
    """Return a spot with an address that no interface has; a spot of a single machine keeps its own."""
    used = {interface.address for interface in fabric.interfaces.values()}
    free = (address for address in islice(spot.block.hosts(), 9, None) if int(address) not in used)
    return replace(spot, address=next(free, spot.address))


def pairs_over_aws(plan: FleetPlan, fabric: Fabric) -> list[tuple[Endpoint, Endpoint]]:
    """Return all ordered pairs of spots, and each spot with each block of the cluster as target.

    Without pairs of one site: those connect on its LAN.
    """
    all_spots = (*(unused_address(spot, fabric) for spot in endpoints(plan)), INTERNET)
    sites = {site.name for site in plan.sites}
    pairs = (*permutations(all_spots, 2), *product(all_spots, pod_endpoints(plan)))
    return [
        (source, target) for source, target in pairs if not (source.place == target.place and source.place in sites)
    ]


def packet(source: Endpoint, target: Endpoint, flow: Flow) -> Packet:
    """Return the first packet of a connection."""
    return Packet(int(source.address), int(target.address), flow.protocol, flow.port)


@pytest.mark.parametrize(
    "flow", [SSH, Flow("tcp", 6006), Flow("tcp", 6443), Flow("udp", 53), Flow("udp", 8472), Flow("icmp", 0)], ids=str
)
def test_reachability_is_that_of_the_policy(flow: Flow, network: Network) -> None:
    """A connection and its answer pass exactly where the policy allows it.

    Or where only the packet filter of a gateway refuses it, which is not part of AWS (tests/vpn).
    """
    plan, fabric = network

    wrong = []
    for source, target in pairs_over_aws(plan, fabric):
        walk = trip(fabric, packet(source, target, flow))
        if walk.answered != (
            is_reachable(plan, source, target, flow) or is_refused_by_gateway(plan, source, target, flow)
        ):
            wrong.append(f"{source.name} to {target.name}: {(walk.back or walk.out).end}")
    assert not wrong


def test_connected_blocks_are_separated_by_security_groups_only(network: Network) -> None:
    """Between connected blocks, a refused packet ends at a security group and not at a missing route."""
    plan, fabric = network

    for source, target in pairs_over_aws(plan, fabric):
        if is_routed(plan, source, target) and EndpointKind.EDGE is not source.kind:
            walk = trip(fabric, packet(source, target, SSH)).out
            assert walk.delivered or "security group" in walk.end, (source.name, target.name, walk.end)


def test_unconnected_blocks_have_no_route(network: Network) -> None:
    """Between unconnected blocks, the packet ends without the help of a security group."""
    plan, fabric = network

    for source, target in pairs_over_aws(plan, fabric):
        if not is_routed(plan, source, target) and EndpointKind.EDGE is not source.kind:
            assert not trip(fabric, packet(source, target, SSH)).out.delivered
