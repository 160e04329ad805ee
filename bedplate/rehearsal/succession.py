"""Which goes first when a resource is replaced, the old one or the new, and what must go with the old one."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal import property_path
from bedplate.rehearsal.difference import Difference, difference
from bedplate.rehearsal.kind import Kind
from bedplate.rehearsal.order import dependents
from bedplate.rehearsal.provider import kind_of
from bedplate.rehearsal.registration import Registration
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.unknown import UNKNOWN


def goes_first(asked: Registration, old: Entry, kind: Kind, found: Difference) -> bool:
    """Whether a resource is deleted before its replacement: as the program says, else as the provider does.

    The provider deletes first what AWS allows only once, and what keeps a name that the program chose.
    """
    if asked.delete_first is not None:
        return asked.delete_first
    named = kind.naming is not None and kind.naming.key not in (*old.defaults, *found.keys)
    return kind.delete_first or named


def must_follow(gone: Entry, entries: Mapping[str, Entry], deleted: set[str]) -> tuple[Entry, ...]:
    """Return the dependents that cannot outlive a resource deleted first, in the order they were made.

    They are those that a new value of what they took from it would replace.
    """
    doomed = {gone.urn}
    found = []
    for entry in dependents(gone.urn, entries):
        moved = [key for key, on in entry.property_dependencies.items() if not doomed.isdisjoint(on)]
        if entry.is_in_cloud and entry.urn not in deleted and _replaces(entry, moved):
            doomed.add(entry.urn)
            found.append(entry)
    return tuple(found)


def unignored(asked: Registration, old: Entry | None) -> Mapping[str, Any]:
    """Return the inputs asked for, with what the program ignores as it was."""
    inputs = asked.inputs
    if old is not None:
        for path in asked.ignore_changes:
            inputs = property_path.restored(inputs, old.inputs, property_path.parse(path))
    return inputs


def _replaces(entry: Entry, moved: list[str]) -> bool:
    unknown = {**entry.inputs, **dict.fromkeys(moved, UNKNOWN)}
    return bool(difference(kind_of(entry.type), entry.inputs, unknown).replace_keys)
