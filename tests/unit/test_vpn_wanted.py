"""What a gateway is to have: read from the plan, whatever the gateway itself knows of."""

from dataclasses import replace

from bedplate.plan.node import Duty
from bedplate.plan.nodes import standing_nodes
from bedplate.spec.network import Interconnect
from tests.support.direct_fleet import ATTIC, CELLAR, direct_gateway, direct_plan, site_of
from tests.support.joined_fleet import NORTH, WEST, gateway_of, joined_plan
from tests.support.nodes import lab_node
from tests.support.site_side import LAB, cellar
from vpn.wanted import WantedTunnel, wanted

GATE = lab_node("gate.cellar")


def test_a_site_is_to_have_the_tunnels_that_it_is_brought() -> None:
    """By the same names: whichever a gateway lacks is told by its own."""
    found = wanted(LAB, GATE, 7)

    assert [each.name for each in found.tunnels] == [each.name for each in cellar().tunnels]
    assert found.number == 7


def test_a_transit_gateway_is_to_tell_of_its_region_and_its_laptops() -> None:
    """A tunnel to a region that has no laptops' gateway tells of the region alone."""
    told = {each.name: [str(block) for block in each.tells] for each in wanted(LAB, GATE, 7).tunnels}

    assert told["us-west-2-1"] == told["us-west-2-2"] == ["10.64.0.0/16", "10.121.0.0/22"]
    assert told["us-east-1-1"] == ["10.65.0.0/16"]


def test_other_sites_are_to_be_told_of_by_any_tunnel() -> None:
    """Each transit gateway leads to them all: one that tells is enough."""
    attic = replace(LAB.sites[0], name="attic", lan=LAB.regions[0].zones[0].edge)

    assert wanted(LAB, GATE, 7).elsewhere == ()
    assert wanted(replace(LAB, sites=(*LAB.sites, attic)), GATE, 7).elsewhere == (attic.lan,)


def test_joined_sites_are_to_tell_each_other_of_themselves() -> None:
    """By a tunnel of the name that the gateway is brought, beside those to regions."""
    plan = direct_plan()
    (node,) = (each for each in standing_nodes(plan) if each.name == f"gate.{CELLAR}")

    found = wanted(plan, node, None).tunnels

    assert [each.name for each in found] == [each.name for each in direct_gateway(plan, CELLAR).tunnels]
    assert found[-1] == WantedTunnel(f"{ATTIC}-site", (site_of(plan, ATTIC).lan,))


def test_a_virtual_private_gateway_is_to_tell_of_its_vpc_alone() -> None:
    """What a table of the VPC leads to, it does not tell."""
    found = wanted(replace(LAB, interconnect=Interconnect.NONE), GATE, 7)

    assert found.tunnels[0] == WantedTunnel("us-west-2-1", (LAB.home.block,))
    assert found.elsewhere == ()


def test_a_joined_region_is_to_have_a_tunnel_to_each_other_and_no_bgp() -> None:
    """The names are those that its gateway is brought; a gateway of laptops alone has none."""
    (node,) = (each for each in standing_nodes(joined_plan()) if each.name == f"laptops.{WEST}")

    found = wanted(joined_plan(), node, None)

    assert found.tunnels == (WantedTunnel(NORTH),)
    assert [each.name for each in gateway_of(WEST).tunnels] == [NORTH]
    assert wanted(joined_plan(), replace(node, duties=frozenset({Duty.LAPTOPS})), 1).tunnels == ()
