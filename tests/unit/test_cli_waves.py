"""Which stacks a rehearsal is made of."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.waves import Waves, waves, waves_of_change
from bedplate.errors import InputError
from bedplate.load import load_fleet
from bedplate.plan import FleetPlan, Record, plan_fleet

LAB = Path(__file__).parents[2] / "examples/lab.yaml"
REGIONS = ("lab.us-west-2", "lab.us-east-1", "lab.eu-north-1")


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Give the plan of the larger example."""
    return plan_fleet(load_fleet(LAB, load_catalog()).fleet, Record({}), load_catalog())


def _names(made: Waves) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(stack.name for stack in wave) for wave in made)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((), (("lab.shared",), REGIONS, ("lab.links",))),
        (("shared",), (("lab.shared",),)),
        (("us-east-1",), (("lab.shared",), ("lab.us-east-1",))),
        (("links",), (("lab.shared",), REGIONS, ("lab.links",))),
    ],
)
def test_a_part_brings_what_it_reads(
    asked: tuple[str, ...], told: tuple[tuple[str, ...], ...], plan: FleetPlan
) -> None:
    """Regions read the shared stack, the links read all regions."""
    assert _names(waves(plan, asked)) == told


def test_an_unknown_part_is_refused(plan: FleetPlan) -> None:
    """The refusal names the parts that there are."""
    with pytest.raises(InputError) as refusal:
        waves(plan, ["us-moon-1"])

    assert "us-west-2" in refusal.value.fix


def test_a_part_may_go_with_the_change(plan: FleetPlan) -> None:
    """A region that a later file drops is destroyed, and what it read is left."""
    assert _names(waves_of_change(plan, ["eu-west-1"])) == (("lab.shared",),)
