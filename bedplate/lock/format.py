"""What one entry of fleet.lock may say: a path and its block, a machine and its address, a person and an id."""

import json
import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from typing import Any

from bedplate.plan import Record
from bedplate.plan.fleet import GROUP_IDS, PEOPLE_IDS
from bedplate.plan.planner import IMAGE_ID
from bedplate.plan.space import is_nested

_REGION = r"[a-z]{2}(-[a-z]+)+-\d+"
_SLUG = r"[a-z][a-z0-9-]*"
_PATHS = (
    rf"region/{_REGION}(/zone/{_REGION}[a-z]/(edge|nodes))?",
    rf"(site|pool)/{_SLUG}",
    rf"tunnel/{_SLUG}/{_REGION}/[12]",
    rf"tunnel/{_SLUG}/{_SLUG}",
    "pods|services",
)
_PATH = re.compile("|".join(_PATHS), re.ASCII)
_MACHINE = re.compile(rf"control-\d\.{_REGION}", re.ASCII)
_IMAGE_OF = re.compile(rf"{_REGION}/(x86_64|arm64)", re.ASCII)
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_NODE = re.compile(r"[a-z0-9][a-z0-9-]*\.[a-z][a-z0-9-]*", re.ASCII)
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)
HOST_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,1400}={0,2}", re.ASCII)
_RESTORE = "restore it from its history: `git checkout -- fleet.lock`"


class NotALockError(Exception):
    """Why a text is not the lock of this fleet, how to mend it, and where, as far as that is known."""

    def __init__(self, what: str, fix: str = _RESTORE, *, line: int = 1, column: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.line = line
        self.column = column


def block_of(path: str, value: object) -> IPv4Network:
    """Return the block of a path, written as bedplate writes it."""
    if not _PATH.fullmatch(path):
        raise NotALockError(f"it names a path that bedplate never writes: {path!r}")
    try:
        block = IPv4Network(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"{path} is no block: {error}") from None
    if str(block) != value:
        raise NotALockError(f"{path} is {value}, which bedplate writes as {block}")
    return block


def address_of(name: str, value: object) -> IPv4Address:
    """Return the fixed address of a machine."""
    if not _MACHINE.fullmatch(name):
        raise NotALockError(f"it names a machine that bedplate never writes: {name!r}")
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"{name} has no address: {error}") from None


def image_of(place: str, value: object) -> str:
    """Return the image of a region and architecture."""
    if not _IMAGE_OF.fullmatch(place):
        raise NotALockError(f"it names images of a place that bedplate never writes: {place!r}")
    if not isinstance(value, str) or not IMAGE_ID.fullmatch(value):
        raise NotALockError(f"{place} has {value!r}, which is no image id")
    return value


def number_of(name: str, value: object, ids: range) -> int:
    """Return the user id of a person, or the id of a group: one of `ids`."""
    if not _ACCOUNT.fullmatch(name):
        raise NotALockError(f"it names an account that bedplate never writes: {name!r}")
    if type(value) is not int or value not in ids:
        raise NotALockError(f"{name} has {value!r}, which is no id from {ids.start} to {ids.stop - 1}")
    return value


def keys_of(name: str, value: object) -> tuple[str, ...]:
    """Return the public host keys of a machine."""
    if not _NODE.fullmatch(name):
        raise NotALockError(f"it names a machine that bedplate never writes: {name!r}")
    if not isinstance(value, list) or not value or not all(isinstance(key, str) for key in value):
        raise NotALockError(f"{name} has {value!r}, which is no list of host keys")
    if any(not HOST_KEY.fullmatch(key) for key in value):
        raise NotALockError(f"{name} has a line that is no public host key")
    return tuple(value)


def instance_of(name: str, value: object) -> str:
    """Return the EC2 instance that had the recorded host keys of a machine."""
    if not _NODE.fullmatch(name):
        raise NotALockError(f"it names a machine that bedplate never writes: {name!r}")
    if not isinstance(value, str) or not _INSTANCE.fullmatch(value):
        raise NotALockError(f"{name} has {value!r}, which is no instance id")
    return value


def gateway_of(region: str, value: object) -> IPv4Address:
    """Return the public address of a region's gateway for laptops."""
    if not re.fullmatch(_REGION, region, re.ASCII):
        raise NotALockError(f"it names a region that bedplate never writes: {region!r}")
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"{region} has no address: {error}") from None


def resolvers_of(region: str, value: object) -> tuple[IPv4Address, ...]:
    """Return the addresses of a region's resolver, those that answer laptops and sites."""
    if not isinstance(value, list) or not value:
        raise NotALockError(f"{region} has {value!r}, which is no list of addresses")
    return tuple(gateway_of(region, each) for each in value)


VERSION = 1
_KEYS = {"version", "fleet", "blocks"}
# Locks written before these were known lack them.
_MORE_KEYS = {"addresses", "images", "people", "groups", "host_keys", "instances", "gateways", "resolvers"}


