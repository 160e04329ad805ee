"""fleet.lock as text: sorted JSON that reads well in a diff, and its strict reader."""

import json
import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from itertools import pairwise
from typing import Any

from bedplate.plan import Record
from bedplate.plan.paths import is_nested

VERSION = 1
_KEYS = {"version", "fleet", "blocks"}
_REGION = r"[a-z]{2}(-[a-z]+)+-\d+"
_SLUG = r"[a-z][a-z0-9-]*"
_PATHS = (
    rf"region/{_REGION}(/zone/{_REGION}[a-z]/(edge|nodes))?",
    rf"(site|pool)/{_SLUG}",
    rf"tunnel/{_SLUG}/{_REGION}/[12]",
    "pods|services",
)
_PATH = re.compile("|".join(_PATHS), re.ASCII)
_RESTORE = "restore it from its history: `git checkout -- fleet.lock`"


class NotALockError(Exception):
    """Why a text is not the lock of this fleet, how to mend it, and where, as far as that is known."""

    def __init__(self, what: str, fix: str = _RESTORE, *, line: int = 1, column: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.line = line
        self.column = column


def lock_text(fleet: str, record: Record) -> str:
    """Return the text of a fleet's lock."""
    blocks = {path: str(record.blocks[path]) for path in sorted(record.blocks)}
    return json.dumps({"version": VERSION, "fleet": fleet, "blocks": blocks}, indent=1) + "\n"


def parse_lock(text: str, fleet: str) -> Record:
    """Return what the lock of this fleet holds; raises NotALockError for anything but a lock."""
    document = _document(text)
    _check_head(document, fleet)
    blocks = document["blocks"]
    if not isinstance(blocks, dict):
        raise NotALockError("its blocks are no table of paths")
    record = Record({path: _block(path, value) for path, value in blocks.items()})
    _check_apart((path, block) for path, block in record.blocks.items() if not is_nested(path))
    _check_apart((path, block) for path, block in record.blocks.items() if is_nested(path))
    _check_nesting(record.blocks)
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
    if document.keys() != _KEYS:
        raise NotALockError(f"it holds unknown keys: {', '.join(sorted(document.keys() - _KEYS))}")


def _block(path: str, value: object) -> IPv4Network:
    if not _PATH.fullmatch(path):
        raise NotALockError(f"it names a path that bedplate never writes: {path!r}")
    try:
        block = IPv4Network(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"{path} is no block: {error}") from None
    if str(block) != value:
        raise NotALockError(f"{path} is {value}, which bedplate writes as {block}")
    return block


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
