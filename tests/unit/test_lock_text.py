"""The text of fleet.lock: one way to write it, and a reader that takes nothing else."""

import json
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from bedplate.lock.entry import NotALockError
from bedplate.lock.text import lock_text, parse_lock
from bedplate.plan import Record

WEST = "region/us-west-2"
RECORD = Record(
    {
        WEST: IPv4Network("10.64.0.0/16"),
        f"{WEST}/zone/us-west-2a/edge": IPv4Network("10.64.0.0/24"),
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
        (drop("blocks", WEST), "does not lie in region/us-west-2"),
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
