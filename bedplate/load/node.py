"""The fleet file as a tree that knows where each of its parts stands. Values only: nothing here reads text."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bedplate.checks.fault import Fault
from bedplate.spec.shown import shown

if TYPE_CHECKING:
    from bedplate.load.scalar import Scalar


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the file; both count from 1."""

    line: int
    column: int

    def of(self, fault: Fault) -> Fault:
        """Return the fault as one of this position."""
        return replace(fault, line=self.line, column=self.column)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file; `key` is its dotted path, `named` is where its key stands (its own place in a list)."""

    key: str
    value: "Scalar | dict[str, Node] | tuple[Node, ...]"
    place: Place
    named: Place

    @property
    def told_at(self) -> Place:
        """Where a fault of this value is told: at a word itself, at the key of anything larger."""
        return self.named if isinstance(self.value, dict | tuple) else self.place

    @property
    def names(self) -> tuple[str | int, ...]:
        """The keys or the indices of the values directly below."""
        if isinstance(self.value, dict):
            return tuple(self.value)
        return tuple(range(len(self.value))) if isinstance(self.value, tuple) else ()

    @property
    def children(self) -> tuple["Node", ...]:
        """The values directly below."""
        if isinstance(self.value, dict):
            return tuple(self.value.values())
        return self.value if isinstance(self.value, tuple) else ()

    def child(self, name: object) -> "Node | None":
        """Return the value of that key or index directly below, if there is one."""
        if isinstance(self.value, dict):
            return self.value.get(name) if isinstance(name, str) else None
        held = isinstance(self.value, tuple) and isinstance(name, int) and name < len(self.value)
        return self.children[name] if held and isinstance(name, int) else None

    def plain_mapping(self) -> dict[str, object]:
        """Return what lies below by its key, as dicts, tuples and scalars; nothing for what is no mapping."""
        return {str(name): child.plain() for name, child in zip(self.names, self.children, strict=True)}

    def plain(self) -> object:
        """Return the value as dicts, tuples and scalars."""
        if isinstance(self.value, dict):
            return self.plain_mapping()
        if isinstance(self.value, tuple):
            return tuple(child.plain() for child in self.value)
        return self.value

    def walk(self) -> Iterator["Node"]:
        """Yield this node and every one below it, in the order of the file."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


def key_below(key: str, name: str | int) -> str:
    """Return the dotted path of what `name` is in `key`, fit for a message."""
    return f"{key}.{shown(name)}" if key else shown(name)


def place_after(text: str) -> Place:
    """Return the position of what follows the text that a file starts with."""
    return Place(text.count("\n") + 1, len(text) - text.rfind("\n"))
