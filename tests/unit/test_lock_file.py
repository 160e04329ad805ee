"""fleet.lock on disk."""

import os
from pathlib import Path

import pytest

from bedplate.errors import HeldError, InputError, MachineError
from bedplate.lock import held, lock_path, read_lock, record_images, record_plan, renew_images
from bedplate.lock.file import _LARGEST
from bedplate.plan import PlanFaults, Record, allot
from tests.support.sketch import catalog, sketch

BOTH = sketch({"us-west-2": ["us-west-2a"], "us-east-1": ["us-east-1a"]})
WEST = sketch({"us-west-2": ["us-west-2a"]})
OLD, NEW = "ami-0000000000000000a", "ami-0000000000000000b"
EAST = sketch({"us-east-1": ["us-east-1a"]})


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Return where the lock of a fleet file in an empty folder lies."""
    return lock_path(tmp_path / "fleet.yaml")


def test_a_lock_lies_beside_its_fleet_file(lock: Path, tmp_path: Path) -> None:
    """Both are committed together."""
    assert lock == tmp_path / "fleet.lock"


def test_no_lock_is_an_empty_record(lock: Path) -> None:
    """A new fleet has nothing to keep; reading makes no file."""
    assert read_lock(lock, "lab") == Record({})
    assert not lock.exists()


def test_recording_keeps_what_was_recorded(lock: Path) -> None:
    """Two fleet files in turn: the second's blocks go around the first's."""
    record_plan(lock, WEST, catalog())

    plan = record_plan(lock, EAST, catalog()).plan

    assert str(plan.blocks["region/us-east-1"]) == "10.65.0.0/16"
    assert read_lock(lock, "lab").blocks.keys() == {**allot(WEST, Record({})), **plan.blocks}.keys()


def test_recording_the_same_again_writes_nothing(lock: Path) -> None:
    """A lock that is right is not touched, so that neither git nor make sees a change."""
    record_plan(lock, BOTH, catalog())
    before = lock.stat().st_ino

    record_plan(lock, BOTH, catalog())

    assert lock.stat().st_ino == before


def test_a_released_block_is_gone_from_the_lock(lock: Path) -> None:
    """The next region that comes takes its place."""
    record_plan(lock, BOTH, catalog())

    record_plan(lock, EAST, catalog(), release_of=("region/us-west-2",))

    assert read_lock(lock, "lab").blocks.keys() == allot(EAST, Record({})).keys()


def test_what_one_release_takes_along_may_be_named_too(lock: Path) -> None:
    """The order in which paths are given does not matter."""
    record_plan(lock, BOTH, catalog())
    paths = ("region/us-west-2", "region/us-west-2/zone")

    done = record_plan(lock, EAST, catalog(), release_of=paths)

    assert set(done.released) == {path for path in allot(BOTH, Record({})) if path.startswith("region/us-west-2")}


def test_an_image_that_was_recorded_meanwhile_stays(lock: Path) -> None:
    """Between asking AWS and writing the lock, somebody else may have been quicker."""
    record_plan(lock, WEST, catalog())
    record_images(lock, "lab", {"us-west-2/x86_64": OLD})

    record = record_images(lock, "lab", {"us-west-2/x86_64": NEW, "us-west-2/arm64": NEW})

    assert record.images == {"us-west-2/x86_64": OLD, "us-west-2/arm64": NEW}
    assert read_lock(lock, "lab") == record
    assert record.blocks


def test_a_renewed_image_takes_the_place_of_the_recorded(lock: Path) -> None:
    """Those of other places stay."""
    record_images(lock, "lab", {"us-west-2/x86_64": OLD, "us-east-1/x86_64": OLD})

    renew_images(lock, "lab", {"us-west-2/x86_64": NEW})

    assert read_lock(lock, "lab").images == {"us-west-2/x86_64": NEW, "us-east-1/x86_64": OLD}


def test_images_are_not_recorded_while_somebody_else_writes(lock: Path) -> None:
    """One writer at a time, whatever is written."""
    with held(lock), pytest.raises(HeldError):
        record_images(lock, "lab", {"us-west-2/x86_64": OLD})

    assert not lock.exists()


def test_a_refused_plan_leaves_the_lock_alone(lock: Path) -> None:
    """Nothing is recorded of a plan that cannot be."""
    record_plan(lock, WEST, catalog())
    before = lock.read_bytes()

    with pytest.raises(PlanFaults):
        record_plan(lock, sketch(network={"supernet": "10.64.0.0/16"}), catalog())

    assert lock.read_bytes() == before
    assert list(lock.parent.iterdir()) == [lock]


@pytest.mark.parametrize("content", [b'{"version": 1', b"\xff\xfe{}", b"\0" * 64])
def test_a_broken_lock_is_refused_and_left_as_it_is(lock: Path, content: bytes) -> None:
    """The message says how to mend it; bedplate never does by itself."""
    lock.write_bytes(content)

    with pytest.raises(InputError, match=r"fleet\.lock is refused") as refusal:
        record_plan(lock, WEST, catalog())

    assert "git checkout" in refusal.value.fix
    assert lock.read_bytes() == content


def test_a_lock_of_absurd_size_is_refused_unread(lock: Path) -> None:
    """Its size is asked before its content."""
    with lock.open("wb") as stream:
        stream.truncate(_LARGEST + 1)

    with pytest.raises(InputError, match="no lock is that large"):
        read_lock(lock, "lab")


def test_a_pipe_in_place_of_the_lock_does_not_hang(lock: Path) -> None:
    """Opening never waits for a writer."""
    os.mkfifo(lock)

    with pytest.raises(InputError, match="no ordinary file"):
        read_lock(lock, "lab")


def test_a_link_to_nothing_is_told_as_one(lock: Path) -> None:
    """It is not taken for a fleet without a lock, nor for a folder that is missing."""
    lock.symlink_to("elsewhere.lock")

    with pytest.raises(InputError, match=r"it is a link to nothing: elsewhere\.lock is not there"):
        read_lock(lock, "lab")


def test_a_folder_in_place_of_the_lock_is_told(lock: Path) -> None:
    """What the machine refuses is one clear line."""
    lock.mkdir()

    with pytest.raises(MachineError, match=r"cannot read fleet\.lock: a folder has that name"):
        read_lock(lock, "lab")
