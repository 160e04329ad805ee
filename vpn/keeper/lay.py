"""A site's tunnels, put in force: its files come to lie as they were sent, and what reads them is told.

What an end of the power left between the two is remembered, and done by the next.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path

from . import charons, tree
from .place import Place
from .shipment import GUARD, HANDOVER, IPSEC, TOGETHER, UNITS, File, Shipment, charon_of
from .trouble import Refusal

_RULES = (GUARD, HANDOVER)


def lay(place: Place, shipment: Shipment | None) -> dict[str, tuple[str, ...]]:
    """Put a shipment in force, and return what was written, taken away and started: nothing the second time.

    Raises Refusal, before anything is changed, for what bedplate never sends, where the role is not in force, and where
    somebody else would encrypt from now on and whoever sends it does not say that this is meant.
    """
    if shipment is None:
        raise Refusal("these are no files of tunnels, or not all: nothing was changed")
    _check_ground(place.root)
    place.memory.mkdir(parents=True, exist_ok=True)
    with _alone(place.memory):
        _check_engine(tree.charons_at(place.root), shipment)
        written = tree.differing(place.root, shipment.files)
        gone = tree.left_over(place.root, shipment)
        unfinished = _unfinished(place.unfinished)
        if written or gone or unfinished:
            _change(place, shipment, written, gone, unfinished)
        started = charons.start(shipment)
    return {"written": tuple(file.path for file in written), "removed": gone, "started": started}


def _change(
    place: Place, shipment: Shipment, written: tuple[File, ...], gone: tuple[str, ...], unfinished: AbstractSet[str]
) -> None:
    changed = {file.path for file in written} | unfinished
    # Of what was written by one that did not finish, nobody knows any more what it replaced.
    unsure = {charon_of(path) for path in unfinished}
    anew = {each for each in shipment.charons if each in unsure or _loses(place.root, shipment, each)}
    tree.replace(place.root, (_note(place, {*changed, *gone}), *written), _judge)
    charons.stop(gone)
    tree.remove(place.root, gone)
    charons.drop_devices(file.text for file in shipment.files if _is_connections(file.path))
    charons.tell(changed | set(gone), anew, shipment)
    place.unfinished.unlink()


def _loses(root: Path, shipment: Shipment, charon: str) -> bool:
    """Tell whether a charon's table loses a line: a tunnel that stands is not taken down by new settings."""
    path = f"{IPSEC}{charon}/table"
    kept = {line for file in shipment.files if file.path == path for line in file.text.splitlines()}
    return not set(tree.text_at(root, path).splitlines()) <= kept


def _is_connections(path: str) -> bool:
    return path.startswith(IPSEC) and path.endswith("/swanctl.conf")


def _judge(new: Path, file: File) -> None:
    if file.path in _RULES:
        charons.check_rules(new)


def _note(place: Place, changed: AbstractSet[str]) -> File:
    return File(f"/{place.unfinished.relative_to(place.root)}", json.dumps(sorted(changed)), 0o600)


def _unfinished(path: Path) -> frozenset[str]:
    return frozenset(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else frozenset()


def _check_ground(root: Path) -> None:
    for unit in (charons.GUARD_UNIT, charons.HANDOVER_UNIT):
        if not (root / UNITS.lstrip("/") / unit).is_file():
            raise Refusal(f"there is no {unit} here: apply the role guard first")


def _check_engine(there: tuple[str, ...], shipment: Shipment) -> None:
    was, will = TOGETHER in there, TOGETHER in shipment.charons
    if there and shipment.charons and was != will and not shipment.may_change_engine:
        told = (
            "charon encrypted here, and now the kernel would" if will else "the kernel encrypted here, and can no more"
        )
        raise Refusal(
            f"{told}: every tunnel would go down and start anew; nothing was changed. --change-engine does it"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