def lock_text(fleet: str, record: Record) -> str:
    """Return the text of a fleet's lock."""
    blocks = {path: str(record.blocks[path]) for path in sorted(record.blocks)}
    addresses = {name: str(record.addresses[name]) for name in sorted(record.addresses)}
    images = {place: record.images[place] for place in sorted(record.images)}
    document = {
        "version": VERSION,
        "fleet": fleet,
        "blocks": blocks,
        "addresses": addresses,
        "images": images,
        "people": dict(sorted(record.people.items())),
        "groups": dict(sorted(record.groups.items())),
        "host_keys": {name: list(record.host_keys[name]) for name in sorted(record.host_keys)},
        "instances": dict(sorted(record.instances.items())),
        "gateways": {region: str(record.gateways[region]) for region in sorted(record.gateways)},
        "resolvers": {region: list(map(str, record.resolvers[region])) for region in sorted(record.resolvers)},
    }
    return json.dumps(document, indent=1) + "\n"


def parse_lock(text: str, fleet: str) -> Record:
    """Return what the lock of this fleet holds; raises NotALockError for anything but a lock."""
    document = _document(text)
    _check_head(document, fleet)
    record = Record(
        blocks={path: block_of(path, value) for path, value in _entries(document, "blocks", "paths")},
        addresses={name: address_of(name, value) for name, value in _entries(document, "addresses", "machines")},
        images={place: image_of(place, value) for place, value in _entries(document, "images", "places")},
        people={name: number_of(name, value, PEOPLE_IDS) for name, value in _entries(document, "people", "people")},
        groups={name: number_of(name, value, GROUP_IDS) for name, value in _entries(document, "groups", "groups")},
        host_keys={name: keys_of(name, value) for name, value in _entries(document, "host_keys", "machines")},
        instances={name: instance_of(name, value) for name, value in _entries(document, "instances", "machines")},
        gateways={region: gateway_of(region, value) for region, value in _entries(document, "gateways", "regions")},
        resolvers={region: resolvers_of(region, value) for region, value in _entries(document, "resolvers", "regions")},
    )
    _check_apart((path, block) for path, block in record.blocks.items() if not is_nested(path))
    _check_apart((path, block) for path, block in record.blocks.items() if is_nested(path))
    _check_nesting(record.blocks)
    _check_addresses(record.addresses)
    _check_numbers(record.people)
    _check_numbers(record.groups)
    if both := record.people.keys() & record.groups.keys():
        raise NotALockError(f"it knows {min(both)} as a person and as a group")
    return record


def _document(text: str) -> dict[str, Any]:
    before, merge, _ = text.partition("<<<<<<<")
    if merge:
        fix = "take one side whole, then `bedplate plan --write`"
        raise NotALockError("it holds an unfinished merge", fix, line=before.count("\n") + 1)
    try:
        document = json.loads(text, object_pairs_hook=_table)
    except json.JSONDecodeError as error:
        reason = f"it is cut short or was edited: {error}"
        raise NotALockError(reason, line=error.lineno, column=error.colno) from None
    except (ValueError, RecursionError) as error:
        raise NotALockError(f"it is cut short or was edited: {error}") from None
    if not isinstance(document, dict) or not document.keys() >= _KEYS:
        raise NotALockError(f"it lacks one of {', '.join(sorted(_KEYS))}")
    return document


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotALockError(f"it holds {twice} twice")
    return table


def _check_head(document: Mapping[str, Any], fleet: str) -> None:
    version, name = document["version"], document["fleet"]
    if type(version) is not int or version < VERSION:
        raise NotALockError(f"its version is {version!r}")
    if version > VERSION:
        raise NotALockError(f"a newer bedplate wrote it (format {version})", "update bedplate")
    if name != fleet:
        raise NotALockError(f"it is the lock of {name!r}, not of {fleet!r}", "keep each fleet in its own folder")
    if unknown := document.keys() - _KEYS - _MORE_KEYS:
        raise NotALockError(f"it holds unknown keys: {', '.join(sorted(unknown))}")


def _entries(document: Mapping[str, Any], key: str, noun: str) -> Iterable[tuple[str, object]]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise NotALockError(f"its {key} are no table of {noun}")
    return table.items()


def _check_apart(entries: Iterable[tuple[str, IPv4Network]]) -> None:
    # Sorted by address, so any overlap shows between neighbours.
    ordered = sorted(entries, key=lambda entry: entry[1])
    for (low, below), (high, above) in pairwise(ordered):
        if below.overlaps(above):
            raise NotALockError(f"{low} ({below}) and {high} ({above}) overlap")


def _check_nesting(blocks: Mapping[str, IPv4Network]) -> None:
    for path, block in blocks.items():
        region, zone, _ = path.partition("/zone/")
        if zone and not (region in blocks and block.subnet_of(blocks[region])):
            raise NotALockError(f"{path} ({block}) does not lie in {region}")


def _check_addresses(addresses: Mapping[str, IPv4Address]) -> None:
    owners: dict[IPv4Address, str] = {}
    for name, address in addresses.items():
        if owners.setdefault(address, name) != name:
            raise NotALockError(f"{owners[address]} and {name} have the one address {address}")


def _check_numbers(numbers: Mapping[str, int]) -> None:
    owners: dict[int, str] = {}
    for name, number in numbers.items():
        if number in owners:
            raise NotALockError(f"{owners[number]} and {name} have the same id, {number}")
        owners[number] = name
