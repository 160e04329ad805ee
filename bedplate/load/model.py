"""Turns the YAML tree into the models, with a fault for everything that the models reject.

A rejected value is removed from the tree, as small a part as possible, and the rest is validated again. So one pass
reports all faults, and the checks see everything that is valid.
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

# Code, message and fix.
_Report = tuple[str, str, str]
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "mapping_type": "a mapping",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "a string",
    "tuple_type": "a list",
}


@dataclass(frozen=True, slots=True)
class ErrorLocation:
    """The position of an error: the nearest existing node, the path to it, and the missing name, if any.

    `parent` is the key above the node, `parent_kind` the kind of store at that key.
    """

    node: Node
    parent: str = ""
    path: tuple[str | int, ...] = ()
    missing: str = ""
    parent_kind: object = None

    @property
    def missing_key(self) -> str:
        """The whole key of the missing name."""
        return key_below(self.node.key, self.missing)


def locate(tree: Node, loc: tuple[str | int, ...]) -> ErrorLocation:
    """Return the location of an error; pydantic's `loc` also contains the tag of a kind of store."""
    node, above = tree, None
    path: tuple[str | int, ...] = ()
    for part in loc:
        child = node.child(part)
        if child:
            node, above, path = child, node, (*path, part)
        elif part != _store_kind(node):
            return ErrorLocation(node, above.key if above else "", path, str(part))
    return ErrorLocation(node, above.key if above else "", path, parent_kind=_store_kind(above) if above else None)


def _store_kind(node: Node) -> object:
    """Return the kind of store of a node; None if it has no `kind`."""
    kind = node.child("kind")
    return kind.value if kind else None


def shape_fault(error: ErrorDetails, location: ErrorLocation) -> Fault:
    """Return the fault for a validation error of pydantic."""
    details = error.get("ctx", {})
    if error["type"] in RULES:
        place = location.node.key_place if location.missing == "[key]" else location.node.report_place
        return place.of(fault(error["type"], location.node.key, details["message"], details["fix"]))
    if error["type"] == "union_tag_invalid":
        location = locate(location.node, ("kind",))
    report = _REPORTS.get(error["type"], _wrong_type)
    code, message, fix = report(error, location)
    place = location.node.key_place if RULES[code].at_key else location.node.report_place
    key = location.missing_key if code == "E102" else location.node.key
    return place.of(fault(code, key, message, fix))


def _wrong_type(error: ErrorDetails, location: ErrorLocation) -> _Report:
    expected = _EXPECTED.get(error["type"], "another value")
    value = location.node.value
    return "E103", f"must be {expected}, not {_described(value)}", _type_fix(expected, value)


def _described(value: object) -> str:
    return f"the string {shown(value)}" if isinstance(value, str) else shown(value)


def _type_fix(expected: str, value: object) -> str:
    """Return the value in the expected type, if it is obvious."""
    if expected == "a string" and not isinstance(value, dict | tuple):
        # A float has lost its spelling: 1.30 would become '1.3'.
        return "quote it" if isinstance(value, float) else f"quote it: '{shown(value)}'"
    if expected == "a list" and not isinstance(value, dict):
        return f"write [{shown(value)}]"
    if expected == "an integer" and isinstance(value, str) and value.isdecimal():
        return f"write {shown(value)} without quotes"
    if expected == "an integer" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if expected == "true or false" and value in ("true", "false"):
        return f"write {value} without quotes"
    return f"write {expected}"


def _unknown_key(_: ErrorDetails, location: ErrorLocation) -> _Report:
    name = location.path[-1]
    known = keys_at(location.path[:-1], location.parent_kind)
    near = nearest(str(name), known)
    fix = f"write {near}" if near else f"delete it; the keys here are {', '.join(known)}"
    return "E101", f"{location.parent or 'a fleet'} has no key {shown(name)}", fix


def _missing_key(_: ErrorDetails, location: ErrorLocation) -> _Report:
    name = location.missing
    return "E102", f"{location.node.key or 'the file'} requires the key {name}", f"add {name}"


def _missing_kind(_: ErrorDetails, location: ErrorLocation) -> _Report:
    return "E105", f"{location.node.key} requires the key kind", "add kind: efs, s3 or nfs"


def _unknown_word(error: ErrorDetails, location: ErrorLocation) -> _Report:
    details = error.get("ctx", {})
    words = re.findall(r"'([^']+)'", details.get("expected_tags", details.get("expected", "")))
    value = location.node.value
    near = nearest(value, words) if isinstance(value, str) else None
    choice = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return "E105", f"must be {choice}, not {shown(value)}", f"write {near or choice}"


def _out_of_range(error: ErrorDetails, location: ErrorLocation) -> _Report:
    limits = error.get("ctx", {})
    least, most = limits.get("ge"), limits.get("le")
    side, limit = ("at least", least) if least is not None else ("at most", most)
    return "E107", f"must be {side} {limit}, not {shown(location.node.value)}", f"write {limit}"


def _empty_list(_: ErrorDetails, location: ErrorLocation) -> _Report:
    return "E108", f"{location.node.key} is empty", ""


