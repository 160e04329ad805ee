"""fleet.lock: recording, its format, unrecorded names, and the exclusive lock of its writer."""

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

from bedplate import __version__
from bedplate.errors import HeldError, InputError, MachineError
from bedplate.lock import (
    held,
    lock_path,
    read_lock,
    record_authority,
    record_etcd,
    record_images,
    record_plan,
    renew_images,
)
from bedplate.lock.file import _LARGEST, check_recorded
from bedplate.lock.format import NotALockError, lock_text, parse_lock
from bedplate.plan import PlanFaults, Record, allocate_blocks
from tests.testlab.fleets.sketch import catalog, sketch

BOTH = sketch({"us-west-2": ["us-west-2a"], "us-east-1": ["us-east-1a"]})
WEST = sketch({"us-west-2": ["us-west-2a"]})
OLD, NEW = "ami-0000000000000000a", "ami-0000000000000000b"
EAST = sketch({"us-east-1": ["us-east-1a"]})


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Return the path of the lock of a fleet file in an empty folder."""
    return lock_path(tmp_path / "fleet.yaml")


def test_a_lock_is_in_the_folder_of_its_fleet_file(lock: Path, tmp_path: Path) -> None:
    """The fleet file and its lock are committed together."""
    assert lock == tmp_path / "fleet.lock"


def test_no_lock_is_an_empty_record(lock: Path) -> None:
    """Reading does not create the file."""
    assert read_lock(lock, "lab") == Record({})
    assert not lock.exists()


def test_recording_keeps_recorded_blocks(lock: Path) -> None:
    """Blocks of a second fleet file are allocated around those of the first."""
    record_plan(lock, WEST, catalog())

    plan = record_plan(lock, EAST, catalog()).plan

    assert str(plan.blocks["region/us-east-1"]) == "10.65.0.0/16"
    assert read_lock(lock, "lab").blocks.keys() == {**allocate_blocks(WEST, Record({})), **plan.blocks}.keys()


def test_recording_the_same_plan_writes_nothing(lock: Path) -> None:
    """The file is not touched, so git and make see no change."""
    record_plan(lock, BOTH, catalog())
    before = lock.stat().st_ino

    record_plan(lock, BOTH, catalog())

    assert lock.stat().st_ino == before


def test_a_released_block_is_not_in_the_lock(lock: Path) -> None:
    """The next new region may get it."""
    record_plan(lock, BOTH, catalog())

    record_plan(lock, EAST, catalog(), release_of=("region/us-west-2",))

    assert read_lock(lock, "lab").blocks.keys() == allocate_blocks(EAST, Record({})).keys()


def test_a_released_path_may_be_part_of_another(lock: Path) -> None:
    """The order of the paths does not matter."""
    record_plan(lock, BOTH, catalog())
    paths = ("region/us-west-2", "region/us-west-2/zone")

    recorded = record_plan(lock, EAST, catalog(), release_of=paths)

    assert set(recorded.released) == {
        path for path in allocate_blocks(BOTH, Record({})) if path.startswith("region/us-west-2")
    }


def test_an_image_of_another_process_is_kept(lock: Path) -> None:
    """Another process may record an image while this one waits for AWS."""
    record_plan(lock, WEST, catalog())
    record_images(lock, "lab", {"us-west-2/x86_64": OLD})

    record = record_images(lock, "lab", {"us-west-2/x86_64": NEW, "us-west-2/arm64": NEW})

    assert record.images == {"us-west-2/x86_64": OLD, "us-west-2/arm64": NEW}
    assert read_lock(lock, "lab") == record
    assert record.blocks


def test_a_renewed_image_replaces_the_recorded_one(lock: Path) -> None:
    """Images of other regions are kept."""
    record_images(lock, "lab", {"us-west-2/x86_64": OLD, "us-east-1/x86_64": OLD})

    renew_images(lock, "lab", {"us-west-2/x86_64": NEW})

    assert read_lock(lock, "lab").images == {"us-west-2/x86_64": NEW, "us-east-1/x86_64": OLD}


def test_images_are_not_recorded_while_another_process_writes(lock: Path) -> None:
    """There is one writer at a time."""
    with held(lock), pytest.raises(HeldError):
        record_images(lock, "lab", {"us-west-2/x86_64": OLD})

    assert not lock.exists()


def test_a_failed_plan_does_not_change_the_lock(lock: Path) -> None:
    """Planning fails before anything is recorded."""
    record_plan(lock, WEST, catalog())
    before = lock.read_bytes()

    with pytest.raises(PlanFaults):
        record_plan(lock, sketch(network={"supernet": "10.64.0.0/16"}), catalog())

    assert lock.read_bytes() == before
    assert list(lock.parent.iterdir()) == [lock]


@pytest.mark.parametrize("content", [b'{"version": 1', b"\xff\xfe{}", b"\0" * 64])
def test_a_damaged_lock_is_rejected_and_not_changed(lock: Path, content: bytes) -> None:
    """The fix says how to restore it; bedplate never repairs it."""
    lock.write_bytes(content)

    with pytest.raises(InputError, match=r"cannot use fleet\.lock: ") as error:
        record_plan(lock, WEST, catalog())

    assert "git checkout" in error.value.fix
    assert lock.read_bytes() == content


def test_a_huge_lock_is_not_read(lock: Path) -> None:
    """Its size is checked before its content."""
    with lock.open("wb") as stream:
        stream.truncate(_LARGEST + 1)

    with pytest.raises(InputError, match="the limit is"):
        read_lock(lock, "lab")


def test_a_fifo_as_lock_does_not_block(lock: Path) -> None:
    """Opening it does not wait for a writer."""
    os.mkfifo(lock)

    with pytest.raises(InputError, match="not a regular file"):
        read_lock(lock, "lab")


def test_a_broken_link_as_lock_is_an_error(lock: Path) -> None:
    """It does not mean that there is no lock yet."""
    lock.symlink_to("elsewhere.lock")

    with pytest.raises(InputError, match=r"it is a link to elsewhere\.lock, which does not exist"):
        read_lock(lock, "lab")


def test_a_lock_outside_of_the_folder_is_an_error(lock: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The checked content must be the committed content, as with the fleet file; a link in the folder is read."""
    outside = tmp_path_factory.mktemp("outside") / "fleet.lock"
    outside.write_text(lock_text("lab", Record({})))
    lock.symlink_to(outside)
    with pytest.raises(InputError, match="it is a link to a file outside"):
        read_lock(lock, "lab")

    lock.unlink()
    lock.with_name("other.lock").write_text(outside.read_text())
    lock.symlink_to("other.lock")
    assert read_lock(lock, "lab") == Record({})


