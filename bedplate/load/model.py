"""From the tree to the fleet, with a fault for everything that the models refuse.

What they refuse is taken out, in the smallest part that can be, and the rest is asked for again: so all faults are
told in one pass, and the checks see whatever is left.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bedplate.catalog.nearest import nearest
from bedplate.checks.catalogue import RULES
from bedplate.checks.diagnostics import Fault, fault
from bedplate.load.yaml import MOST_FAULTS, Node, key_below
from bedplate.spec import Fleet
from bedplate.spec.base import shown
from bedplate.spec.schema import keys_at

_Told = tuple[str, str, str]
_WANTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "mapping_type": "a mapping",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "text",
    "tuple_type": "a list",
}


@dataclass(frozen=True, slots=True)
class Site:
    """Where an error is: the nearest node that exists, the path to it, and the name of what it lacks, if any.

    `beside` is the kind of store that the node's parent is.
    """

    node: Node
    parent: str = ""
    path: tuple[str | int, ...] = ()
    lacks: str = ""
    beside: object = None

    @property
    def kind(self) -> object:
        """The kind of store that the node is, if it is one."""
        return _kind(self.node)

    @property
    def lacking(self) -> str:
        """The key of what is missing."""
        return key_below(self.node.key, self.lacks)


def find(tree: Node, loc: tuple[str | int, ...]) -> Site:
    """Return the site of an error; the tag by which pydantic tells kinds of storage apart is no part of it."""
    node, above = tree, None
    path: tuple[str | int, ...] = ()
    for part in loc:
        child = node.child(part)
        if child:
            node, above, path = child, node, (*path, part)
        elif part != _kind(node):
            return Site(node, above.key if above else "", path, str(part))
    return Site(node, above.key if above else "", path, beside=_kind(above) if above else None)


def _kind(node: Node) -> object:
    """Return the kind of store that a node is, if it is one."""
    kind = node.child("kind")
    return kind.value if kind else None


def shape_fault(error: ErrorDetails, site: Site) -> Fault:
    """Return the fault that an error of a model is."""
    context = error.get("ctx", {})
    if error["type"] in RULES:
        place = site.node.named if site.lacks == "[key]" else site.node.told_at
        return place.of(fault(error["type"], site.node.key, context["message"], context["fix"]))
    if error["type"] == "union_tag_invalid":
        site = find(site.node, ("kind",))
    tell = _TELLERS.get(error["type"], _wrong_type)
    code, message, fix = tell(error, site)
    place = site.node.named if RULES[code].at_key else site.node.told_at
    key = site.lacking if code == "E102" else site.node.key
    return place.of(fault(code, key, message, fix))


def _wrong_type(error: ErrorDetails, site: Site) -> _Told:
    wanted = _WANTED.get(error["type"], "another value")
    return "E103", f"{wanted} is wanted here, not {_seen(site.node.value)}", _advice(wanted, site.node.value)


def _seen(value: object) -> str:
    return f"the text {shown(value)}" if isinstance(value, str) else shown(value)


def _advice(wanted: str, value: object) -> str:
    """Return the nearest right value, where a slip of the pen can be told from the value."""
    if wanted == "text" and not isinstance(value, dict | tuple):
        # A float has lost its spelling: 1.30 would be proposed as '1.3'.
        return "quote it" if isinstance(value, float) else f"quote it: '{shown(value)}'"
    if wanted == "a list" and not isinstance(value, dict):
        return f"write [{shown(value)}]"
    if wanted == "a whole number" and isinstance(value, str) and value.isdecimal():
        return f"write {shown(value)} without quotes"
    if wanted == "a whole number" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if wanted == "true or false" and value in ("true", "false"):
        return f"write {value} without quotes"
    return f"write {wanted}"


def _unknown_key(_: ErrorDetails, site: Site) -> _Told:
    name = site.path[-1]
    known = keys_at(site.path[:-1], site.beside)
    near = nearest(str(name), known)
    fix = f"write {near}" if near else f"delete it; the keys here are {', '.join(known)}"
    return "E101", f"{site.parent or 'a fleet'} has no key {shown(name)}", fix


def _shape_missing(_: ErrorDetails, site: Site) -> _Told:
    return "E102", f"{site.node.key or 'the file'} lacks the key {site.lacks}", f"add {site.lacks}"


def _no_kind(_: ErrorDetails, site: Site) -> _Told:
    return "E105", f"{site.node.key} does not say of which kind it is", "add kind: efs, s3 or nfs"


def _unknown_word(error: ErrorDetails, site: Site) -> _Told:
    context = error.get("ctx", {})
    words = re.findall(r"'([^']+)'", context.get("expected_tags", context.get("expected", "")))
    value = site.node.value
    near = nearest(value, words) if isinstance(value, str) else None
    seen = _seen(value).removeprefix("the text ")
    return "E105", f"{seen} is none of {', '.join(words)}", f"write {near or words[0]}"


def _out_of_range(error: ErrorDetails, site: Site) -> _Told:
    limits = error.get("ctx", {})
    least, most = limits.get("ge"), limits.get("le")
    side, limit = ("least", least) if least is not None else ("most", most)
    return "E107", f"{shown(site.node.value)} is out of range: {limit} is the {side}", f"write {limit}"


def _empty(_: ErrorDetails, site: Site) -> _Told:
    return "E108", f"{site.node.key} is empty", ""


def _too_many(error: ErrorDetails, site: Site) -> _Told:
    most = error.get("ctx", {}).get("max_length")
    return "E107", f"{site.node.key} has {error.get('ctx', {}).get('actual_length')} items; {most} is the most", ""


_TELLERS: Mapping[str, Callable[[ErrorDetails, Site], _Told]] = {
    "enum": _unknown_word,
    "extra_forbidden": _unknown_key,
    "greater_than_equal": _out_of_range,
    "less_than_equal": _out_of_range,
    "literal_error": _unknown_word,
    "missing": _shape_missing,
    "too_long": _too_many,
    "too_short": _empty,
    "union_tag_invalid": _unknown_word,
    "union_tag_not_found": _no_kind,
}


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


# No key lies deeper than this in the models, and each round takes out one level.
_ROUNDS = 12

# What stands in for a required part that was refused or is missing, so that all the rest can still be checked.
STAND_INS: Mapping[str, object] = MappingProxyType(
    {
        "version": 1,
        "name": "stand-in",
        "account": "000000000000",
        "owner": "stand-in",
        "domain": "stand.in",
        "network": {"supernet": "10.0.0.0/8"},
        "regions": {"us-east-1": {"home": True, "zones": ("us-east-1a",)}},
    }
)


@dataclass(slots=True)
class Modelling:
    """A tree on its way to a fleet; `dropped` are the keys of what was taken out, `thinned` of what held them."""

    tree: Node
    faults: list[Fault]
    fleet: Fleet | None = None
    dropped: set[str] = field(default_factory=set)
    thinned: set[str] = field(default_factory=set)

    @property
    def stand_ins(self) -> frozenset[str]:
        """The required parts that the file lacks, or has lost."""
        return frozenset(STAND_INS).difference(self.tree.names)

    @property
    def lost(self) -> frozenset[str]:
        """The keys at the top of the file under which something was taken out."""
        return frozenset(key.partition(".")[0] for key in self.dropped)

    @property
    def is_full(self) -> bool:
        """Whether more faults are told than anybody reads, so that what is left of the tree is of no use."""
        return len(self.faults) > MOST_FAULTS

    def drop(self, nodes: Iterable[Node]) -> None:
        """Take values out of the tree."""
        keys = {node.key for node in nodes}
        self.dropped |= keys
        self.tree = without(self.tree, keys)

    def tell(self, faults: Iterable[Fault]) -> None:
        """Add faults of keys about which nothing is told yet, and no more than anybody reads."""
        known = {told.key for told in self.faults}
        room = MOST_FAULTS + 1 - len(self.faults)
        self.faults.extend(islice((told for told in faults if told.key not in known), max(room, 0)))

    def refuse(self, error: ValidationError) -> None:
        """Take out what an error is about, and tell what does not merely follow from an earlier round."""
        sites = [
            (details, find(self.tree, details["loc"]))
            for details in error.errors(include_url=False, include_input=False)
        ]
        self.thinned |= {site.parent for _, site in sites}
        self.tell(shape_fault(details, site) for details, site in sites if not self._follows(details["type"], site))
        self.drop(site.node for _, site in sites)

    def _follows(self, kind: str, site: Site) -> bool:
        if kind == "too_short":
            return site.node.key in self.thinned
        return kind == "missing" and site.lacking in self.dropped


def model(tree: Node, known: Iterable[Fault]) -> Modelling:
    """Return what the models make of a tree; its fleet is None when nothing is left. `known` is told already."""
    modelling = Modelling(tree, list(known))
    if not isinstance(tree.value, dict):
        told = fault("E103", "", "a fleet file is a mapping", "start from examples/minimal.yaml")
        modelling.faults.append(tree.place.of(told))
        return modelling
    modelling.tell(_missing(tree))
    nulls = [node for node in tree.walk() if node.value is None]
    modelling.tell(node.place.of(fault("E104", node.key, "there is no value")) for node in nulls)
    modelling.drop(nulls)
    for _ in range(_ROUNDS):
        try:
            modelling.fleet = Fleet.model_validate({**STAND_INS, **modelling.tree.plain_mapping()})
        except ValidationError as error:
            modelling.refuse(error)
            if modelling.is_full:
                break
        else:
            break
    return modelling


def _missing(tree: Node) -> Iterator[Fault]:
    for name in STAND_INS:
        if name not in tree.names:
            yield tree.named.of(fault("E102", name, f"the file lacks the key {name}", f"add {name}"))
