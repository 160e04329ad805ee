"""Regions that their own gateways join: which, what each leads to, and who says so."""

import pytest

from bedplate.plan import Record
from bedplate.plan.door import control_rules, node_rules
from bedplate.plan.intent import API, Kind, Spot, carries, reaches, refused_by_gateway, spots
from bedplate.plan.joint import is_led, joined_regions, joint_of, peers_of
from bedplate.plan.node import Duty
from bedplate.plan.nodes import standing_nodes
from tests.support.joined_fleet import ALONE, NORTH, PUBLIC, TEXT, WEST, joined_plan

PLAN = joined_plan()
ONE = joined_plan(text=TEXT.replace(", {region: eu-north-1}]", "]"))
_CLUSTER = 'kubernetes: {version: "1.36", control_plane: {type: m7i.xlarge}}\n'


def _spot(name: str) -> Spot:
    return next(spot for spot in spots(PLAN) if spot.name == name)


def test_regions_with_a_gateway_are_joined() -> None:
    """Every two of them, and no other; one gateway alone joins nothing."""
    assert joined_regions(PLAN) == (WEST, NORTH)
    assert joined_regions(ONE) == ()
    assert [(one, is_led(PLAN, WEST, one)) for one in (NORTH, ALONE)] == [(NORTH, True), (ALONE, False)]
    assert not is_led(ONE, WEST, NORTH)


@pytest.mark.parametrize("interconnect", ["transit", "peering"])
def test_where_aws_joins_regions_gateways_do_not(interconnect: str) -> None:
    """There is one way between two regions, and no gateway has another's doors."""
    plan = joined_plan(text=TEXT.replace("interconnect: none", f"interconnect: {interconnect}"))

    assert joined_regions(plan) == ()
    assert is_led(plan, WEST, ALONE)
    assert not [node for node in standing_nodes(plan) if Duty.JOINT in node.duties]


def test_a_peer_is_told_by_what_lies_behind_it() -> None:
    """Its recorded address, its region's block, its laptops' pool, and an address of its own that answers."""
    (peer,) = peers_of(PLAN, WEST)

    assert (peer.region, peer.public) == (NORTH, PUBLIC[NORTH])
    assert peer.blocks == (PLAN.region(NORTH).block, PLAN.blocks[f"pool/{NORTH}"])
    assert peer.echo in PLAN.blocks[f"pool/{NORTH}"]
    assert peers_of(PLAN, ALONE) == ()
    with pytest.raises(KeyError):
        joint_of(PLAN, ALONE)


def test_an_address_that_is_not_recorded_is_not_made_up() -> None:
    """The plan of a fleet that was never deployed knows its peers, and not where they are dialled."""
    assert [peer.public for peer in peers_of(joined_plan(Record({})), WEST)] == [None]


def test_a_joined_gateway_leads_to_its_peers_blocks_alone() -> None:
    """It is the machine that the guard is for, and lets IKE in; ESP comes within UDP to a translated address."""
    node = next(node for node in standing_nodes(PLAN) if node.name == f"laptops.{WEST}")

    assert node.duties == {Duty.LAPTOPS, Duty.JOINT}
    assert node.elsewhere == peers_of(PLAN, WEST)[0].blocks
    assert {"ike-500", "ike-4500"} <= {rule.name for rule in node.doors}
    assert "esp" not in {rule.name for rule in node.doors}
    lone = next(node for node in standing_nodes(ONE) if node.name == f"laptops.{WEST}")
    assert lone.duties == {Duty.LAPTOPS}
    assert not lone.elsewhere
    assert not [rule for rule in lone.doors if rule.name.startswith("ike")]


def test_doors_know_the_nodes_that_come_over_tunnels() -> None:
    """Of joined regions, and of no other; the API server too."""
    plan = joined_plan(text=TEXT + _CLUSTER)

    for rules in (node_rules(plan, plan.home), control_rules(plan)):
        names = [rule.name for rule in rules if "-from-nodes-" in rule.name]
        assert names
        assert all(NORTH in name for name in names)
    assert not [rule for rule in node_rules(plan, plan.region(ALONE)) if "-from-nodes-" in rule.name]


def test_what_gateways_carry_is_intended() -> None:
    """Nodes and laptops reach nodes of joined regions; nothing reaches a region that stays alone."""
    west, north, alone = (_spot(f"{region}a/nodes") for region in (WEST, NORTH, ALONE))
    laptop = _spot(f"laptops.{WEST}")

    assert all(reaches(PLAN, *pair) for pair in ((west, north), (north, west), (laptop, north)))
    assert not any(carries(PLAN, *pair) for pair in ((west, alone), (alone, north), (laptop, alone)))
    assert not reaches(PLAN, laptop, north, API)


def test_laptops_reach_each_other_where_the_file_asks_for_it() -> None:
    """Nobody else reaches one, and no laptop does where it is not asked for."""
    plan = joined_plan(text=TEXT.replace("pool: /22", "pool: /22, between: true"))
    node, one, other = (_spot(name) for name in (f"{WEST}a/nodes", f"laptops.{WEST}", f"laptops.{NORTH}"))

    assert reaches(plan, one, other)
    assert not refused_by_gateway(plan, one, other)
    assert not reaches(plan, node, other)
    assert refused_by_gateway(plan, node, other)
    assert not reaches(PLAN, one, other)


def test_laptops_are_guarded_by_their_gateway_where_no_security_group_can() -> None:
    """Whoever sends by a gateway gets as far as its filter, which lets nobody through to a laptop."""
    laptops = [spot for spot in spots(PLAN) if spot.kind is Kind.LAPTOPS]
    assert len(laptops) == 2

    for target in laptops:
        assert refused_by_gateway(PLAN, _spot(f"{NORTH}a/nodes"), target)
        assert not refused_by_gateway(PLAN, _spot(f"{ALONE}a/nodes"), target)
        assert not refused_by_gateway(PLAN, _spot(f"{NORTH}a/edge"), target)
        assert not any(reaches(PLAN, source, target) for source in spots(PLAN))
