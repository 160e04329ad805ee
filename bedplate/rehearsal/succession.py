"""Which goes first when a resource is replaced, the old one or the new, and what must go with the old one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.rehearsal import property_path
from bedplate.rehearsal.difference import Difference, difference
from bedplate.rehearsal.kind import Kind
from bedplate.rehearsal.order import dependents
from bedplate.rehearsal.provider import kind_of
from bedplate.rehearsal.registration import Registration
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.unknown import UNKNOWN

# What the engine gives as the reason when a resource moves to a provider of another region.
PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class Follower:
    """A resource deleted because one it depends on goes first, and which of its inputs would replace it."""

    entry: Entry
    keys: tuple[str, ...]


def goes_first(asked: Registration, old: Entry, kind: Kind, found: Difference) -> bool:
    """Whether a resource is deleted before its replacement: as the program says, else as the provider does.

    The provider deletes first what AWS allows only once, and what keeps a name that the program chose. It has no say
    when a resource moves to another provider.
    """
    if asked.delete_first is not None:
        return asked.delete_first
    if PROVIDER in found.replace_keys:
        return False
    named = kind.naming is not None and kind.naming.key not in (*old.defaults, *found.keys)
    return kind.delete_first or named


def must_follow(gone: Entry, entries: Mapping[str, Entry], settled: Collection[str]) -> tuple[Follower, ...]:
    """Return the dependents that cannot outlive a resource deleted first, in the order they were made.

    They are those that a new value of what they took from it would replace. What the program has declared already
    is `settled`: it no longer depends on a resource that comes after it.
    """
    doomed = {gone.urn}
    found = []
    for entry in dependents(gone.urn, entries, settled):
        moved = [key for key, on in entry.property_dependencies.items() if not doomed.isdisjoint(on)]
        if entry.is_in_cloud and (keys := _replacing(entry, moved)):
            doomed.add(entry.urn)
            found.append(Follower(entry, keys))
    return tuple(found)


def unignored(asked: Registration, old: Entry | None) -> Mapping[str, Any]:
    """Return the inputs asked for, with what the program ignores as it was."""
    inputs = asked.inputs
    if old is not None:
        for path in asked.ignore_changes:
            inputs = property_path.restored(inputs, old.inputs, property_path.parse(path))
    return inputs


def _replacing(entry: Entry, moved: list[str]) -> tuple[str, ...]:
    unknown = {**entry.inputs, **dict.fromkeys(moved, UNKNOWN)}
    return difference(kind_of(entry.type), entry.inputs, unknown).replace_keys
