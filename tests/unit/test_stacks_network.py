"""Where NAT gateways stand, and who is let in."""

from dataclasses import replace

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.door import WORKER_PORTS, control_rules, node_rules, storage_rules
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.network import Egress, Interconnect
from bedplate.spec.site import Use
from stacks.egress import gateway_zones
from tests.support.declared import EXAMPLES, plan_of
from tests.support.sketch import sketch

REGION = plan_fleet(sketch(), Record({}), load_catalog()).home


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Give the plan of the larger example."""
    return plan_of(EXAMPLES / "lab.yaml")


@pytest.mark.parametrize(
    ("egress", "gateways"),
    [
        (Egress.SHARED, {"us-west-2a"}),
        (Egress.PER_ZONE, {"us-west-2a", "us-west-2b", "us-west-2c"}),
        (Egress.NONE, set()),
    ],
)
def test_egress_says_how_many_gateways_a_region_pays(egress: Egress, gateways: set[str]) -> None:
    """One, one a zone, or none."""
    assert set(gateway_zones(egress, REGION).values()) == gateways


def test_the_shared_gateway_stays_when_zones_are_listed_otherwise() -> None:
    """It stands in the zone that was allotted first, wherever the file lists it."""
    turned = replace(REGION, zones=REGION.zones[::-1])

    assert set(gateway_zones(Egress.SHARED, turned).values()) == {"us-west-2a"}


def test_people_log_in_from_laptops_and_sites_alone(plan: FleetPlan) -> None:
    """Every rule of the nodes' group that names a port opens SSH, to a pool or a LAN."""
    blocks = {pool.block for pool in plan.laptops} | {site.lan for site in plan.sites}

    rules = {(rule.port, rule.block) for rule in node_rules(plan, plan.home) if rule.port is not None}

    assert rules == {(22, block) for block in blocks}


def test_nodes_of_other_regions_are_let_in_whole_and_edges_are_not(plan: FleetPlan) -> None:
    """All blocks from which nodes get addresses, and none where gateways stand."""
    others = [region for region in plan.regions if not region.home]
    let_in = tuple(rule.block for rule in node_rules(plan, plan.home) if rule.port is None)

    for zone in (zone for region in others for zone in region.zones):
        assert any(zone.nodes.subnet_of(block) for block in let_in)
        assert not any(zone.edge.overlaps(block) for block in let_in)
    assert not any(plan.home.block.overlaps(block) for block in let_in)


def test_regions_that_nothing_connects_let_no_foreign_nodes_in(plan: FleetPlan) -> None:
    """With `interconnect: none` an address of another region's block is a stranger's."""
    alone = replace(plan, interconnect=Interconnect.NONE)

    assert all(rule.port is not None for rule in node_rules(alone, alone.home))


def test_storage_admits_nodes_of_other_regions_and_no_edge(plan: FleetPlan) -> None:
    """NFS is open to all blocks of nodes; an edge subnet of any region is in none of them."""
    for region in plan.regions:
        rules = storage_rules(plan, region)

        assert {(rule.protocol, rule.port) for rule in rules} == {("tcp", 2049)}
        for other in plan.regions:
            for zone in other.zones:
                assert any(zone.nodes.subnet_of(rule.block) for rule in rules) is (other is not region)
                assert not any(zone.edge.overlaps(rule.block) for rule in rules)


def test_workers_of_every_place_reach_the_control_plane(plan: FleetPlan) -> None:
    """VXLAN and the kubelet's port are open to other regions and to sites, where these have workers; to no edge."""
    rules = control_rules(plan)

    for _, protocol, port in WORKER_PORTS:
        blocks = [rule.block for rule in rules if (rule.protocol, rule.port) == (protocol, port)]
        for zone in (zone for region in plan.regions if not region.home for zone in region.zones):
            assert any(zone.nodes.subnet_of(block) for block in blocks)
            assert not any(zone.edge.overlaps(block) for block in blocks)
        assert [site.lan for site in plan.sites if site.lan in blocks] == [site.lan for site in plan.sites]


def test_places_without_workers_reach_no_worker_port(plan: FleetPlan) -> None:
    """A region of workbenches, or a site without a worker, needs neither port."""
    benches = tuple(pool for pool in plan.pools if pool.use is Use.SSH)
    sites = tuple(replace(site, uses=dict.fromkeys(site.uses, Use.SSH)) for site in plan.sites)

    rules = control_rules(replace(plan, pools=benches, sites=sites))

    assert not {rule.port for rule in rules} & {port for _, _, port in WORKER_PORTS}


def test_rules_have_names_of_their_own(plan: FleetPlan) -> None:
    """A laptop pool at a site and the site's LAN are two rules."""
    for rules in (node_rules(plan, plan.home), storage_rules(plan, plan.home), control_rules(plan)):
        names = [rule.name for rule in rules]

        assert len(set(names)) == len(names)