def test_a_folder_as_lock_is_an_error(lock: Path) -> None:
    """The message contains the reason of the operating system."""
    lock.mkdir()

    with pytest.raises(MachineError, match=r"cannot read fleet\.lock: it is a folder"):
        read_lock(lock, "lab")


WEST_PATH = "region/us-west-2"
RECORD = Record(
    {
        WEST_PATH: IPv4Network("10.64.0.0/16"),
        f"{WEST_PATH}/zone/us-west-2a/edge": IPv4Network("10.64.0.0/24"),
        "pods": IPv4Network("10.112.0.0/13"),
        "site/cellar": IPv4Network("192.168.40.0/22"),
        "tunnel/attic/cellar": IPv4Network("169.254.64.16/30"),
        "tunnel/cellar/us-west-2/1": IPv4Network("169.254.64.0/30"),
    },
    addresses={"control-1.us-west-2": IPv4Address("10.64.32.16")},
    images={"us-west-2/x86_64": "ami-0123456789abcdef0"},
    baked={"us-west-2/worker-x86_64-580-open": "ami-0123456789abcdef1"},
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


def test_a_lock_is_formatted_for_diffs() -> None:
    """It has one sorted path per line, and a newline at the end."""
    lines = TEXT.splitlines()

    assert lines[1:5] == [' "version": 1,', f' "bedplate": "{__version__}",', ' "fleet": "lab",', ' "blocks": {']
    assert lines[5:10] == sorted(lines[5:10])
    assert TEXT.endswith("}\n")


def test_a_written_lock_is_parsed_to_the_same_record() -> None:
    """Writing and parsing lose nothing."""
    assert parse_lock(TEXT, "lab") == RECORD


def is_lock(text: str) -> bool:
    """Return whether a text is a valid lock."""
    try:
        parse_lock(text, "lab")
    except NotALockError:
        return False
    return True


def test_a_truncated_lock_is_rejected() -> None:
    """At any length before the last brace."""
    last_brace = len(TEXT) - 1

    assert [length for length in range(last_brace) if is_lock(TEXT[:length])] == []


def blocks(**changes: str) -> Callable[[dict[str, Any]], object]:
    """Return an edit that sets blocks."""
    return lambda document: document["blocks"].update(changes)


def put(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    """Return an edit that sets a top-level key."""
    return lambda document: document.update({key: value})


def drop(*keys: str) -> Callable[[dict[str, Any]], object]:
    """Return an edit that deletes the last of these nested keys."""

    def edit(document: dict[str, Any]) -> None:
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return edit


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (put("version", 2), "it has format 2, of a newer bedplate"),
        (put("version", 0), "invalid version 0"),
        (put("bedplate", "99.0.0"), f"bedplate 99.0.0 wrote it, and this is the older bedplate {__version__}"),
        (put("bedplate", "newest"), "invalid version of bedplate 'newest'"),
        (put("version", "1"), "invalid version '1'"),
        (put("fleet", "solo"), "it belongs to fleet 'solo', not to 'lab'"),
        (put("extra", 1), "unknown keys: extra"),
        (put("blocks", []), "blocks must be an object"),
        (drop("blocks"), "it requires the keys blocks, fleet, version"),
        (drop("blocks", WEST_PATH), "is not within region/us-west-2"),
        (blocks(pods="10.64.0.0/15"), "(10.64.0.0/15) and region/us-west-2 (10.64.0.0/16) overlap"),
        (blocks(pods="10.112.0.1/13"), "invalid block of pods: 10.112.0.1/13 has host bits set"),
        (blocks(pods="10.112.0.0"), "pods is 10.112.0.0, not in canonical form (10.112.0.0/32)"),
        (blocks(pods="somewhere"), "invalid block of pods"),
        (put("blocks", {"pods": 5}), "invalid block of pods"),
        (blocks(pots="10.112.0.0/13"), "invalid path 'pots'"),
        (blocks(**{"region/us-west-2/zone/us-west-2b/edge": "10.65.0.0/24"}), "is not within"),
        (blocks(**{"region/us-west-2/zone/us-west-2b/edge": "10.64.0.0/25"}), "overlap"),
    ],
)
def test_an_edited_lock_is_rejected(edit: Callable[[dict[str, Any]], object], reason: str) -> None:
    """The error has the reason and a fix."""
    document = json.loads(TEXT)
    edit(document)

    with pytest.raises(NotALockError) as error:
        parse_lock(json.dumps(document), "lab")

    assert reason in error.value.what
    assert error.value.fix


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TEXT.replace('"pods"', '"site/cellar"'), "duplicate key site/cellar"),
        (f"<<<<<<< HEAD\n{TEXT}=======\n{TEXT}>>>>>>> other\n", "it has an unfinished merge"),
        ("[" * 100_000, "incomplete or was edited"),
        (TEXT + TEXT, "incomplete or was edited"),
        ("[]", "it requires the keys"),
        ("", "incomplete or was edited"),
    ],
)
def test_another_text_is_rejected(text: str, reason: str) -> None:
    """Such as a merge conflict or an empty file."""
    with pytest.raises(NotALockError, match=reason):
        parse_lock(text, "lab")


