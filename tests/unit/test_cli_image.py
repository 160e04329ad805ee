"""`bedplate image`, driven as an operator drives it, against parameters that are known."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.lock import read_lock
from bedplate.plan.images import image_parameter, image_places
from tests.support.declared import plan_of
from tests.support.stubbed import ACCOUNT, StubbedSession, stubbed_account

HOME = "us-west-2"
OLD, NEW = "ami-0000000000000000a", "ami-0000000000000000b"


def _publish(account: StubbedSession, places: tuple[str, ...], image: str) -> None:
    for place in places:
        region, _, arch = place.partition("/")
        name = image_parameter(arch)
        account.answers("ssm", region, "get_parameter", {"Parameter": {"Name": name, "Value": image}}, Name=name)


def _images(file: Path) -> dict[str, str]:
    return dict(read_lock(file.with_name("fleet.lock"), "lab").images)


def test_images_are_recorded_once_for_every_place(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run asks nothing: whatever Canonical has published since, the fleet keeps its images."""
    places = image_places(plan_of(lab), load_catalog())
    _publish(account, places, OLD)

    assert run(["image", "record", str(lab)]) == 0
    assert run(["image", "record", str(lab)]) == 0

    assert _images(lab) == dict.fromkeys(places, OLD)
    assert f"recorded in fleet.lock: {len(places)} images" in capsys.readouterr().out


def test_renewing_takes_the_newest_in_place_of_the_recorded(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was recorded is told beside what takes its place; blocks are as they were."""
    assert run(["plan", str(lab), "--write"]) == 0
    blocks = read_lock(lab.with_name("fleet.lock"), "lab").blocks
    places = image_places(plan_of(lab), load_catalog())
    _publish(account, places, OLD)
    assert run(["image", "record", str(lab)]) == 0
    account.belongs_to(ACCOUNT, HOME)
    _publish(account, places, NEW)

    assert run(["image", "record", str(lab), "--renew"]) == 0

    assert _images(lab) == dict.fromkeys(places, NEW)
    assert read_lock(lab.with_name("fleet.lock"), "lab").blocks == blocks
    assert f"was {OLD}" in capsys.readouterr().out


@pytest.mark.parametrize(("code", "status"), [("ThrottlingException", 6), ("AccessDeniedException", 4)])
def test_a_region_without_an_image_leaves_the_lock_as_it_was(
    code: str, status: int, account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of a fleet's images recorded today, and half in a month, would be two fleets."""
    run(["plan", str(lab), "--write"])
    before = lab.with_name("fleet.lock").read_bytes()
    places = image_places(plan_of(lab), load_catalog())
    _publish(account, tuple(place for place in places if not place.startswith("eu-north-1")), OLD)
    account.refuses("ssm", "eu-north-1", "get_parameter", code)

    assert run(["image", "record", str(lab)]) == status

    assert lab.with_name("fleet.lock").read_bytes() == before
    assert "nothing was recorded: eu-north-1: " in capsys.readouterr().err


def test_a_parameter_that_holds_no_image_is_not_recorded(account: StubbedSession, lab: Path) -> None:
    """The lock would be refused by its own reader from then on."""
    places = image_places(plan_of(lab), load_catalog())
    _publish(account, places, "ubuntu-24.04")

    assert run(["image", "record", str(lab)]) == 6

    assert not lab.with_name("fleet.lock").exists()


def test_a_plan_tells_of_images_that_are_not_recorded(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, once there is a lock; no more when they are."""
    run(["plan", str(lab), "--write"])
    capsys.readouterr()
    run(["plan", str(lab)])
    before = capsys.readouterr().out
    _publish(account, image_places(plan_of(lab), load_catalog()), OLD)
    run(["image", "record", str(lab)])
    capsys.readouterr()

    run(["plan", str(lab)])

    assert before.count("no image recorded for ") == 1
    assert "no image recorded" not in capsys.readouterr().out


def test_images_are_not_recorded_from_another_account(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image is public, but an account may be shown others; nothing but its name is asked."""
    with stubbed_account(monkeypatch) as session:
        session.belongs_to("444455556666", HOME)

        assert run(["image", "record", str(lab)]) == 2


def test_without_credentials_no_image_can_be_recorded(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine lacks something, and it is said what."""
    assert run(["image", "record", str(lab)]) == 4

    assert "there are no AWS credentials here" in capsys.readouterr().err
