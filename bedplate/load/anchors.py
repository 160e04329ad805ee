"""Anchored values and the aliases that repeat them, counted so that a small file stays a small tree."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bedplate.load.node import Node, Place, key_below
from bedplate.load.refusal import Unreadable
from bedplate.spec.shown import shown

MOST_ALIASES = 100
MOST_VALUES = 30_000


class Anchors:
    """The values that a document has anchored so far, and the count of all its values, repeated ones too."""

    def __init__(self) -> None:
        self._values = 0
        self._aliases = 0
        self._held: list[str] = []
        self._nodes: dict[str, Node] = {}

    def count(self, place: Place) -> None:
        """Count one value; Unreadable when the file has too many."""
        self._values += 1
        if self._values > MOST_VALUES:
            raise Unreadable("E012", f"the file has more than {MOST_VALUES:,} values", place)

    @contextmanager
    def holding(self, anchor: str) -> Iterator[None]:
        """Know that what is read within belongs to the anchored value."""
        self._held.append(anchor)
        yield
        self._held.pop()

    def keep(self, anchor: str, node: Node) -> Node:
        """Remember an anchored value, and return it."""
        self._nodes[anchor] = node
        return node

    def repeat(self, anchor: str, key: str, named: Place, place: Place) -> Node:
        """Return the anchored value as it is at `key`; Unreadable when aliases could multiply."""
        self._aliases += 1
        name = f"*{shown(anchor)}"
        if anchor in self._held:
            raise Unreadable("E015", f"{name} lies inside the value that it repeats", place, key)
        if self._held:
            raise Unreadable("E014", f"{name} lies inside the anchored value &{shown(self._held[-1])}", place, key)
        if anchor not in self._nodes:
            raise Unreadable("E021", f"nothing before {name} is anchored by that name", place, key)
        if self._aliases > MOST_ALIASES:
            raise Unreadable("E013", f"the file has more than {MOST_ALIASES} aliases", place, key)
        return self._copy(replace(self._nodes[anchor], place=place, named=named), key)

    def _copy(self, node: Node, key: str) -> Node:
        self.count(node.place)
        if isinstance(node.value, dict):
            below = {name: self._copy(child, key_below(key, name)) for name, child in node.value.items()}
            return replace(node, key=key, value=below)
        if isinstance(node.value, tuple):
            items = tuple(self._copy(child, key_below(key, i)) for i, child in enumerate(node.value))
            return replace(node, key=key, value=items)
        return replace(node, key=key)
