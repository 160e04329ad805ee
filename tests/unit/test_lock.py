"""fleet.lock on disk."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from bedplate.errors import HeldError, InputError, MachineError
from bedplate.lock import held, lock_path, read_lock, record_images, record_plan, renew_images
from bedplate.lock.file import _LARGEST, refuse_names
from bedplate.lock.format import NotALockError, lock_text, parse_lock
from bedplate.plan import PlanFaults, Record, allot
from tests.testlab.fleets.sketch import catalog, sketch

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


LOCK_TEXT_WEST = "region/us-west-2"
RECORD = Record(
    {
        LOCK_TEXT_WEST: IPv4Network("10.64.0.0/16"),
        f"{LOCK_TEXT_WEST}/zone/us-west-2a/edge": IPv4Network("10.64.0.0/24"),
        "pods": IPv4Network("10.112.0.0/13"),
        "site/cellar": IPv4Network("192.168.40.0/22"),
        "tunnel/attic/cellar": IPv4Network("169.254.64.16/30"),
        "tunnel/cellar/us-west-2/1": IPv4Network("169.254.64.0/30"),
    },
    addresses={"control-1.us-west-2": IPv4Address("10.64.32.16")},
    images={"us-west-2/x86_64": "ami-0123456789abcdef0"},
    people={"ada": 20000, "bob": 20001},
    groups={"vision": 50000},
    host_keys={
        "titan-01.cellar": ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",)
    },
    instances={"workbench-cpu-2.us-west-2": "i-0123456789abcdef0"},
    gateways={"us-west-2": IPv4Address("8.20.30.41")},
    resolvers={"us-west-2": (IPv4Address("10.64.32.5"), IPv4Address("10.64.64.7"))},
)
TEXT = lock_text("lab", RECORD)


def test_a_lock_reads_well_in_a_diff() -> None:
    """A path a line, sorted, and a newline at the end."""
    lines = TEXT.splitlines()

    assert lines[1:4] == [' "version": 1,', ' "fleet": "lab",', ' "blocks": {']
    assert lines[4:9] == sorted(lines[4:9])
    assert TEXT.endswith("}\n")


def test_what_is_written_is_read_back() -> None:
    """Writing and reading lose nothing."""
    assert parse_lock(TEXT, "lab") == RECORD


def is_lock(text: str) -> bool:
    """Tell whether the reader takes a text."""
    try:
        parse_lock(text, "lab")
    except NotALockError:
        return False
    return True


def test_a_lock_that_is_cut_short_is_refused() -> None:
    """At whatever byte before its last brace another program broke off."""
    whole = len(TEXT) - 1

    assert [length for length in range(whole) if is_lock(TEXT[:length])] == []


def blocks(**changes: str) -> Callable[[dict[str, Any]], object]:
    """Return an edit that sets blocks."""
    return lambda document: document["blocks"].update(changes)


def put(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    """Return an edit that sets a top-level key."""
    return lambda document: document.update({key: value})


def drop(*keys: str) -> Callable[[dict[str, Any]], object]:
    """Return an edit that takes one key out, below the others."""

    def edit(document: dict[str, Any]) -> None:
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return edit


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (put("version", 2), "a newer bedplate wrote it (format 2)"),
        (put("version", 0), "its version is 0"),
        (put("version", "1"), "its version is '1'"),
        (put("fleet", "solo"), "it is the lock of 'solo', not of 'lab'"),
        (put("extra", 1), "it holds unknown keys: extra"),
        (put("blocks", []), "its blocks are no table"),
        (drop("blocks"), "it lacks one of blocks, fleet, version"),
        (drop("blocks", LOCK_TEXT_WEST), "does not lie in region/us-west-2"),
        (blocks(pods="10.64.0.0/15"), "(10.64.0.0/15) and region/us-west-2 (10.64.0.0/16) overlap"),
        (blocks(pods="10.112.0.1/13"), "pods is no block: 10.112.0.1/13 has host bits set"),
        (blocks(pods="10.112.0.0"), "pods is 10.112.0.0, which bedplate writes as 10.112.0.0/32"),
        (blocks(pods="somewhere"), "pods is no block"),
        (put("blocks", {"pods": 5}), "pods is no block"),
        (blocks(pots="10.112.0.0/13"), "a path that bedplate never writes: 'pots'"),
        (blocks(**{"region/us-west-2/zone/us-west-2b/edge": "10.65.0.0/24"}), "does not lie in"),
        (blocks(**{"region/us-west-2/zone/us-west-2b/edge": "10.64.0.0/25"}), "overlap"),
    ],
)
def test_an_edited_lock_is_refused(edit: Callable[[dict[str, Any]], object], reason: str) -> None:
    """The reason says what was found; nothing is read from such a lock."""
    document = json.loads(TEXT)
    edit(document)

    with pytest.raises(NotALockError) as refusal:
        parse_lock(json.dumps(document), "lab")

    assert reason in refusal.value.what
    assert refusal.value.fix


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TEXT.replace('"pods"', '"site/cellar"'), "it holds site/cellar twice"),
        (f"<<<<<<< HEAD\n{TEXT}=======\n{TEXT}>>>>>>> other\n", "it holds an unfinished merge"),
        ("[" * 100_000, "cut short or was edited"),
        (TEXT + TEXT, "cut short or was edited"),
        ("[]", "it lacks one of"),
        ("", "cut short or was edited"),
    ],
)
def test_what_is_no_lock_is_refused(text: str, reason: str) -> None:
    """Any other text, however it came there."""
    with pytest.raises(NotALockError, match=reason):
        parse_lock(text, "lab")


def test_a_lock_of_blocks_alone_is_read() -> None:
    """Locks of before more was recorded lack the rest."""
    document = {key: json.loads(TEXT)[key] for key in ("version", "fleet", "blocks")}

    assert parse_lock(json.dumps(document), "lab").blocks == RECORD.blocks


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("addresses", {"control-1.us-west-2": "10.64.32"}),
        ("addresses", {"somebody": "10.64.32.16"}),
        ("addresses", {"control-1.us-west-2": "10.64.32.16", "control-2.us-west-2": "10.64.32.16"}),
        ("images", {"us-west-2/x86_64": "latest"}),
        ("images", {"us-west-2": "ami-0123456789abcdef0"}),
        ("images", ["ami-0123456789abcdef0"]),
        ("people", {"ada": 50000}),
        ("people", {"ada": "20000"}),
        ("people", {"ada": True}),
        ("people", {"Ada": 20000}),
        ("people", {"ada": 20000, "bob": 20000}),
        ("people", {"vision": 20000}),
        ("groups", {"vision": 20000}),
        ("groups", {"vision": 50000, "speech": 50000}),
        ("host_keys", {"titan-01": ["ssh-ed25519 AAAA"]}),
        ("host_keys", {"titan-01.cellar": ["ssh-dss AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh"]}),
        ("host_keys", {"titan-01.cellar": []}),
        ("host_keys", {"titan-01.cellar": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh"}),
        ("instances", {"workbench-cpu-2.us-west-2": "0123456789abcdef0"}),
        ("instances", {"workbench-cpu-2": "i-0123456789abcdef0"}),
        ("gateways", {"us-west-2": "8.20.30"}),
        ("gateways", {"cellar": "8.20.30.41"}),
        ("resolvers", {"us-west-2": "10.64.32.5"}),
        ("resolvers", {"us-west-2": []}),
        ("resolvers", {"us-west-2": ["10.64.32"]}),
    ],
)
def test_an_entry_of_another_form_is_refused(key: str, entry: object) -> None:
    """Only bedplate writes the lock, so what it never writes is damage."""
    assert not is_lock(json.dumps(json.loads(TEXT) | {key: entry}))


@pytest.mark.parametrize(
    ("count", "told"), [(1, ": one0"), (8, "one6, one7"), (300, "one7, and 292 more")], ids=["one", "eight", "many"]
)
def test_the_first_that_are_missing_are_named(count: int, told: str) -> None:
    """All of a fleet is missing where it has no lock yet: a line of hundreds says less than its beginning."""
    with pytest.raises(InputError) as refused:
        refuse_names((f"one{number}" for number in range(count)), Path("fleet.yaml"))

    assert refused.value.what.endswith(told)


def test_what_to_run_is_told_for_the_file_that_was_named() -> None:
    """It is copied from the screen as it stands, wherever the file lies."""
    with pytest.raises(InputError, match="one") as refused:
        refuse_names(("one",), Path("our lab/fleet.yaml"))

    assert "`bedplate plan --write 'our lab/fleet.yaml'`" in refused.value.fix


def test_nothing_is_refused_where_nothing_is_missing() -> None:
    """The usual case."""
    refuse_names((), Path("fleet.yaml"))


HOLDER = """
import sys
from pathlib import Path
from bedplate.hold import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
NO_PID = 2**22 + 1  # one more than Linux ever gives


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a lock."""
    return tmp_path / "fleet.lock"


@pytest.fixture
def other(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return another process that holds the lock."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_writer_is_told_who_holds_the_lock(path: Path, other: subprocess.Popen[str]) -> None:
    """At once, with host, process, age and command."""
    with pytest.raises(HeldError) as refusal, held(path):
        pass

    assert f"on {os.uname().nodename}, process {other.pid}, for 0 s: -c {path}" in refusal.value.what
    assert refusal.value.exit_code == 5


def test_a_hold_ends_with_its_block(path: Path) -> None:
    """Whether the block succeeds or fails; nothing is left in the folder."""
    with pytest.raises(ZeroDivisionError), held(path):
        raise ZeroDivisionError

    with held(path):
        pass
    assert list(path.parent.iterdir()) == []


def test_a_hold_dies_with_its_holder(path: Path, other: subprocess.Popen[str]) -> None:
    """After kill -9 the next writer needs no clean-up and no patience."""
    other.send_signal(signal.SIGKILL)
    other.wait()

    with held(path):
        signature = json.loads(path.with_name(".fleet.lock.held").read_bytes())

    assert signature["pid"] == os.getpid()


@pytest.mark.parametrize("pid", [NO_PID, 10**20, "ghost"])
def test_a_dead_holder_is_never_named(path: Path, other: subprocess.Popen[str], pid: object) -> None:
    """A signature that a killed writer left says nothing about who holds the lock now."""
    dead = {"user": "ghost", "host": os.uname().nodename, "pid": pid, "since": 0.0, "command": "boo"}
    path.with_name(".fleet.lock.held").write_text(json.dumps(dead))

    with pytest.raises(HeldError, match="somebody who has not signed yet"), held(path):
        pass


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A hold in a folder that is not there is a fault of the machine."""
    with (
        pytest.raises(MachineError, match="the folder does not exist"),
        held(tmp_path / "gone" / "fleet.lock"),
    ):
        pass
