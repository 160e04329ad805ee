"""The resources of stacks, found by kind and by what they refer to."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from bedplate.audit.node import Node
from bedplate.audit.value import words


class Graph:
    """The resources of one stack or of several, with what it takes to look them up at once."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = tuple(nodes)
        self._kinds: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            self._kinds[node.kind].append(node)

    def of(self, *kinds: str) -> Iterator[Node]:
        """Yield the resources of these kinds."""
        for kind in kinds:
            yield from self._kinds.get(kind, ())

    def targets(self, node: Node, key: str, *kinds: str, ident: str = "") -> tuple[Node, ...]:
        """Return what a property refers to: by its value (or `ident`), or by dependency where that cannot be seen."""
        value = ident or node.inputs.get(key)
        named = [self._idents.get((kind, word)) for kind in kinds for word in words(value)]
        found = tuple(one for one in named if one is not None)
        if found or words(value):
            return found
        on = (self._urns.get(urn) for urn in node.property_dependencies.get(key, ()))
        return tuple(one for one in on if one is not None and one.kind in kinds)

    def guards(self, guard: str, key: str, guarded: str) -> dict[str, list[Node]]:
        """Return the resources of the kind `guard` by the URN of the `guarded` one that their `key` names."""
        table: dict[str, list[Node]] = defaultdict(list)
        for node in self.of(guard):
            for target in self.targets(node, key, guarded):
                table[target.urn].append(node)
        return table

    @cached_property
    def _urns(self) -> dict[str, Node]:
        return {node.urn: node for node in self.nodes}

    @cached_property
    def _idents(self) -> dict[tuple[str, str], Node]:
        return {(node.kind, ident): node for node in self.nodes for ident in node.identities()}
