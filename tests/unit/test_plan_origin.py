"""Where in the fleet file a resource comes from."""

from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.origin import origin

LAB = Path(__file__).parents[2] / "examples/lab.yaml"


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Return the plan of the example."""
    catalog = load_catalog()
    return plan_fleet(load_fleet(LAB, catalog).fleet, Record({}), catalog)


@pytest.mark.parametrize(
    ("stack", "name", "key"),
    [
        ("lab.us-east-1", "lab-train-us-east-1d", "groups.train.ladder.2"),
        ("lab.eu-north-1", "lab-train-eu-north-1a-spot", "groups.train.ladder.3"),
        ("lab.us-west-2", "lab-us-west-2a-nodes", "regions.us-west-2.zones"),
        ("lab.us-west-2", "lab-home", "storage.home"),
        ("lab.links", "lab-us-east-1", "regions.us-east-1"),
        ("lab.us-west-2", "lab", "regions.us-west-2"),
        ("lab.shared", "lab-ssh", "name"),
    ],
)
def test_a_name_tells_its_origin(plan: FleetPlan, stack: str, name: str, key: str) -> None:
    """The longest word of the file that a name begins with is where it comes from."""
    assert origin(plan, stack, name) == key


def test_what_a_plan_no_longer_has_is_known_from_an_earlier_one(plan: FleetPlan) -> None:
    """Where a change takes a thing away, its key is that of the file before."""
    later = replace(plan, files=())

    assert origin(later, "lab.us-west-2", "lab-home", plan) == "storage.home"
    assert origin(later, "lab.us-west-2", "lab-home") == "regions.us-west-2"


def test_an_origin_has_a_line() -> None:
    """An origin is told as the file's line and column, so that an editor can jump to it."""
    reading = load_fleet(LAB, load_catalog()).reading

    place, key = reading.where("groups.train.ladder.2").split()

    line = LAB.read_text(encoding="utf-8").splitlines()[int(place.split(":")[-2]) - 1]
    assert (key, line.strip()) == ("groups.train.ladder.2", "- {region: us-east-1}")
