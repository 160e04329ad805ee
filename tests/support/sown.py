"""Defects planted in copies of what stacks hold, each beside its good twin: the table is tests/data/judges."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.audit.node import kind_of

Node = dict[str, Any]
Row = Mapping[str, Any]
STACK = "lab.us-west-2"


def twin(row: Row, graph: Iterable[Node]) -> list[Node]:
    """Return the resources that a row takes, untouched; the one that its defect changes comes first."""
    known = {_called(node): node for node in graph}
    wanted = [one if "/" in one.split()[0] else f"{row.get('stack', STACK)}/{one}" for one in row["of"]]
    return copy.deepcopy([known[one] for one in wanted])


def sown(row: Row, graph: Iterable[Node]) -> list[Node]:
    """Return the same with the defect planted."""
    nodes = twin(row, graph)
    for way, value in row.get("set", {}).items():
        holder, key = _holder(nodes[0], way)
        holder[key] = value
    for way in row.get("unset", ()):
        holder, key = _holder(nodes[0], way)
        del holder[key]
    return [node for node in nodes if _kind(node) != row.get("without")]


def _called(node: Node) -> str:
    return f"{node['urn'].split(':')[2]}/{_kind(node)} {node['name']}"


def _kind(node: Node) -> str:
    """Return the type in short; a provider is called by its package alone."""
    return kind_of(node["type"]).removeprefix("pulumi:providers:")


def _holder(node: Node, way: str) -> tuple[Any, Any]:
    """Return the object or list that holds a property, and its key there; what is not there yet is set at the top."""
    holder: Any = node["inputs"]
    *path, last = (int(word) if word.isdecimal() else word for word in way.split("."))
    for word in path:
        holder = holder[word]
    return holder, last
