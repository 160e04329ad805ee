"""A tree without its faulty parts: the smallest parts that the models refuse are taken out until they accept it."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from bedplate.load.node import Node


def without(node: Node, keys: Collection[str]) -> Node:
    """Return the node without the values of these keys below it; every value left keeps its key and place."""
    if isinstance(node.value, Mapping):
        left = {name: without(child, keys) for name, child in node.value.items() if child.key not in keys}
        return replace(node, value=left)
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(without(item, keys) for item in node.value if item.key not in keys))
    return node