def _long_list(error: ErrorDetails, location: ErrorLocation) -> _Report:
    details = error.get("ctx", {})
    most, length = details.get("max_length"), details.get("actual_length")
    return "E107", f"{location.node.key} has {length} items; at most {most} are allowed", f"keep at most {most} items"


_REPORTS: Mapping[str, Callable[[ErrorDetails, ErrorLocation], _Report]] = {
    "enum": _unknown_word,
    "extra_forbidden": _unknown_key,
    "greater_than_equal": _out_of_range,
    "less_than_equal": _out_of_range,
    "literal_error": _unknown_word,
    "missing": _missing_key,
    "too_long": _long_list,
    "too_short": _empty_list,
    "union_tag_invalid": _unknown_word,
    "union_tag_not_found": _missing_kind,
}


def without(node: Node, keys: Collection[str]) -> Node:
    """Return the node without the values of these keys; all other values keep their key and place."""
    if isinstance(node.value, dict):
        kept = {name: without(child, keys) for name, child in node.value.items() if child.key not in keys}
        return replace(node, value=kept)
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(without(item, keys) for item in node.value if item.key not in keys))
    return node


def current_keys(node: Node, key: str = "") -> Iterator[tuple[str, Node]]:
    """Yield each node with its current key: items of a list move up when an item before them was removed."""
    yield key, node
    for name, child in zip(node.names, node.children, strict=True):
        yield from current_keys(child, key_below(key, name))


# The models have fewer levels than this, and each round removes one level.
_ROUNDS = 12

# Placeholders of required keys that are missing or rejected, so that the rest can be checked.
PLACEHOLDERS: Mapping[str, object] = MappingProxyType(
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
    """A validation in progress: the rest of the tree, its faults, and the fleet once the rest is valid.

    `removed` has the keys of the rejected values, `reduced` the keys of their parents.
    """

    tree: Node
    faults: list[Fault]
    fleet: Fleet | None = None
    removed: set[str] = field(default_factory=set)
    reduced: set[str] = field(default_factory=set)

    @property
    def placeholders(self) -> frozenset[str]:
        """The required keys that are missing or rejected."""
        return frozenset(PLACEHOLDERS).difference(self.tree.names)

    @property
    def lost(self) -> frozenset[str]:
        """The top-level keys with a rejected value."""
        return frozenset(key.partition(".")[0] for key in self.removed)

    @property
    def is_full(self) -> bool:
        """Whether there are more faults than are reported."""
        return len(self.faults) > MOST_FAULTS

    def remove(self, nodes: Iterable[Node]) -> None:
        """Remove values from the tree."""
        keys = {node.key for node in nodes}
        self.removed |= keys
        self.tree = without(self.tree, keys)

    def add_faults(self, faults: Iterable[Fault]) -> None:
        """Add faults of keys that have none yet, up to one more than are reported."""
        known = {fault.key for fault in self.faults}
        most = MOST_FAULTS + 1 - len(self.faults)
        self.faults.extend(islice((fault for fault in faults if fault.key not in known), max(most, 0)))

    def reject(self, error: ValidationError) -> None:
        """Remove the values that pydantic rejects, and add their faults."""
        located = [
            (details, locate(self.tree, details["loc"]))
            for details in error.errors(include_url=False, include_input=False)
        ]
        self.reduced |= {location.parent for _, location in located}
        self.add_faults(
            shape_fault(details, location)
            for details, location in located
            if not self._is_consequence(details["type"], location)
        )
        self.remove(location.node for _, location in located)

    def _is_consequence(self, error_type: str, location: ErrorLocation) -> bool:
        """Return whether an error results only from a value that an earlier round removed."""
        if error_type == "too_short":
            return location.node.key in self.reduced
        return error_type == "missing" and location.missing_key in self.removed


def model(tree: Node, faults: Iterable[Fault]) -> Modelling:
    """Validate a tree that already has some faults; the fleet is None if nothing of it is valid."""
    modelling = Modelling(tree, list(faults))
    if not isinstance(tree.value, dict):
        not_a_mapping = fault("E103", "", "a fleet file must be a mapping", "copy examples/minimal.yaml")
        modelling.faults.append(tree.place.of(not_a_mapping))
        return modelling
    modelling.add_faults(_missing_sections(tree))
    nulls = [node for node in tree.walk() if node.value is None]
    modelling.add_faults(node.place.of(fault("E104", node.key, "the key has no value")) for node in nulls)
    modelling.remove(nulls)
    for _ in range(_ROUNDS):
        try:
            modelling.fleet = Fleet.model_validate({**PLACEHOLDERS, **modelling.tree.plain_mapping()})
        except ValidationError as error:
            modelling.reject(error)
            if modelling.is_full:
                break
        else:
            break
    return modelling


def _missing_sections(tree: Node) -> Iterator[Fault]:
    for name in PLACEHOLDERS:
        if name not in tree.names:
            yield tree.key_place.of(fault("E102", name, f"the file requires the key {name}", f"add {name}"))
