"""The control plane's machines keep their addresses whatever happens to the file around them."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.plan.fleet import RegionPlan, ZonePlan
from bedplate.plan.member import fixed_block, members

ZONES = tuple(
    ZonePlan(f"us-west-2{letter}", IPv4Network(f"10.64.{n}.0/24"), IPv4Network(f"10.64.{32 * (n + 1)}.0/19"))
    for n, letter in enumerate("abc")
)
ZONE_NAMES = tuple(zone.name for zone in ZONES)
HOME = RegionPlan("us-west-2", home=True, block=IPv4Network("10.64.0.0/16"), zones=ZONES)


def test_members_stand_in_as_many_zones_as_there_are() -> None:
    """A quorum outlives a zone only when no zone holds more of it than it must."""
    found = members(HOME, 5, {}, ZONE_NAMES)

    assert [each.zone[-1] for each in found] == ["a", "b", "c", "a", "b"]
    assert [str(each.address) for each in found[::3]] == ["10.64.32.16", "10.64.32.17"]


@pytest.mark.parametrize(("offering", "stand"), [("ac", "aca"), ("b", "bbb"), ("", "abc")])
def test_members_stand_where_their_type_is_offered(offering: str, stand: str) -> None:
    """A group of one in a zone without its type would try to start its machine for ever."""
    found = members(HOME, 3, {}, [f"us-west-2{letter}" for letter in offering])

    assert "".join(each.zone[-1] for each in found) == stand


def test_a_new_zone_moves_no_member() -> None:
    """What the lock knows stays, even where another spread would be more even."""
    narrow = RegionPlan(HOME.name, home=True, block=HOME.block, zones=ZONES[:1])
    known = {each.name: each.address for each in members(narrow, 3, {}, ZONE_NAMES)}

    found = members(HOME, 5, known, ZONE_NAMES)

    assert {each.name: each.address for each in found[:3]} == known
    assert [each.zone[-1] for each in found[3:]] == ["b", "c"]


def test_a_member_leaves_a_zone_that_the_file_drops() -> None:
    """An address in no subnet of today is of no use; nobody else gets it meanwhile."""
    known = {each.name: each.address for each in members(HOME, 3, {}, ZONE_NAMES)}
    shrunk = RegionPlan(HOME.name, home=True, block=HOME.block, zones=ZONES[1:])

    found = members(shrunk, 3, known, ZONE_NAMES)

    assert found[0].zone == "us-west-2b"
    assert found[0].address not in known.values()


def test_the_fixed_addresses_are_clear_of_those_that_aws_keeps() -> None:
    """AWS keeps the first four addresses of a subnet, and the last."""
    assert fixed_block(ZONES[0].nodes) == IPv4Network("10.64.32.16/28")
    assert IPv4Address("10.64.32.3") not in fixed_block(ZONES[0].nodes)
