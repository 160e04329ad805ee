"""A tree without its faulty parts, and where each part that is left has come to stand."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from bedplate.load.node import Node, key_below


def without(node: Node, keys: Collection[str]) -> Node:
    """Return the node without the values of these keys below it; every value left keeps its key and place."""
    if isinstance(node.value, dict):
        left = {name: without(child, keys) for name, child in node.value.items() if child.key not in keys}
        return replace(node, value=left)
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(without(item, keys) for item in node.value if item.key not in keys))
    return node


def standing(node: Node, key: str = "") -> Iterator[tuple[str, Node]]:
    """Yield each node by the key at which it is found now: what is left of a list has moved up."""
    yield key, node
    for name, child in zip(node.names, node.children, strict=True):
        yield from standing(child, key_below(key, name))
