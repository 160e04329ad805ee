"""Rungs become pools."""

from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.catalog import Catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.pool import PoolPlan
from tests.support.sketch import catalog, group, sketch

WEST = {"region": "us-west-2"}
WEST_B = {**WEST, "zone": "us-west-2b"}
RESERVED = {**WEST_B, "market": "reservation", "reservation": "cr-0123456789abcdef0"}
BLOCK = {**WEST_B, "market": "capacity-block", "reservation": "cr-0123456789abcdef1"}
TWO_ZONES = catalog({"g6.xlarge": {"us-west-2": "bcd"}, "g5.xlarge": {"us-west-2": "a"}, "p5.48xlarge": {}})


def pools(*ladder: Mapping[str, object], known: Catalog = TWO_ZONES, **parts: Any) -> tuple[PoolPlan, ...]:  # noqa: ANN401  raw values
    """Return the pools of one group over that ladder."""
    return plan_fleet(sketch(groups={"gpu": group(*ladder, **parts)}), Record({}), known).pools


@pytest.mark.parametrize(
    ("rung", "name"),
    [
        (WEST, "gpu-us-west-2"),
        ({**WEST, "market": "spot"}, "gpu-us-west-2-spot"),
        (WEST_B, "gpu-us-west-2b"),
        (RESERVED, "gpu-us-west-2b-reservation-cr-0123456789abcdef0"),
        (BLOCK, "gpu-us-west-2b-block-cr-0123456789abcdef1"),
    ],
)
def test_a_pool_is_named_by_what_it_is(rung: dict[str, str], name: str) -> None:
    """Place, market and reservation are in the name, the rung's number is not."""
    (pool,) = pools(rung)

    assert pool.name == name


def test_an_inserted_rung_renames_nothing() -> None:
    """Pools below it keep their names, hence their machines."""
    before = pools(WEST, {"region": "us-east-1"})

    after = pools(RESERVED, WEST, {"region": "us-east-1"})

    assert {pool.name for pool in before} < {pool.name for pool in after}


@pytest.mark.parametrize(
    ("types", "zones"),
    [
        (["g6.xlarge"], "bc"),
        (["g6.xlarge", "g5.xlarge"], "abc"),
        (["p5.48xlarge"], ""),
        (["p9.48xlarge"], "abc"),
        (["p9.48xlarge", "p5.48xlarge"], "abc"),
    ],
)
def test_a_pool_spans_the_zones_that_offer_a_type(types: list[str], zones: str) -> None:
    """Those of the file that offer at least one; every one where the catalogue does not know the type."""
    (pool,) = pools(WEST, types=types)

    assert pool.zones == tuple(f"us-west-2{letter}" for letter in zones)


def test_the_fabric_needs_one_zone_a_pool() -> None:
    """A rung over a region becomes a pool in each zone that offers the type, a zone's rung stays one pool."""
    found = pools(RESERVED, WEST, fabric="efa")

    assert [(pool.name, pool.zones) for pool in found] == [
        ("gpu-us-west-2b-reservation-cr-0123456789abcdef0", ("us-west-2b",)),
        ("gpu-us-west-2b", ("us-west-2b",)),
        ("gpu-us-west-2c", ("us-west-2c",)),
    ]


def test_one_zone_named_twice_is_one_pool() -> None:
    """`2b first, then anywhere` keeps its order and makes no second pool in 2b."""
    found = pools({**WEST, "zone": "us-west-2c"}, WEST, fabric="efa")

    assert [pool.name for pool in found] == ["gpu-us-west-2c", "gpu-us-west-2b"]


def test_the_minimum_is_in_the_first_pool_alone() -> None:
    """The group's minimum is started once; every pool may grow to the group's maximum."""
    found = pools(RESERVED, WEST, fabric="efa", nodes={"min": 2, "max": 9})

    assert [(pool.min, pool.max) for pool in found] == [(2, 9), (0, 9), (0, 9)]


def test_a_pool_holds_no_more_than_its_reservation() -> None:
    """AWS starts no machine beyond it: the ladder's next rung does."""
    reserved, rest = pools({**RESERVED, "reserved": 3}, WEST)

    assert (reserved.max, rest.max) == (3, 4)


def test_of_two_rungs_of_one_pool_the_first_counts() -> None:
    """A zone's own price on a fabric stands, whatever its region's is."""
    spot, dearer = {"market": "spot", "max_price": 5.0}, {"market": "spot", "max_price": 9.0}

    found = pools({**WEST_B, **spot}, {**WEST, **dearer}, types=["g6.xlarge"], fabric="efa")

    assert {pool.zones: pool.offer.max_price for pool in found} == {("us-west-2b",): 5.0, ("us-west-2c",): 9.0}
