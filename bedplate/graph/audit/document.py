"""Values of a graph, which may be missing, masked, unknown, or words that stand for something else."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from bedplate.errors import InputError

# What stands for a value that cannot be seen: our mask of secrets, and the engine's own of secrets and unknowns.
_MASKS = frozenset(
    {"[secret]", "[unknown]", "UNKNOWN", "output<string>", "output<object>", "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}
)
_SIGNATURE = "4dabf18193072939515e22adb298388d"

Properties = Mapping[str, Any]


def is_seen(value: object) -> bool:
    """Whether a value is there to be judged."""
    if isinstance(value, str):
        return value not in _MASKS
    return not (isinstance(value, dict) and _SIGNATURE in value)


def is_on(holder: Properties, key: str) -> bool:
    """Whether a switch is on, or is there and cannot be seen."""
    value = holder.get(key)
    return not is_seen(value) or value is True or (isinstance(value, str) and value.lower() == "true")


def says(holder: Properties, key: str, *accepted: str) -> bool:
    """Whether a word is one of those accepted, or is there and cannot be seen."""
    value = holder.get(key)
    return value in accepted or not is_seen(value)


def words(value: object) -> tuple[str, ...]:
    """Return the words of a list, or the one word, that can be seen."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(item for item in items if isinstance(item, str) and is_seen(item))


def parts(value: object) -> tuple[Properties, ...]:
    """Return the objects of a list, or the one object, that can be seen."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(item for item in items if isinstance(item, dict) and is_seen(item))


def part(holder: Properties, key: str) -> Properties:
    """Return the object under a key, also where it stands alone in a list; an empty one where there is none."""
    return next(iter(parts(holder.get(key))), {})


def number(value: object) -> int | None:
    """Return a whole number, also where it is written as a word; None where there is none."""
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return int(value) if is_whole and isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One resource; `protect` is None where the graph does not say."""

    urn: str
    kind: str
    """The type in short: `ec2.SecurityGroup` for `aws:ec2/securityGroup:SecurityGroup`."""
    inputs: Properties = field(default_factory=dict)
    outputs: Properties = field(default_factory=dict)
    ident: str = ""
    protect: bool | None = None
    provider: str = ""
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def identities(self) -> tuple[str, ...]:
        """Return what others may call it by: its id, its ARN, and a bucket's name."""
        return words([self.ident, self.outputs.get("id"), self.outputs.get("arn"), self.inputs.get("bucket")])


def kind_of(token: str) -> str:
    """Return a type token in short; a type of AWS's provider loses its file and its V2, any other stays as it is."""
    package, _, rest = token.partition(":")
    module, _, name = rest.partition(":")
    if package != "aws" or not name:
        return token
    return f"{module.partition('/')[0]}.{name.removesuffix('V2')}"


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


_FIX = "give what `bedplate graph` prints"


def read_graph(text: str, where: str) -> Graph:
    """Return the graph that a JSON text holds; InputError says where it is none."""
    return graph_of(_read(text, where), where)


def read_resources(text: str, where: str) -> list[dict[str, Any]]:
    """Return the resources that a JSON text holds, as it tells them; InputError says where it holds none."""
    document = _read(text, where)
    graph_of(document, where)
    return cast("list[dict[str, Any]]", document)


def _read(text: str, where: str) -> object:
    try:
        document: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"this is no JSON: {error.msg}", where=f"{where}:{error.lineno}:{error.colno}", fix=_FIX
        ) from None
    except RecursionError:
        raise InputError("this is nested too deeply for a graph", where=where, fix=_FIX) from None
    return document


def graph_of(document: object, where: str) -> Graph:
    """Return the graph that a document holds; InputError says where it is none."""
    if not isinstance(document, list):
        raise InputError(f"a graph is a list of resources, not {_form(document)}", where=where, fix=_FIX)
    return Graph(_node(item, f"{where}, resource {index}") for index, item in enumerate(document))


def _node(item: object, where: str) -> Node:
    if not isinstance(item, dict):
        raise InputError(f"a resource is an object, not {_form(item)}", where=where, fix=_FIX)
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
    if not isinstance(value, str) or (needed and not value):
        raise InputError(f"{key} is a text, not {_form(value)}", where=where, fix=_FIX)
    return value


def _object(item: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = item.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{key} is an object, not {_form(value)}", where=where, fix=_FIX)
    return value


def _dependencies(item: Mapping[str, Any], where: str) -> dict[str, tuple[str, ...]]:
    """Return the URNs on which each property depends; the engine's own spelling of the key is taken too."""
    told = _object(item, "property_dependencies", where) or _object(item, "propertyDependencies", where)
    return {
        key: tuple(urn for urn in urns if isinstance(urn, str)) for key, urns in told.items() if isinstance(urns, list)
    }


def _form(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "missing"}
    return names.get(type(value), "a number")
