"""Room in subnets is counted where machines may really come to stand."""

from datetime import date
from typing import Any

from bedplate.catalog import load_catalog
from bedplate.checks.evidence import Declared, Evidence
from bedplate.checks.room import check_room
from tests.support.sketch import group, sketch

ZONE = "us-west-2a"


def told(*ladder: dict[str, Any], most: int) -> list[str]:
    """Return the codes of what is told of one group, in a region of two zones with 486 addresses for machines each."""
    fleet = sketch(
        {"us-west-2": (ZONE, "us-west-2b")},
        blocks={"us-west-2": "10.64.0.0/20"},
        groups={"train": group(*ladder, types=["p5.48xlarge"], nodes={"min": 0, "max": most})},
    )
    declared = Declared(fleet.model_dump(exclude_unset=True))
    return [fault.code for fault in check_room(Evidence(fleet, load_catalog(), declared, date(2026, 11, 21)))]


def held(number: int, machines: int) -> dict[str, Any]:
    """Return a rung over a reservation of so many machines in the one zone."""
    name = f"cr-0123456789abcdef{number}"
    rung = {"region": "us-west-2", "market": "reservation", "reservation": name, "zone": ZONE}
    return {**rung, "reserved": machines}


def test_reservations_in_one_zone_add_up() -> None:
    """Both may be full at once."""
    assert told(held(0, 300), held(1, 300), most=600) == ["E348"]
    assert told(held(0, 200), held(1, 200), most=600) == []


def test_pools_of_one_group_share_its_maximum() -> None:
    """On demand and on spot in the same zones, they never hold more than the group may have, spread over both."""
    both = {"region": "us-west-2"}, {"region": "us-west-2", "market": "spot"}

    assert told(*both, most=900) == []
    assert told(*both, most=1000) == ["E348"]
