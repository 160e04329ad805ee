"""What a live run refuses before it declares anything."""

import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.load import FleetFaults, load_fleet
from bedplate.lock import lock_path, record_images, record_plan
from stacks.live import order
from tests.support.declared import EXAMPLES

ROOT = EXAMPLES.parent


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """Give the smaller example in a folder of its own, without a lock."""
    file = tmp_path / "fleet.yaml"
    file.write_bytes((EXAMPLES / "minimal.yaml").read_bytes())
    return file


@pytest.fixture
def recorded(fleet_file: Path) -> Path:
    """Give that file with its lock beside it."""
    fleet = load_fleet(fleet_file, load_catalog()).fleet
    record_plan(lock_path(fleet_file), fleet, load_catalog())
    return fleet_file


def test_a_recorded_plan_is_carried_out(recorded: Path) -> None:
    """The stack's name says which part."""
    asked = order(recorded, "solo.us-west-2")

    assert (asked.plan.name, asked.part) == ("solo", "us-west-2")


def test_blocks_that_the_lock_lacks_are_never_deployed(fleet_file: Path) -> None:
    """The next run might allot others: they are recorded first."""
    with pytest.raises(InputError, match="region/us-west-2") as caught:
        order(fleet_file, "solo.us-west-2")

    assert "bedplate plan --write" in caught.value.fix


@pytest.mark.parametrize("admin", [True, False], ids=["administrator", "other"])
def test_an_administrator_whose_id_the_lock_lacks_is_recorded_first(recorded: Path, *, admin: bool) -> None:
    """Machines of the cloud make the account by that id, and the next plan might give another; nobody else matters."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHXlSbWlqCd0d+1cFb0YhXzGvHWQHkdPzXyKDVCgZx4w"
    zoe = f'  zoe: {{admin: {str(admin).lower()}, keys: ["{key}"]}}'
    recorded.write_text(
        recorded.read_text(encoding="utf-8").replace("people:\n", f"people:\n{zoe}\n"), encoding="utf-8"
    )

    with pytest.raises(InputError, match=r"not recorded in fleet\.lock: zoe") if admin else nullcontext():
        order(recorded, "solo.shared")


def test_similar_types_wait_for_their_image(fleet_file: Path) -> None:
    """AWS would refuse their group half way through the stack; once the image is recorded they go ahead."""
    told = fleet_file.read_text(encoding="utf-8")
    types = re.compile(r"( +)types: .*")
    fleet_file.write_text(types.sub(r"\1types: [c7i.xlarge]\n\1similar: true", told, count=1), encoding="utf-8")
    record_plan(lock_path(fleet_file), load_fleet(fleet_file, load_catalog()).fleet, load_catalog())

    with pytest.raises(InputError, match="us-west-2/x86_64") as caught:
        order(fleet_file, "solo.us-west-2")

    assert "bedplate image record" in caught.value.fix
    images = {"us-west-2/x86_64": "ami-0123456789abcdef0"}
    record_images(lock_path(fleet_file), "solo", images)
    assert order(fleet_file, "solo.us-west-2").plan.record.images == images


def test_a_stack_of_another_fleet_is_refused(recorded: Path) -> None:
    """A wrong selection must not declare this fleet in that stack: it would delete what the stack holds."""
    with pytest.raises(InputError, match=r"lab\.us-west-2"):
        order(recorded, "lab.us-west-2")


def test_a_faulty_file_is_refused(recorded: Path) -> None:
    """The faults are those of `bedplate check`."""
    recorded.write_text(recorded.read_text(encoding="utf-8").replace("owner:", "owned:"), encoding="utf-8")

    with pytest.raises(FleetFaults):
        order(recorded, "solo.us-west-2")


@pytest.mark.parametrize(("part", "is_refused"), [("us-west-2", True), ("us-east-1", False), ("shared", False)])
def test_an_expired_group_blocks_the_stacks_that_hold_it(fleet_file: Path, part: str, *, is_refused: bool) -> None:
    """Stacks of other regions, `shared` and `links` can be deployed."""
    text = fleet_file.read_text(encoding="utf-8")
    text = text.replace("regions:\n", "regions:\n  us-east-1: {zones: [us-east-1a]}\n")
    fleet_file.write_text(text, encoding="utf-8")
    record_plan(lock_path(fleet_file), load_fleet(fleet_file, load_catalog()).fleet, load_catalog())
    fleet_file.write_text(re.sub(r"( +)types: ", r"\1expires: '2026-11-20'\n\1types: ", text), encoding="utf-8")

    with pytest.raises(FleetFaults) if is_refused else nullcontext() as caught:
        order(fleet_file, f"solo.{part}")

    if caught:
        (told,) = [told for told in caught.value.faults if told.code == "E329"]
        assert told.fix.endswith("write a later day and run `pulumi up --refresh -s solo.us-west-2`")


def test_an_operator_gets_a_sentence_not_a_traceback() -> None:
    """The program ends in the one error whose message Pulumi prints by itself."""
    ran = subprocess.run([sys.executable, "-"], input=_PROGRAM, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ran.stdout.startswith("not recorded in fleet.lock: ")
    assert "  fix  run `bedplate plan --write" in ran.stdout


# What Pulumi's own runner does with a program: run the file as __main__, print a RunError's message alone.
_PROGRAM = """
import runpy, sys, pulumi
pulumi.runtime.set_all_config({"bedplate:fleet": "examples/minimal.yaml"}, [])
from pulumi.runtime.settings import Settings, configure
configure(Settings(project="bedplate", stack="solo.nowhere"))
sys.path.insert(0, ".")
try:
    runpy.run_path("__main__.py", run_name="__main__")
except pulumi.RunError as error:
    print(error)
"""
