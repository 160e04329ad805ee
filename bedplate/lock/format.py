"""The format of fleet.lock: serialization, and strict parsing of every entry."""

import json
import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from typing import Any

from bedplate import __version__
from bedplate.plan import Record
from bedplate.plan.fleet import GROUP_IDS, PEOPLE_IDS
from bedplate.plan.planner import IMAGE_ID
from bedplate.plan.record import FORMING
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
_BAKED_FOR = re.compile(rf"{_REGION}/(workbench|worker)-(x86_64|arm64)[a-z0-9-]*", re.ASCII)
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_NODE = re.compile(r"[a-z0-9][a-z0-9-]*\.[a-z][a-z0-9-]*", re.ASCII)
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)
HOST_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,1400}={0,2}", re.ASCII)
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/]{1,64}={0,2}\n){4,40}-----END CERTIFICATE-----\n", re.ASCII
)
ETCD_ID = re.compile(rf"[0-9a-f]{{16}}|{FORMING}", re.ASCII)
# A public key on P-384, which all keys of bedplate are on.
_ACCOUNT_KEY = re.compile(r"MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE[A-Za-z0-9+/]{128}", re.ASCII)
_RESTORE = "restore it: `git checkout -- fleet.lock`"


class NotALockError(Exception):
    """The text is not the lock of this fleet: reason, fix and position."""

    def __init__(self, what: str, fix: str = _RESTORE, *, line: int = 1, column: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.line = line
        self.column = column


def block_of(path: str, value: object) -> IPv4Network:
    """Return the block of a path, in canonical form."""
    if not _PATH.fullmatch(path):
        raise NotALockError(f"invalid path {path!r}")
    try:
        block = IPv4Network(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"invalid block of {path}: {error}") from None
    if str(block) != value:
        raise NotALockError(f"{path} is {value}, not in canonical form ({block})")
    return block


def address_of(name: str, value: object) -> IPv4Address:
    """Return the fixed address of a machine."""
    if not _MACHINE.fullmatch(name):
        raise NotALockError(f"invalid machine name {name!r}")
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"invalid address of {name}: {error}") from None


def image_of(place: str, value: object) -> str:
    """Return the image of a region and architecture."""
    if not _IMAGE_OF.fullmatch(place):
        raise NotALockError(f"invalid region and architecture {place!r}")
    return _image_id(place, value)


def baked_of(place: str, value: object) -> str:
    """Return the baked image of a region and kind."""
    if not _BAKED_FOR.fullmatch(place):
        raise NotALockError(f"invalid region and kind of image {place!r}")
    return _image_id(place, value)


def _image_id(place: str, value: object) -> str:
    if not isinstance(value, str) or not IMAGE_ID.fullmatch(value):
        raise NotALockError(f"invalid image id of {place}: {value!r}")
    return value


def number_of(name: str, value: object, ids: range) -> int:
    """Return the id of a person or group, which must be one of `ids`."""
    if not _ACCOUNT.fullmatch(name):
        raise NotALockError(f"invalid account name {name!r}")
    if type(value) is not int or value not in ids:
        raise NotALockError(f"invalid id of {name}: {value!r} (must be {ids.start} to {ids.stop - 1})")
    return value


def keys_of(name: str, value: object) -> tuple[str, ...]:
    """Return the public host keys of a machine."""
    if not _NODE.fullmatch(name):
        raise NotALockError(f"invalid machine name {name!r}")
    if not isinstance(value, list) or not value or not all(isinstance(key, str) for key in value):
        raise NotALockError(f"invalid host keys of {name}: {value!r}")
    if any(not HOST_KEY.fullmatch(key) for key in value):
        raise NotALockError(f"invalid host key of {name}")
    return tuple(value)


def instance_of(name: str, value: object) -> str:
    """Return the EC2 instance of a machine's recorded host keys."""
    if not _NODE.fullmatch(name):
        raise NotALockError(f"invalid machine name {name!r}")
    if not isinstance(value, str) or not _INSTANCE.fullmatch(value):
        raise NotALockError(f"invalid instance id of {name}: {value!r}")
    return value


def gateway_of(region: str, value: object) -> IPv4Address:
    """Return the public address of a region's laptop gateway."""
    if not re.fullmatch(_REGION, region, re.ASCII):
        raise NotALockError(f"invalid region {region!r}")
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"invalid address of {region}: {error}") from None


