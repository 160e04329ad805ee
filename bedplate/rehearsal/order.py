"""The order in which resources go: nothing before what depends on it."""

from collections.abc import Iterable, Mapping

from bedplate.rehearsal.snapshot import Entry


def needs(entry: Entry) -> frozenset[str]:
    """Return the URNs that must outlive an entry: what it depends on, its parent, its provider."""
    provider = entry.provider.rpartition("::")[0]
    return frozenset(filter(None, (*entry.dependencies, entry.parent, provider, entry.deleted_with)))


def deletion_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with dependents first: a state's entries stand in the order they were made."""
    return tuple(reversed(tuple(entries)))


def dependents(urn: str, entries: Mapping[str, Entry]) -> tuple[Entry, ...]:
    """Return the entries that depend on `urn`, directly or through others, in the order they were made."""
    reached = {urn}
    found = []
    for entry in entries.values():
        if entry.urn not in reached and not reached.isdisjoint(entry.dependencies):
            reached.add(entry.urn)
            found.append(entry)
    return tuple(found)


def closure(urns: Iterable[str], entries: Mapping[str, Entry]) -> frozenset[str]:
    """Return `urns` and everything that must live for them to live."""
    reached: set[str] = set()
    waiting = [urn for urn in urns if urn in entries]
    while waiting:
        urn = waiting.pop()
        if urn not in reached:
            reached.add(urn)
            waiting.extend(found for found in needs(entries[urn]) if found in entries)
    return frozenset(reached)
