"""Images of the lock: once one is recorded, every place where machines start needs its own."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import FleetFaults, examine, load_fleet
from bedplate.plan import Record, plan_fleet

BASE = (Path(__file__).parents[1] / "data" / "fleets" / "base.yaml").read_text(encoding="utf-8")
WEST, EAST = {"us-west-2/x86_64": "ami-0123456789abcdef0"}, {"us-east-1/x86_64": "ami-0123456789abcdef1"}


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """Give the base fleet, as a file."""
    path = tmp_path / "fleet.yaml"
    path.write_text(BASE, encoding="utf-8")
    return path


def told(path: Path, images: dict[str, str]) -> list[tuple[str, str]]:
    """Return code and key of what is wrong with a file beside a lock with these images."""
    return [(one.code, one.key) for one in examine(path, load_catalog(), Record({}, images=images))]


@pytest.mark.parametrize("images", [{}, WEST | EAST])
def test_none_and_all_are_fine(fleet_file: Path, images: dict[str, str]) -> None:
    """Before anything is baked, all machines start from Canonical's image."""
    assert told(fleet_file, images) == []


def test_a_region_without_an_image_is_told_at_each_rung(fleet_file: Path) -> None:
    """The rungs of two groups lead to us-east-1."""
    assert told(fleet_file, WEST) == [("E349", "groups.bench.ladder.1"), ("E349", "groups.train.ladder.1")]


def test_a_home_without_an_image_is_told_at_the_control_plane(fleet_file: Path) -> None:
    """Its machines start from images too."""
    assert ("E349", "kubernetes.control_plane") in told(fleet_file, EAST)


def test_an_image_of_another_architecture_is_none(fleet_file: Path) -> None:
    """An x86 image does not start on Graviton."""
    fleet_file.write_text(BASE.replace("[g6.4xlarge]", "[g5g.4xlarge]"), encoding="utf-8")

    assert ("E349", "groups.bench.ladder.0") in told(fleet_file, WEST | EAST)


def test_it_may_be_allowed(fleet_file: Path) -> None:
    """And the exception is not told as one that nothing needs, where no lock is looked at."""
    fleet_file.write_text(BASE.replace("version: 1", "version: 1\nallow: {E349: until the bake}"), encoding="utf-8")

    assert told(fleet_file, WEST) == told(fleet_file, {}) == []


def test_no_command_acts_on_such_a_plan(fleet_file: Path) -> None:
    """What every command asks of a plan refuses it, with its place."""
    loaded = load_fleet(fleet_file, load_catalog())
    plan = plan_fleet(loaded.fleet, Record({}, images=WEST), load_catalog())

    with pytest.raises(FleetFaults, match=r"the lock has no image for x86_64 in us-east-1: us-west-2/x86_64 alone"):
        loaded.judge(plan, load_catalog())
