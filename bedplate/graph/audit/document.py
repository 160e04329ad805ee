"""Resources of a graph, with properties and faults. A property can be missing, masked as a secret, or unknown."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from bedplate.errors import InputError
from bedplate.foreign import LARGE, parse_json
from bedplate.rules import Level, Rule

# Placeholders of hidden values: ours, and the engine's for secrets and unknown values.
_MASKS = frozenset(
    {"[secret]", "[unknown]", "UNKNOWN", "output<string>", "output<object>", "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}
)
_SIGNATURE = "4dabf18193072939515e22adb298388d"

Properties = Mapping[str, Any]


def is_seen(value: object) -> bool:
    """Return whether the value is visible: neither secret nor unknown."""
    if isinstance(value, str):
        return value not in _MASKS
    return not (isinstance(value, dict) and _SIGNATURE in value)


def is_on(holder: Properties, key: str) -> bool:
    """Return whether a boolean property is true or hidden."""
    value = holder.get(key)
    return not is_seen(value) or value is True or (isinstance(value, str) and value.lower() == "true")


def has_value(holder: Properties, key: str, *accepted: str) -> bool:
    """Return whether a property has one of the accepted values or is hidden."""
    value = holder.get(key)
    return value in accepted or not is_seen(value)


def words(value: object) -> tuple[str, ...]:
    """Return the visible strings of a list, or of a single string."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(item for item in items if isinstance(item, str) and is_seen(item))


def parts(value: object) -> tuple[Properties, ...]:
    """Return the visible objects of a list, or of a single object."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(item for item in items if isinstance(item, dict) and is_seen(item))


def part(holder: Properties, key: str) -> Properties:
    """Return the object under a key, or the first of a list; an empty one if there is none."""
    return next(iter(parts(holder.get(key))), {})


def embedded(value: object) -> dict[str, Any]:
    """Return an object, also if it is written as JSON text; an empty one for anything else, and if it is hidden."""
    if isinstance(value, str) and is_seen(value):
        with suppress(ValueError):
            value = parse_json(value)
    return value if isinstance(value, dict) else {}


def number(value: object) -> int | None:
    """Return an integer, also if it is written as a string; None for anything else."""
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return int(value) if is_whole and isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One resource; `protect` is None if the graph does not contain it."""

    urn: str
    kind: str
    """The short type: `ec2.SecurityGroup` for `aws:ec2/securityGroup:SecurityGroup`."""
    inputs: Properties = field(default_factory=dict)
    outputs: Properties = field(default_factory=dict)
    ident: str = ""
    protect: bool | None = None
    provider: str = ""
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def identities(self) -> tuple[str, ...]:
        """Return the values by which other resources refer to it: its id, its ARN, the name of a bucket."""
        return words([self.ident, self.outputs.get("id"), self.outputs.get("arn"), self.inputs.get("bucket")])


def kind_of(token: str) -> str:
    """Return the short type of a token, without its module's file and a V2 suffix. Types of other providers stay."""
    package, _, rest = token.partition(":")
    module, _, name = rest.partition(":")
    if package != "aws" or not name:
        return token
    return f"{module.partition('/')[0]}.{name.removesuffix('V2')}"


class Graph:
    """The resources of one or several stacks, with indexes by type, id and URN."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = tuple(nodes)
        self._kinds: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            self._kinds[node.kind].append(node)

    def of(self, *kinds: str) -> Iterator[Node]:
        """Yield the resources of these types."""
        for kind in kinds:
            yield from self._kinds.get(kind, ())

    def targets(self, node: Node, key: str, *kinds: str, ident: str = "") -> tuple[Node, ...]:
        """Return the resources that a property refers to: by value (or `ident`), or by dependency if that is hidden."""
        value = ident or node.inputs.get(key)
        named = [self._idents.get((kind, word)) for kind in kinds for word in words(value)]
        targets = tuple(target for target in named if target is not None)
        if targets or words(value):
            return targets
        dependencies = (self._urns.get(urn) for urn in node.property_dependencies.get(key, ()))
        return tuple(target for target in dependencies if target is not None and target.kind in kinds)

    def settings(self, kind: str, key: str, of: str) -> dict[str, list[Node]]:
        """Return the resources of a type, such as bucket policies, by the URN of the resource that `key` refers to."""
        table: dict[str, list[Node]] = defaultdict(list)
        for node in self.of(kind):
            for target in self.targets(node, key, of):
                table[target.urn].append(node)
        return table

    @cached_property
    def _urns(self) -> dict[str, Node]:
        return {node.urn: node for node in self.nodes}

    @cached_property
    def _idents(self) -> dict[tuple[str, str], Node]:
        return {(node.kind, ident): node for node in self.nodes for ident in node.identities()}


PUBLIC = "bedplate:public"
"""The tag that names what is public by intent: ports of a security group, objects of a bucket."""


def public_names(node: Node) -> frozenset[str]:
    """Return the words of a resource's tag `bedplate:public`."""
    return frozenset(name for text in words(part(node.inputs, "tags").get(PUBLIC)) for name in text.split())


