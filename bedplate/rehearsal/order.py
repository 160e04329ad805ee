"""The order in which resources go: nothing before what depends on it."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from bedplate.rehearsal.snapshot import Entry


def needs(entry: Entry) -> frozenset[str]:
    """Return the URNs that must outlive an entry: what it depends on, its parent, its provider."""
    provider = entry.provider.rpartition("::")[0]
    return frozenset(filter(None, (*entry.dependencies, entry.parent, provider, entry.deleted_with)))


def deletion_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with dependents first, the latest first among equals.

    A replaced entry and its replacement have one URN: what needs one of them goes before both.
    """
    return tuple(_waves(list(entries)))


def _waves(rest: list[Entry]) -> Iterator[Entry]:
    while rest:
        needed = frozenset[str]().union(*map(needs, rest))
        # Resources of different runs may need each other in a circle: they go together.
        wave = [entry for entry in rest if entry.urn not in needed] or rest
        yield from reversed(wave)
        going = set(map(id, wave))
        rest = [entry for entry in rest if id(entry) not in going]


def making_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with dependents last."""
    return tuple(reversed(deletion_order(entries)))


def dependents(urn: str, entries: Mapping[str, Entry], without: Collection[str] = frozenset()) -> tuple[Entry, ...]:
    """Return the entries that depend on `urn`, directly or through others, in the order they were made.

    Those `without` are left out, and what depends on `urn` through them alone.
    """
    reached = {urn}
    found = []
    for entry in entries.values():
        if entry.urn not in without and entry.urn != urn and not reached.isdisjoint(entry.dependencies):
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