def resolvers_of(region: str, value: object) -> tuple[IPv4Address, ...]:
    """Return the addresses of a region's inbound DNS resolver."""
    if not isinstance(value, list) or not value:
        raise NotALockError(f"invalid addresses of {region}: {value!r}")
    return tuple(gateway_of(region, address) for address in value)


def authority_of(value: object) -> str:
    """Return the certificate of the cluster's authority from its lines; empty without one."""
    lines = value if isinstance(value, list) and all(isinstance(line, str) for line in value) else [""]
    text = "".join(f"{line}\n" for line in lines)
    if text and not _CERTIFICATE.fullmatch(text):
        raise NotALockError("authority must hold the lines of one certificate in PEM")
    return text


def etcd_of(value: object) -> str:
    """Return the id of the etcd cluster; empty without one."""
    if value != "" and not (isinstance(value, str) and ETCD_ID.fullmatch(value)):
        raise NotALockError(f"invalid id of the etcd cluster: {value!r}")
    return str(value)


def account_keys_of(value: object) -> tuple[str, ...]:
    """Return the public keys of the cluster's service account tokens."""
    if not isinstance(value, list) or not all(isinstance(key, str) and _ACCOUNT_KEY.fullmatch(key) for key in value):
        raise NotALockError("account_keys must hold public keys on P-384, as base64 of their DER")
    return tuple(value)


VERSION = 1
_RELEASE = re.compile(r"\d{1,4}\.\d{1,4}\.\d{1,4}")
_KEYS = {"version", "fleet", "blocks"}
# Older locks lack these keys.
_OPTIONAL_KEYS = {
    "bedplate",
    "addresses",
    "images",
    "baked",
    "people",
    "groups",
    "host_keys",
    "instances",
    "gateways",
    "resolvers",
    "authority",
    "etcd",
    "account_keys",
}


def lock_text(fleet: str, record: Record) -> str:
    """Return the text of a fleet's lock."""
    blocks = {path: str(record.blocks[path]) for path in sorted(record.blocks)}
    addresses = {name: str(record.addresses[name]) for name in sorted(record.addresses)}
    images = {place: record.images[place] for place in sorted(record.images)}
    document = {
        "version": VERSION,
        "bedplate": __version__,
        "fleet": fleet,
        "blocks": blocks,
        "addresses": addresses,
        "images": images,
        **({"baked": dict(sorted(record.baked.items()))} if record.baked else {}),
        "people": dict(sorted(record.people.items())),
        "groups": dict(sorted(record.groups.items())),
        "host_keys": {name: list(record.host_keys[name]) for name in sorted(record.host_keys)},
        "instances": dict(sorted(record.instances.items())),
        "gateways": {region: str(record.gateways[region]) for region in sorted(record.gateways)},
        "resolvers": {region: list(map(str, record.resolvers[region])) for region in sorted(record.resolvers)},
        **({"authority": record.authority.splitlines()} if record.authority else {}),
        **({"etcd": record.etcd} if record.etcd else {}),
        **({"account_keys": list(record.account_keys)} if record.account_keys else {}),
    }
    return json.dumps(document, indent=1) + "\n"


def parse_lock(text: str, fleet: str) -> Record:
    """Return the content of this fleet's lock; raise NotALockError if the text is invalid."""
    document = _document(text)
    _check_head(document, fleet)
    record = Record(
        blocks={path: block_of(path, value) for path, value in _entries(document, "blocks")},
        addresses={name: address_of(name, value) for name, value in _entries(document, "addresses")},
        images={place: image_of(place, value) for place, value in _entries(document, "images")},
        baked={place: baked_of(place, value) for place, value in _entries(document, "baked")},
        people={name: number_of(name, value, PEOPLE_IDS) for name, value in _entries(document, "people")},
        groups={name: number_of(name, value, GROUP_IDS) for name, value in _entries(document, "groups")},
        host_keys={name: keys_of(name, value) for name, value in _entries(document, "host_keys")},
        instances={name: instance_of(name, value) for name, value in _entries(document, "instances")},
        gateways={region: gateway_of(region, value) for region, value in _entries(document, "gateways")},
        resolvers={region: resolvers_of(region, value) for region, value in _entries(document, "resolvers")},
        authority=authority_of(document.get("authority", [])),
        etcd=etcd_of(document.get("etcd", "")),
        account_keys=account_keys_of(document.get("account_keys", [])),
    )
    _check_overlaps((path, block) for path, block in record.blocks.items() if not is_nested(path))
    _check_overlaps((path, block) for path, block in record.blocks.items() if is_nested(path))
    _check_nesting(record.blocks)
    _check_addresses(record.addresses)
    _check_numbers(record.people)
    _check_numbers(record.groups)
    if both := record.people.keys() & record.groups.keys():
        raise NotALockError(f"{min(both)} is both a person and a group")
    return record


