"""Where NAT gateways stand, and who is let in."""

from dataclasses import replace

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.door import control_rules, node_rules, storage_rules
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.network import Egress, Interconnect
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


def test_rules_have_names_of_their_own(plan: FleetPlan) -> None:
    """A laptop pool at a site and the site's LAN are two rules."""
    for rules in (node_rules(plan, plan.home), storage_rules(plan, plan.home), control_rules(plan)):
        names = [rule.name for rule in rules]

        assert len(set(names)) == len(names)
