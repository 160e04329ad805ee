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
from .shipment import CHARON, CONNECTIONS, GUARD, TABLE, UNITS, File, Shipment
from .trouble import Refusal


def lay(place: Place, shipment: Shipment | None) -> dict[str, tuple[str, ...]]:
    """Put a shipment in force, and return what was written, taken away and started: nothing the second time.

    Raises Refusal, before anything is changed, for what bedplate never sends, and where the role is not in force.
    """
    if shipment is None:
        raise Refusal("these are no files of tunnels, or not all: nothing was changed")
    _check_ground(place.root)
    place.memory.mkdir(parents=True, exist_ok=True)
    with _alone(place.memory):
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
    # What an unfinished run replaced is not known any more.
    is_anew = any(path.startswith(CHARON) for path in unfinished) or _loses_a_tunnel(place.root, shipment)
    tree.replace(place.root, (_note(place, {*changed, *gone}), *written), _judge)
    charons.stop(gone)
    tree.remove(place.root, gone)
    charons.drop_devices(shipment.text(CONNECTIONS))
    charons.tell(changed | set(gone), is_anew=is_anew)
    place.unfinished.unlink()


def _loses_a_tunnel(root: Path, shipment: Shipment) -> bool:
    """Tell whether the table loses a line: new settings alone do not take a tunnel down."""
    return not set(tree.text_at(root, TABLE).splitlines()) <= set(shipment.text(TABLE).splitlines())


def _judge(new: Path, file: File) -> None:
    if file.path == GUARD:
        charons.check_rules(new)


def _note(place: Place, changed: AbstractSet[str]) -> File:
    return File(f"/{place.unfinished.relative_to(place.root)}", json.dumps(sorted(changed)), 0o600)


def _unfinished(path: Path) -> frozenset[str]:
    return frozenset(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else frozenset()


def _check_ground(root: Path) -> None:
    if not (root / UNITS.lstrip("/") / charons.GUARD_UNIT).is_file():
        raise Refusal(f"there is no {charons.GUARD_UNIT} here: apply the role guard first")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