def _document(text: str) -> dict[str, Any]:
    before, merge, _ = text.partition("<<<<<<<")
    if merge:
        fix = "keep one side completely, then run `bedplate plan --write`"
        raise NotALockError("it has an unfinished merge", fix, line=before.count("\n") + 1)
    try:
        document = json.loads(text, object_pairs_hook=_table)
    except json.JSONDecodeError as error:
        reason = f"it is incomplete or was edited: {error}"
        raise NotALockError(reason, line=error.lineno, column=error.colno) from None
    except (ValueError, RecursionError) as error:
        raise NotALockError(f"it is incomplete or was edited: {error}") from None
    if not isinstance(document, dict) or not document.keys() >= _KEYS:
        raise NotALockError(f"it requires the keys {', '.join(sorted(_KEYS))}")
    return document


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise NotALockError(f"duplicate key {duplicate}")
    return table


def _check_head(document: Mapping[str, Any], fleet: str) -> None:
    version, name = document["version"], document["fleet"]
    if type(version) is not int or version < VERSION:
        raise NotALockError(f"invalid version {version!r}")
    if version > VERSION:
        raise NotALockError(f"it has format {version}, of a newer bedplate", "update bedplate")
    _check_tool(document.get("bedplate", __version__))
    if name != fleet:
        raise NotALockError(f"it belongs to fleet {name!r}, not to {fleet!r}", "keep each fleet in its own folder")
    if unknown := document.keys() - _KEYS - _OPTIONAL_KEYS:
        raise NotALockError(f"unknown keys: {', '.join(sorted(unknown))}")


def _check_tool(written_by: object) -> None:
    """Raise NotALockError if a newer bedplate wrote the lock: this one may plan other addresses."""
    if not isinstance(written_by, str) or not _RELEASE.fullmatch(written_by):
        raise NotALockError(f"invalid version of bedplate {written_by!r}")
    if _release(written_by) > _release(__version__):
        reason = f"bedplate {written_by} wrote it, and this is the older bedplate {__version__}"
        raise NotALockError(reason, "run `git pull` and `make setup` in the clone of bedplate")


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _entries(document: Mapping[str, Any], key: str) -> Iterable[tuple[str, object]]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise NotALockError(f"{key} must be an object")
    return table.items()


def _check_overlaps(entries: Iterable[tuple[str, IPv4Network]]) -> None:
    # In address order, any overlap is between neighbours.
    ordered = sorted(entries, key=lambda entry: entry[1])
    for (low, below), (high, above) in pairwise(ordered):
        if below.overlaps(above):
            raise NotALockError(f"{low} ({below}) and {high} ({above}) overlap")


def _check_nesting(blocks: Mapping[str, IPv4Network]) -> None:
    for path, block in blocks.items():
        region, zone, _ = path.partition("/zone/")
        if zone and not (region in blocks and block.subnet_of(blocks[region])):
            raise NotALockError(f"{path} ({block}) is not within {region}")


def _check_addresses(addresses: Mapping[str, IPv4Address]) -> None:
    owners: dict[IPv4Address, str] = {}
    for name, address in addresses.items():
        if owners.setdefault(address, name) != name:
            raise NotALockError(f"{owners[address]} and {name} have the same address {address}")


def _check_numbers(numbers: Mapping[str, int]) -> None:
    owners: dict[int, str] = {}
    for name, number in numbers.items():
        if number in owners:
            raise NotALockError(f"{owners[number]} and {name} have the same id {number}")
        owners[number] = name
