"""Room in subnets: every machine that a group may have needs its addresses."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.evidence import evidence_of
from bedplate.checks.room import check_room
from tests.support.sketch import group, sketch

WEST = {"region": "us-west-2"}
EAST = {"region": "us-east-1"}
# Two zones of /23 each: 512 addresses, less 5 of AWS's, 16 fixed ones and 4 of resolvers.
SMALL = {"us-west-2": ["us-west-2a", "us-west-2b"], "us-east-1": ["us-east-1a"]}
ROOM = 487


def told(groups: Mapping[str, Any], **parts: Any) -> list[tuple[str, str]]:  # noqa: ANN401  raw values
    """Return code and key of what the check finds in a fleet of small regions."""
    fleet = sketch(SMALL, network={"region_size": "/20"}, groups=groups, **parts)
    return [(one.code, one.key) for one in check_room(evidence_of(fleet, load_catalog(), date(2026, 11, 21)))]


def sized(most: int, *ladder: Mapping[str, Any], least: int = 0, **parts: Any) -> dict[str, Any]:  # noqa: ANN401  raw values
    """Return a group of machines without GPUs, so many at most."""
    return group(*ladder, **{"types": ["m7i.xlarge"], "nodes": {"min": least, "max": most}, **parts})


@pytest.mark.parametrize(
    ("groups", "keys"),
    [
        ({"one": sized(2 * ROOM, WEST)}, []),
        ({"one": sized(2 * ROOM + 1, WEST)}, ["regions.us-west-2"]),
        ({"one": sized(ROOM, {**WEST, "zone": "us-west-2a"})}, []),
        ({"one": sized(ROOM + 1, {**WEST, "zone": "us-west-2a"})}, ["regions.us-west-2"]),
        ({"one": sized(2 * ROOM - 2, WEST), "two": sized(2, WEST)}, []),
        ({"one": sized(2 * ROOM - 2, WEST), "two": sized(3, WEST)}, ["regions.us-west-2"]),
        ({"one": sized(ROOM, WEST, {**WEST, "market": "spot"})}, []),
        ({"one": sized(ROOM + 1, WEST, EAST)}, ["regions.us-east-1"]),
    ],
)
def test_all_groups_of_a_zone_share_its_addresses(groups: Mapping[str, Any], keys: list[str]) -> None:
    """Spread over the zones of a pool; the pools of one group never run all at once."""
    assert told(groups) == [("E348", key) for key in keys]


def test_a_file_system_takes_an_address_of_each_zone() -> None:
    """Its mount targets stand beside the machines."""
    storage = {"home": {"kind": "efs", "region": "us-west-2", "mount": "/home"}}

    assert told({"one": sized(2 * ROOM, WEST)}, storage=storage) == [("E348", "regions.us-west-2")]


def test_endpoints_take_an_address_of_each_zone() -> None:
    """One for each of their services: two for the registry's."""
    network = {"region_size": "/20", "endpoints": ("ecr",)}
    fleets = (sketch(SMALL, network=network, groups={"one": sized(2 * ROOM - less, WEST)}) for less in (4, 3))

    found = [len(list(check_room(evidence_of(fleet, load_catalog(), date(2026, 11, 21))))) for fleet in fleets]

    assert found == [0, 1]


def test_a_reservation_takes_no_more_than_it_holds() -> None:
    """Its pool grows no further, whatever the group may have elsewhere."""
    held = {**WEST, "zone": "us-west-2a", "market": "reservation", "reservation": "cr-0123456789abcdef0"}

    assert told({"one": sized(ROOM + 9, held)}) == [("E348", "regions.us-west-2")]
    assert told({"one": sized(ROOM + 9, {**held, "reserved": 8})}) == []


def test_interfaces_of_the_fabric_alone_take_no_address() -> None:
    """A p5 has 32 network cards and one address."""
    there = {**WEST, "zone": "us-west-2b"}

    assert told({"one": sized(ROOM, there, types=["p5.48xlarge"], fabric="efa")}) == []
    assert told({"one": sized(ROOM + 1, there, types=["p5.48xlarge"], fabric="efa")}) == [("E348", "regions.us-west-2")]


@pytest.mark.parametrize(("least", "codes"), [(ROOM, []), (ROOM + 1, ["E343"])])
def test_the_minimum_must_fit_where_the_first_pool_stands(least: int, codes: list[str]) -> None:
    """A later rung never takes any of it."""
    groups = {"one": sized(least, {**WEST, "zone": "us-west-2a"}, WEST, least=least)}

    found = [code for code, key in told(groups) if key == "groups.one.nodes.min"]

    assert found == codes


def test_a_rung_in_no_region_of_the_file_is_not_reckoned() -> None:
    """It is told as such elsewhere, and is no traceback here."""
    assert told({"one": sized(5000, {"region": "eu-west-3"})}) == []


def test_a_region_of_an_impossible_size_is_not_reckoned() -> None:
    """It is told as such elsewhere."""
    fleet = sketch(SMALL, network={"region_size": "/24"}, groups={"one": sized(5000, WEST)})

    assert list(check_room(evidence_of(fleet, load_catalog(), date(2026, 11, 21)))) == []
