"""The order of deletions, and what goes with what."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from bedplate.rehearsal.order import closure, deletion_order, dependents, making_order
from bedplate.rehearsal.snapshot import Entry


def _entry(name: str, *dependencies: str) -> Entry:
    needs = tuple(map(_urn, dependencies))
    return Entry(urn=_urn(name), custom=True, inputs={}, outputs={}, dependencies=needs)


def _urn(name: str) -> str:
    return f"urn:pulumi:s::p::t:t:T::{name}"


def _names(entries: tuple[Entry, ...]) -> str:
    return "".join(entry.name for entry in entries)


CHAIN = (_entry("a"), _entry("b", "a"), _entry("c", "b"))


@pytest.mark.parametrize("entries", list(permutations(CHAIN)))
@pytest.mark.parametrize(("order", "wanted"), [(deletion_order, "cba"), (making_order, "abc")])
def test_need_decides_the_order(
    entries: tuple[Entry, ...], order: Callable[[tuple[Entry, ...]], tuple[Entry, ...]], wanted: str
) -> None:
    """However a state lists them, dependents are deleted first and made last."""
    assert _names(order(entries)) == wanted


NEEDING = {
    "parent": replace(_entry("b"), parent=_urn("a")),
    "deleted with": replace(_entry("b"), deleted_with=_urn("a")),
    "provider": replace(_entry("b"), provider=f"{_urn('a')}::id"),
}


@pytest.mark.parametrize("entry", NEEDING.values(), ids=NEEDING.keys())
def test_every_kind_of_need_counts(entry: Entry) -> None:
    """A child goes before its parent, what goes with another before that one, what a provider made before it."""
    assert _names(deletion_order([_entry("a"), entry])) == "ba"


def test_a_circle_is_not_waited_for() -> None:
    """Entries of different runs may need each other; all are still deleted."""
    assert sorted(_names(deletion_order([_entry("a", "b"), _entry("b", "a")]))) == ["a", "b"]


def test_dependents_are_found_through_others() -> None:
    """What depends on a dependent depends on its root."""
    entries = {entry.urn: entry for entry in CHAIN}

    assert _names(dependents(_urn("a"), entries)) == "bc"
    assert _names(dependents(_urn("a"), entries, {_urn("b")})) == ""


def test_what_must_live_is_kept_with_what_it_needs() -> None:
    """To keep one resource is to keep all that it stands on, and nothing else."""
    entries = {entry.urn: entry for entry in (*CHAIN, _entry("d", "c"))}

    assert closure([_urn("c")], entries) == {_urn("a"), _urn("b"), _urn("c")}
