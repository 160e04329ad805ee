"""Sites that their gateways join without AWS: which, inside which block, who dials, and who says so."""

from ipaddress import IPv4Address, IPv4Network

from bedplate.picture import picture
from bedplate.plan import FleetPlan
from bedplate.plan.joint import is_led, pairs
from bedplate.plan.node import Duty
from bedplate.plan.nodes import standing_nodes
from bedplate.report.plan import plan_lines
from tests.support.direct_fleet import ATTIC, CELLAR, JOINS, LOFT, REGION, TEXT, direct_gateway, direct_plan
from vpn.sites.bgp import bgp_of
from vpn.sites.tunnel import Tunnel

PLAN = direct_plan()
HIDDEN = direct_plan(TEXT.replace("asn: 65010", "asn: 65010, behind_nat: true"))


def _direct(plan: FleetPlan, site: str) -> Tunnel:
    return next(one for one in direct_gateway(plan, site).tunnels if one.name.endswith("-site"))


def test_a_joint_is_one_tunnel_whichever_site_says_it() -> None:
    """Between the two in the alphabet's order, in a block of its own beside those of tunnels to AWS."""
    (direct,) = PLAN.directs
    turned = direct_plan(TEXT.replace(JOINS, "").replace("asn: 65010", "asn: 65010, joins: [attic]"))

    assert direct.sites == (ATTIC, CELLAR)
    assert turned.directs == PLAN.directs
    assert PLAN.blocks[f"tunnel/{ATTIC}/{CELLAR}"] == direct.inside == IPv4Network("169.254.64.16/30")
    assert pairs(PLAN) == (frozenset((ATTIC, CELLAR)),)


def test_a_site_that_comes_moves_no_block_of_another() -> None:
    """Neither of a direct tunnel, nor of one to AWS; and a tunnel that goes leaves its block held."""
    recorded = PLAN.recorded()
    more = direct_plan(TEXT + LOFT, recorded)
    fewer = direct_plan(TEXT.replace(JOINS, ""), recorded)

    assert {path: more.blocks[path] for path in PLAN.blocks} == PLAN.blocks
    assert [each.sites for each in more.directs] == [(ATTIC, CELLAR), (ATTIC, "loft"), (CELLAR, "loft")]
    assert not fewer.directs
    assert f"tunnel/{ATTIC}/{CELLAR}" in fewer.retired


def test_one_of_two_dials() -> None:
    """The first in the alphabet, unless the other alone cannot be dialled: both ends agree."""
    assert [plan.directs[0].dials for plan in (PLAN, HIDDEN)] == [ATTIC, CELLAR]
    for plan in (PLAN, HIDDEN):
        assert {site: _direct(plan, site).dials for site in (ATTIC, CELLAR)} == {
            site: plan.directs[0].dials == site for site in (ATTIC, CELLAR)
        }


def test_both_ends_mean_the_same_tunnel() -> None:
    """Each calls itself what the other expects, at its public address, with the two addresses of one block."""
    near, far = (_direct(PLAN, site) for site in (ATTIC, CELLAR))

    assert (near.near, near.far) == (far.far, far.near)
    assert near.near.identity == "tunnels.attic.rooms.internal"
    assert near.far.outside == IPv4Address("8.20.30.40")
    assert near.number == far.number
    assert {each.number for each in direct_gateway(PLAN, ATTIC).tunnels} > {near.number}
    assert near.near.inside is not None
    assert near.far.inside is not None
    assert {near.near.inside.ip, near.far.inside.ip} == set(PLAN.directs[0].inside.hosts())


def test_the_direct_way_is_preferred_to_that_by_aws() -> None:
    """BGP believes of the far site's own blocks what it tells itself, before what a region tells of them."""
    told = bgp_of(direct_gateway(PLAN, ATTIC))
    assert told
    lines = told.text.splitlines()

    assert "ip prefix-list cellar-site-first permit 192.168.40.0/22 le 32" in lines
    assert f"ip prefix-list {REGION}-1 permit 192.168.40.0/22 le 32" in lines
    assert f"ip prefix-list {REGION}-1-first permit 192.168.40.0/22 le 32" not in lines
    assert not [line for line in lines if line.startswith("ip prefix-list cellar-site") and "10.64" in line]
    assert " neighbor 169.254.64.18 remote-as 65010" in lines


def test_joined_sites_trust_each_other_as_places_that_are_led_to() -> None:
    """Their gateways lead to each other's LAN, and whoever watches machines there may ask here."""
    apart = direct_plan(TEXT.replace(JOINS, ""))
    (door,) = (node for node in standing_nodes(PLAN) if node.name == "door.attic")

    assert [is_led(plan, ATTIC, CELLAR) for plan in (PLAN, apart)] == [True, False]
    (bgp,) = (rule for rule in door.doors if rule.name.startswith("bgp"))
    assert (bgp.block, bgp.port) == (PLAN.directs[0].inside, 179)
    assert door.duties == {Duty.TUNNELS}
    assert IPv4Network("192.168.40.0/22") in door.elsewhere
    assert {"ike-500", "ike-4500", "esp", "metrics-from-cellar", "bgp-from-cellar"} <= {
        rule.name for rule in door.doors
    }


def test_the_plan_tells_of_it() -> None:
    """In its words, with who dials, at both sites; and in the picture, by its block."""
    text = "\n".join(plan_lines(PLAN))

    assert text.count("a tunnel of their own, 169.254.64.16/30; attic dials") == 2
    assert "+   joins" in text
    assert picture(PLAN).count("169.254.64.16/30") == 2
