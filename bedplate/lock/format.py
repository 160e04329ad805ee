"""The format of fleet.lock: serialization, and strict parsing of every entry."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
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
_MACHINE = re.compile(rf"(control-\d|hub)\.{_REGION}", re.ASCII)
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


def _block(path: str, value: object) -> IPv4Network:
    """Return the block of a path, in canonical form."""
    try:
        block = IPv4Network(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"invalid block of {path}: {error}") from None
    if str(block) != value:
        raise NotALockError(f"{path} is {value}, not in canonical form ({block})")
    return block


def _address(name: str, value: object) -> IPv4Address:
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"invalid address of {name}: {error}") from None


def _addresses(region: str, value: object) -> tuple[IPv4Address, ...]:
    if not isinstance(value, list) or not value:
        raise NotALockError(f"invalid addresses of {region}: {value!r}")
    return tuple(_address(region, address) for address in value)


def _image(place: str, value: object) -> str:
    if not isinstance(value, str) or not IMAGE_ID.fullmatch(value):
        raise NotALockError(f"invalid image id of {place}: {value!r}")
    return value


def _instance(name: str, value: object) -> str:
    if not isinstance(value, str) or not _INSTANCE.fullmatch(value):
        raise NotALockError(f"invalid instance id of {name}: {value!r}")
    return value


def _number(ids: range, name: str, value: object) -> int:
    """Return the id of a person or group, which must be one of `ids`."""
    if type(value) is not int or value not in ids:
        raise NotALockError(f"invalid id of {name}: {value!r} (must be {ids.start} to {ids.stop - 1})")
    return value


def _host_keys(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(key, str) for key in value):
        raise NotALockError(f"invalid host keys of {name}: {value!r}")
    if any(not HOST_KEY.fullmatch(key) for key in value):
        raise NotALockError(f"invalid host key of {name}")
    return tuple(value)


def _unchanged(value: Any) -> object:  # noqa: ANN401  any value of a record
    return value


@dataclass(frozen=True, slots=True)
class _Table:
    """An object of the lock: what its names are, and how their values are read and written."""

    noun: str
    pattern: re.Pattern[str]
    read: Callable[[str, object], object]
    write: Callable[[Any], object] = _unchanged

    def parse(self, key: str, table: object) -> dict[str, object]:
        """Return the values of a table by name."""
        if not isinstance(table, dict):
            raise NotALockError(f"{key} must be an object")
        for name in table:
            if not self.pattern.fullmatch(name):
                raise NotALockError(f"invalid {self.noun} {name!r}")
        return {name: self.read(name, value) for name, value in table.items()}


# The mappings of a record, in the order of the file.
_TABLES = {
    "blocks": _Table("path", _PATH, _block, str),
    "addresses": _Table("machine name", _MACHINE, _address, str),
    "images": _Table("region and architecture", _IMAGE_OF, _image),
    "baked": _Table("region and kind of image", _BAKED_FOR, _image),
    "people": _Table("account name", _ACCOUNT, partial(_number, PEOPLE_IDS)),
    "groups": _Table("account name", _ACCOUNT, partial(_number, GROUP_IDS)),
    "host_keys": _Table("machine name", _NODE, _host_keys, list),
    "instances": _Table("machine name", _NODE, _instance),
    "gateways": _Table("region", re.compile(_REGION, re.ASCII), _address, str),
    "resolvers": _Table("region", re.compile(_REGION, re.ASCII), _addresses, lambda each: list(map(str, each))),
}


def _authority(value: object) -> str:
    """Return the certificate of the cluster's authority from its lines; empty without one."""
    lines = value if isinstance(value, list) and all(isinstance(line, str) for line in value) else [""]
    text = "".join(f"{line}\n" for line in lines)
    if text and not _CERTIFICATE.fullmatch(text):
        raise NotALockError("authority must hold the lines of one certificate in PEM")
    return text


def _etcd(value: object) -> str:
    """Return the id of the etcd cluster; empty without one."""
    if value != "" and not (isinstance(value, str) and ETCD_ID.fullmatch(value)):
        raise NotALockError(f"invalid id of the etcd cluster: {value!r}")
    return str(value)


def _account_keys(value: object) -> tuple[str, ...]:
    """Return the public keys of the cluster's service account tokens."""
    if not isinstance(value, list) or not all(isinstance(key, str) and _ACCOUNT_KEY.fullmatch(key) for key in value):
        raise NotALockError("account_keys must hold public keys on P-384, as base64 of their DER")
    return tuple(value)


VERSION = 1
_RELEASE = re.compile(r"\d{1,4}\.\d{1,4}\.\d{1,4}")
_KEYS = {"version", "fleet", "blocks"}
# Older locks lack these keys, and the other tables.
_OPTIONAL_KEYS = {"bedplate", "authority", "etcd", "account_keys", *_TABLES}


def lock_text(fleet: str, record: Record) -> str:
    """Return the text of a fleet's lock."""
    tables = {
        key: {name: table.write(value) for name, value in sorted(getattr(record, key).items())}
        for key, table in _TABLES.items()
    }
    if not record.baked:
        del tables["baked"]
    document = {
        "version": VERSION,
        "bedplate": __version__,
        "fleet": fleet,
        **tables,
        **({"authority": record.authority.splitlines()} if record.authority else {}),
        **({"etcd": record.etcd} if record.etcd else {}),
        **({"account_keys": list(record.account_keys)} if record.account_keys else {}),
    }
    return json.dumps(document, indent=1) + "\n"


def parse_lock(text: str, fleet: str) -> Record:
    """Return the content of this fleet's lock; raise NotALockError if the text is invalid."""
    document = _document(text)
    _check_head(document, fleet)
    tables: dict[str, Any] = {key: table.parse(key, document.get(key, {})) for key, table in _TABLES.items()}
    record = Record(
        **tables,
        authority=_authority(document.get("authority", [])),
        etcd=_etcd(document.get("etcd", "")),
        account_keys=_account_keys(document.get("account_keys", [])),
    )
    _check_overlaps((path, block) for path, block in record.blocks.items() if not is_nested(path))
    _check_overlaps((path, block) for path, block in record.blocks.items() if is_nested(path))
    _check_nesting(record.blocks)
    _check_unique(record.addresses, "address")
    _check_unique(record.people, "id")
    _check_unique(record.groups, "id")
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


def _check_unique(values: Mapping[str, object], noun: str) -> None:
    owners: dict[object, str] = {}
    for name, value in values.items():
        if owners.setdefault(value, name) != name:
            raise NotALockError(f"{owners[value]} and {name} have the same {noun} {value}")