def test_a_lock_with_only_blocks_is_valid() -> None:
    """Older versions of bedplate recorded nothing else."""
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
def test_an_invalid_entry_is_rejected(key: str, entry: object) -> None:
    """Only bedplate writes the lock, so an unknown form means damage."""
    assert not is_lock(json.dumps(json.loads(TEXT) | {key: entry}))


@pytest.mark.parametrize(
    ("count", "end"), [(1, ": one0"), (8, "one6, one7"), (300, "one7, and 292 more")], ids=["one", "eight", "many"]
)
def test_the_first_unrecorded_names_are_listed(count: int, end: str) -> None:
    """Without a lock, hundreds of names are missing; the message has the first eight."""
    with pytest.raises(InputError) as error:
        check_recorded((f"one{number}" for number in range(count)), Path("fleet.yaml"))

    assert error.value.what.endswith(end)


def test_the_fix_has_the_quoted_path_of_the_fleet_file() -> None:
    """It can be copied to a shell."""
    with pytest.raises(InputError, match="one") as error:
        check_recorded(("one",), Path("our lab/fleet.yaml"))

    assert "`bedplate plan --write 'our lab/fleet.yaml'`" in error.value.fix


def test_recorded_names_raise_nothing() -> None:
    """An empty list of unrecorded names is fine."""
    check_recorded((), Path("fleet.yaml"))


