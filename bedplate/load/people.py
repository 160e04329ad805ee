"""Who uses a fleet, read without the rest: for commands that are to answer at once and need nothing else of the file.

The whole file is not judged here; where even this much cannot be read, `load_fleet` says all that is wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bedplate.load.compose import Composer
from bedplate.load.node import Node
from bedplate.load.refusal import Unreadable
from bedplate.load.source import read_source


@dataclass(frozen=True, slots=True)
class Users:
    """The name of a fleet, those of its people, and the places of their laptops' gateways."""

    fleet: str
    people: tuple[str, ...]
    gateways: tuple[str, ...]


def read_users(path: Path) -> Users | None:
    """Return who uses the fleet of a file, or None where the file is not one that can be read so far."""
    try:
        composer = Composer(read_source(path))
        tree = composer.compose()
    except Unreadable:
        return None
    fleet, people = tree.child("name"), tree.child("people")
    if composer.faults or fleet is None or not isinstance(fleet.value, str):
        return None
    return Users(fleet.value, _names(people), tuple(_gateways(tree)))


def _names(people: Node | None) -> tuple[str, ...]:
    return tuple(people.value) if people is not None and isinstance(people.value, dict) else ()


def _gateways(tree: Node) -> Iterator[str]:
    """Yield the place of each gateway, as far as the file says one."""
    below: Node | None = tree
    for key in ("vpn", "laptops", "gateways"):
        below = below.child(key) if below else None
    for gateway in below.children if below else ():
        place = gateway.child("region") or gateway.child("site")
        if place is not None and isinstance(place.value, str):
            yield place.value