_FIX = "pass the output of `bedplate graph`"


def read_graph(text: str, where: str) -> Graph:
    """Return the graph in a JSON text. Raises InputError with the position of an error."""
    return graph_of(_read(text, where), where)


def read_resources(text: str, where: str) -> list[dict[str, Any]]:
    """Return the resources in a JSON text, unchanged. Raises InputError with the position of an error."""
    document = _read(text, where)
    graph_of(document, where)
    return cast("list[dict[str, Any]]", document)


def _read(text: str, where: str) -> object:
    try:
        document: object = parse_json(text, LARGE)
    except json.JSONDecodeError as error:
        raise InputError(
            f"invalid JSON: {error.msg}", where=f"{where}:{error.lineno}:{error.colno}", fix=_FIX
        ) from None
    except ValueError as error:
        raise InputError(f"invalid graph: {error}", where=where, fix=_FIX) from None
    return document


def graph_of(document: object, where: str) -> Graph:
    """Return the graph in a parsed document. Raises InputError with the number of an invalid resource."""
    if not isinstance(document, list):
        raise InputError(f"a graph must be a list of resources, not {_form(document)}", where=where, fix=_FIX)
    return Graph(_node(item, f"{where}, resource {index}") for index, item in enumerate(document))


def _node(item: object, where: str) -> Node:
    if not isinstance(item, dict):
        raise InputError(f"a resource must be an object, not {_form(item)}", where=where, fix=_FIX)
    protect = item.get("protect")
    return Node(
        urn=_text(item, "urn", where, needed=True),
        kind=kind_of(_text(item, "type", where, needed=True)),
        inputs=_object(item, "inputs", where),
        outputs=_object(item, "outputs", where),
        ident=_text(item, "id", where),
        protect=protect if isinstance(protect, bool) else None,
        provider=_text(item, "provider", where),
        property_dependencies=_dependencies(item, where),
    )


def _text(item: Mapping[str, Any], key: str, where: str, *, needed: bool = False) -> str:
    value = item.get(key)
    if value is None and not needed:
        return ""
    if value is None:
        raise InputError(f"`{key}` is missing", where=where, fix=_FIX)
    if not isinstance(value, str) or (needed and not value):
        raise InputError(f"`{key}` must be a string, not {_form(value)}", where=where, fix=_FIX)
    return value


def _object(item: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = item.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"`{key}` must be an object, not {_form(value)}", where=where, fix=_FIX)
    return value


def _dependencies(item: Mapping[str, Any], where: str) -> dict[str, tuple[str, ...]]:
    """Return the URNs on which each property depends. Pulumi's engine writes the key in camelCase."""
    table = _object(item, "property_dependencies", where) or _object(item, "propertyDependencies", where)
    return {
        key: tuple(urn for urn in urns if isinstance(urn, str)) for key, urns in table.items() if isinstance(urns, list)
    }


def _form(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


@dataclass(frozen=True, slots=True)
class StackFault:
    """One fault of a resource.

    `urn` is the resource's URN, `key` the path of its property in camelCase, such as `ingress.0.cidrBlocks`.
    """

    code: str
    level: Level
    urn: str
    key: str
    message: str
    fix: str


def fault(rule: Rule, urn: str, key: str, message: str) -> StackFault:
    """Return a fault of the rule."""
    return StackFault(rule.code, rule.level, urn, key, message, rule.fix)
