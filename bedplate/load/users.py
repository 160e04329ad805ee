"""The few facts about a fleet that `vpn add` needs, read without the models of a fleet, which are slow to import."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from bedplate.load.source import read_source
from bedplate.load.yaml import Composer, Node, Unreadable


@dataclass(frozen=True, slots=True)
class Users:
    """The name of a fleet, the names of its people, and the places of their laptops' gateways."""

    fleet: str
    people: tuple[str, ...]
    gateways: tuple[str, ...]


def read_users(path: Path) -> Users | None:
    """Return the users of a fleet file, or None if the file is not valid so far."""
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
    """Yield the place of each gateway of laptops."""
    below: Node | None = tree
    for key in ("vpn", "laptops", "gateways"):
        below = below.child(key) if below else None
    for gateway in below.children if below else ():
        place = gateway.child("region") or gateway.child("site")
        if place is not None and isinstance(place.value, str):
            yield place.value


def read_pools(lock: Path, places: Iterable[str]) -> tuple[IPv4Network, ...]:
    """Return the address pools of these places from the lock, or none if one of them is missing."""
    if not lock.is_file():  # a fault of a missing file would import the rules of all checks
        return ()
    try:
        blocks = json.loads(read_source(lock))["blocks"]
        return tuple(IPv4Network(str(blocks[f"pool/{place}"])) for place in places)
    except (Unreadable, ValueError, LookupError, TypeError, RecursionError):
        return ()
