"""From pydantic's errors to faults: in the words of the file, at the place where the value stands."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic_core import ErrorDetails

from bedplate.catalog.nearest import nearest
from bedplate.checks.fault import Fault
from bedplate.checks.rules import RULES, fault
from bedplate.load.node import Node, key_below
from bedplate.spec.schema import keys_at
from bedplate.spec.shown import shown

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


def _missing(_: ErrorDetails, site: Site) -> _Told:
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
    "missing": _missing,
    "too_long": _too_many,
    "too_short": _empty,
    "union_tag_invalid": _unknown_word,
    "union_tag_not_found": _no_kind,
}