HOLDER = """
import sys
from pathlib import Path
from bedplate.files import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
NO_PID = 2**22 + 1  # above the maximum of Linux


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


def test_a_second_writer_gets_the_name_of_the_holder(path: Path, other: subprocess.Popen[str]) -> None:
    """The error comes at once, with host, process, age and command."""
    with pytest.raises(HeldError) as error, held(path):
        pass

    assert f"on {os.uname().nodename}, process {other.pid}, for 0 s: -c {path}" in error.value.what
    assert error.value.exit_code == 5


def test_the_lock_is_released_after_the_block(path: Path) -> None:
    """Also after an exception; no file is left in the folder."""
    with pytest.raises(ZeroDivisionError), held(path):
        raise ZeroDivisionError

    with held(path):
        pass
    assert list(path.parent.iterdir()) == []


def test_the_lock_of_a_killed_process_is_released(path: Path, other: subprocess.Popen[str]) -> None:
    """After SIGKILL the next writer neither waits nor cleans up."""
    other.send_signal(signal.SIGKILL)
    other.wait()

    with held(path):
        holder = json.loads(path.with_name(".fleet.lock.held").read_bytes())

    assert holder["pid"] == os.getpid()


@pytest.mark.parametrize("pid", [NO_PID, 10**20, "ghost"])
def test_a_dead_process_is_never_named_as_holder(path: Path, other: subprocess.Popen[str], pid: object) -> None:
    """A killed writer may have left its name in the lock file."""
    dead = {"user": "ghost", "host": os.uname().nodename, "pid": pid, "since": 0.0, "command": "boo"}
    path.with_name(".fleet.lock.held").write_text(json.dumps(dead))

    with pytest.raises(HeldError, match="locked by an unknown process"), held(path):
        pass


def test_a_lock_in_a_missing_folder_is_a_machine_error(tmp_path: Path) -> None:
    """The message contains the reason of the operating system."""
    with (
        pytest.raises(MachineError, match="the folder does not exist"),
        held(tmp_path / "gone" / "fleet.lock"),
    ):
        pass


OLD_KEY, NEW_KEY = (f"MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE{letter * 128}" for letter in "AB")


def test_the_authority_of_the_cluster_is_recorded_once(lock: Path) -> None:
    """Other writers keep it, and no second one replaces it: every machine of the cluster trusts the first."""
    first, second = (
        f"-----BEGIN CERTIFICATE-----\n{(letter * 64 + chr(10)) * 8}-----END CERTIFICATE-----\n" for letter in "AB"
    )
    record_authority(lock, "lab", first, OLD_KEY)
    record_plan(lock, WEST, catalog())

    assert read_lock(lock, "lab").authority == first
    with pytest.raises(InputError, match="another cluster authority"):
        record_authority(lock, "lab", second, OLD_KEY)
    lock.write_text(lock.read_text().replace("AAAA", "A;AA", 1))
    with pytest.raises(InputError, match="lines of one certificate"):
        read_lock(lock, "lab")


def test_the_etcd_cluster_is_recorded_once(lock: Path) -> None:
    """Other writers keep its id, and only a restore replaces it: a fleet has one cluster."""
    first, second = "1196a0f3c2d4e5b6", "5985a0f3c2d4e5b6"
    record_etcd(lock, "lab", first)
    record_plan(lock, WEST, catalog())

    assert read_lock(lock, "lab").etcd == first
    with pytest.raises(InputError, match=f"the lock has etcd cluster {first}, the members have {second}"):
        record_etcd(lock, "lab", second)
    assert record_etcd(lock, "lab", second, replaces=True).etcd == second
    lock.write_text(lock.read_text().replace(second, "5985"))
    with pytest.raises(InputError, match="invalid id of the etcd cluster: '5985'"):
        read_lock(lock, "lab")


def test_a_new_key_of_tokens_is_recorded_before_the_earlier_ones(lock: Path) -> None:
    """Tokens of an earlier key are valid until they end; a lock with something else than public keys is refused."""
    certificate = f"-----BEGIN CERTIFICATE-----\n{('A' * 64 + chr(10)) * 8}-----END CERTIFICATE-----\n"
    for key in (OLD_KEY, OLD_KEY, NEW_KEY):
        record_authority(lock, "lab", certificate, key)
    record_plan(lock, WEST, catalog())

    assert read_lock(lock, "lab").account_keys == (NEW_KEY, OLD_KEY)
    lock.write_text(lock.read_text().replace(NEW_KEY, NEW_KEY[:-4]))
    with pytest.raises(InputError, match="account_keys must hold public keys"):
        read_lock(lock, "lab")
