"""The fault for each kind of validation error: what the file says, what the key requires, and the correct value."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pydantic_core import ErrorDetails, PydanticCustomError

from bedplate.catalog import Catalog
from bedplate.checks import file as rules
from bedplate.checks.catalogue import RULES
from bedplate.errors import edits, nearest
from bedplate.load.shapes import accepts, aws_name_fix, default_note, flow, note, number_fix, region_zones, shape
from bedplate.load.yaml import Node, key_below, meaning_in_yaml_1_1, unambiguous
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.base import SYNTAXES, shown
from bedplate.spec.fleet import Schema, definition, schema_at
from bedplate.spec.sshkey import check_key

# Rule, message and fix.
_Report = tuple[Rule, str, str]
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_parsing": "a number",
    "float_type": "a number",
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

    `above` is the node above that one, `kind` the kind of store that contains both.
    """

    node: Node
    above: Node
    path: tuple[str | int, ...] = ()
    missing: str = ""
    kind: object = None

    @property
    def missing_key(self) -> str:
        """The whole key of the missing name."""
        return key_below(self.node.key, self.missing)

    @property
    def name(self) -> str:
        """The name of the node, or of the list that contains it."""
        return next((part for part in reversed(self.path) if isinstance(part, str)), "")

    @property
    def schema(self) -> Schema:
        """The schema of the node."""
        return schema_at(self.path, self.kind)

    @property
    def is_optional(self) -> bool:
        """Whether the node can be deleted."""
        return self.name not in schema_at(self.path[:-1], self.kind).get("required", ())


def locate(tree: Node, loc: tuple[str | int, ...]) -> ErrorLocation:
    """Return the location of an error; pydantic's `loc` also contains the tag of a kind of store."""
    node, above, kind = tree, tree, None
    path: tuple[str | int, ...] = ()
    for part in loc:
        child = node.child(part)
        kind = _store_kind(node) or kind
        if child:
            node, above, path = child, node, (*path, part)
        elif part != _store_kind(node):
            return ErrorLocation(node, above, path, str(part), kind)
    return ErrorLocation(node, above, path, kind=_store_kind(node) or kind)


def _store_kind(node: Node) -> object:
    """Return the kind of store of a node; None if it has no `kind`."""
    kind = node.child("kind")
    return kind.value if kind else None


def shape_fault(error: ErrorDetails, location: ErrorLocation, tree: Node, catalog: Catalog) -> Fault:
    """Return the fault for a validation error of pydantic."""
    if error["type"] in RULES:
        place = location.node.key_place if location.missing == "[key]" else location.node.report_place
        return place.of(_syntax_fault(error, location, tree, catalog))
    if error["type"] == "union_tag_invalid":
        location = locate(location.node, ("kind",))
    report = _REPORTS.get(error["type"])
    rule, message, fix = report(error, location) if report else _wrong_type(error, location, tree, catalog)
    place = location.node.key_place if rule.at_key else location.node.report_place
    key = location.missing_key if rule is rules.MISSING_KEY else location.node.key
    return place.of(fault(rule, key, message, fix))


def _syntax_fault(error: ErrorDetails, location: ErrorLocation, tree: Node, catalog: Catalog) -> Fault:
    """Return the fault for a word that one of bedplate's types rejects."""
    details = error.get("ctx", {})
    word = str(location.path[-1] if location.missing == "[key]" else location.node.value)
    fix = aws_name_fix(details["noun"], word, location.path, tree, catalog) or details["fix"]
    return fault(RULES[error["type"]], location.node.key, details["message"], fix + _default(word, location))


def _default(word: str, location: ErrorLocation) -> str:
    """Return the default of an optional key for a word that may stand for it; else nothing."""
    is_default = word.lower() in ("default", "latest", "never", "newest", "no", "none", "off")
    return default_note(location.schema) if is_default and location.is_optional else ""


def _wrong_type(error: ErrorDetails, location: ErrorLocation, tree: Node, catalog: Catalog) -> _Report:
    expected, node = _EXPECTED.get(error["type"], "another value"), location.node
    fix = _text_fix(location, tree, catalog) if expected == "a string" and node.text else ""
    if expected == "a list" and location.name == "zones" and isinstance(node.value, int):
        zones = region_zones(location.path, tree, catalog)
        fix = f"write [{', '.join(zones[: node.value])}]" if zones else ""
    return rules.WRONG_TYPE, f"must be {expected}, not {_described(node)}", fix or _type_fix(expected, location)


def _described(node: Node) -> str:
    return f"the string {shown(node.value)}" if isinstance(node.value, str) else node.text or shown(node.value)


def _text_fix(location: ErrorLocation, tree: Node, catalog: Catalog) -> str:
    """Return the fix for an unquoted number or boolean, which may violate the syntax of the key, too."""
    text, syntax = location.node.text, SYNTAXES.get(location.schema.get("pattern", ""))
    if syntax is None:
        return f"quote it: '{text}'"
    try:
        syntax.check(text)
    except PydanticCustomError as error:
        fix = aws_name_fix(syntax.noun, text, location.path, tree, catalog) or _details(error)["fix"]
        return fix + _default(text, location)
    return f"quote it: '{text}'"


def _details(error: PydanticCustomError) -> Mapping[str, str]:
    return error.context or {}


def _type_fix(expected: str, location: ErrorLocation) -> str:
    """Return the value in the expected type, or the form of the key."""
    node, schema, name = location.node, location.schema, location.name
    value, is_item = node.value, isinstance(location.path[-1], int)
    if name == "asn" and (parts := re.fullmatch(r"(\d+)\.(\d+)", node.text)):
        return f"write {int(parts[1]) * 65_536 + int(parts[2])}{note(schema)}"
    if expected in ("an integer", "a number"):
        return f"write {value} without quotes" if str(value).isdecimal() else number_fix(schema, node)
    if expected == "true or false":
        word = str(value).lower()
        right = next((right for right, words in _BOOLEANS.items() if word in words), "true or false")
        return f"write {right} without quotes" if word == right else f"write {right}"
    if expected == "a list" and isinstance(value, dict):
        return f"write a list: [{flow(node.plain())}]"
    if expected == "a list" and isinstance(value, str):
        return _list_fix(location, value)
    name = name.removesuffix("s") if is_item else name
    return f"write {shape(name, schema, node.text if isinstance(value, float) else node.plain())}"


_BOOLEANS = {"true": ("true", "yes", "on", "1", "y"), "false": ("false", "no", "off", "0", "n")}


def _list_fix(location: ErrorLocation, value: str) -> str:
    """Return a string as a list: split at hyphens without a space, or as its only item."""
    if value.startswith("-"):
        return f"write a space after each hyphen: [{', '.join(value[1:].split(' -'))}]"
    if location.name != "keys":
        words = tuple(re.split(r"[,;/ ]+", value))
        is_list = words[1:] and all(accepts(location.schema["items"], word) for word in words)
        return f"write {shape(location.name, location.schema, words if is_list else value)}"
    try:
        check_key(value)
    except PydanticCustomError as error:
        return _details(error)["fix"]
    return 'write the key in brackets and double quotes: ["ssh-..."]'


def _similar_key(location: ErrorLocation) -> str | None:
    """Return the key that an unknown key is most similar to."""
    if location.path == ("stack",):
        return "software"
    return _clearly_nearest(str(location.path[-1]), schema_at(location.path[:-1], location.kind).get("properties", ()))


def _clearly_nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar of `words`; None if half of its letters differ."""
    near = nearest(word, words)
    return near if near and edits(word.lower(), near) * 2 <= len(near) else None


def correction(location: ErrorLocation) -> str | None:
    """Return the key that an unknown key stands for; None if there is none, or the mapping has it already."""
    near = _similar_key(location)
    return None if near in location.above.names else near


def _unknown_key(_: ErrorDetails, location: ErrorLocation) -> _Report:
    name = str(location.path[-1])
    return (
        rules.UNKNOWN_KEY,
        f"unknown key {shown(name)} in {location.above.key or 'the fleet file'}",
        _key_fix(name, location),
    )


def _key_fix(name: str, location: ErrorLocation) -> str:
    """Return the similar key, with its value in the form of that key; or a key with this word as value."""
    path, value, near = location.path[:-1], location.node.value, _similar_key(location)
    properties = schema_at(path, location.kind).get("properties", {})
    if name in _ADMIN_WORDS and (not path or "admin" in properties):
        names = ", ".join(flow(item.plain()) for item in location.node.children) or "NAME"
        return "write admin: true" if path else f"write admin: true under people.{names}"
    if near in location.above.names:
        return f"delete it: {near} is also there"
    if near is None:
        schemas = {key: schema_at((*path, key), location.kind) for key in properties}
        words = (f"write {key}: {name}" for key, schema in schemas.items() if name in schema.get("enum", ()))
        below = (f"move it into {key}" for key, schema in schemas.items() if name in schema.get("properties", ()))
        return next(chain(words, below), f"delete it; the keys here are {', '.join(properties)}")
    schema = schema_at((*path, near), location.kind)
    first = value[0].value if isinstance(value, tuple) and len(value) == 1 else None
    if schema.get("type") == "array" and isinstance(value, str):
        return f"write {near}: [{value}]"
    return f"write {near}: {first}" if schema.get("type") == "string" and isinstance(first, str) else f"write {near}"


_ADMIN_WORDS = ("admins", "administrators", "sudo", "sudoers")


def missing_section(tree: Node, name: str) -> Fault:
    """Return the fault for a missing top-level key."""
    message = f"the file requires the key {name}"
    return tree.key_place.of(fault(rules.MISSING_KEY, name, message, _addition(name, schema_at((name,)))))


def with_typed_fix(problem: Fault, tree: Node, catalog: Catalog) -> Fault | None:
    """Return a fault of an empty or ambiguous value with the fix for the type of its key; None for an unknown key."""
    if problem.code not in (rules.NULL_VALUE.code, rules.AMBIGUOUS_WORD.code):
        return problem
    location = _location(tree, problem.key)
    schema = location.schema
    if not schema:
        return None
    if problem.code == rules.NULL_VALUE.code:
        delete = default_note(schema) if location.is_optional else ""
        form = "REASON, with your reason" if problem.key.startswith("allow.") else shape(location.name, schema)
        return replace(problem, fix=f"write {location.name}: {form}{delete}")
    text = location.node.text
    words = schema.get("enum", ())
    meaning = [word for word in words if word == "none" and meaning_in_yaml_1_1(text) == "false"]
    fixes = {
        "string": f"write {_choice(meaning or words)}" if words else _text_fix(location, tree, catalog),
        "boolean": f"write {meaning_in_yaml_1_1(text)}",
        "integer": f"write {unambiguous(text, '')}",
    }
    return replace(problem, fix=fixes.get(schema.get("type", ""), problem.fix))


def _location(tree: Node, key: str) -> ErrorLocation:
    """Return the location of a dotted key, whose names may contain dots."""
    path: tuple[str | int, ...] = ()
    node = above = tree
    while node.key != key:
        name, child = next(
            (name, child)
            for name, child in zip(node.names, node.children, strict=True)
            if f"{key}.".startswith(f"{child.key}.")
        )
        node, above, path = child, node, (*path, name)
    return ErrorLocation(node, above, path, kind=_store_kind(above))


def _missing_key(_: ErrorDetails, location: ErrorLocation) -> _Report:
    name, kind = location.missing, _store_kind(location.node) or location.kind
    schema = schema_at((*location.path, name), kind)
    return rules.MISSING_KEY, f"{location.node.key or 'the file'} requires the key {name}", _addition(name, schema)


def _addition(name: str, schema: Schema) -> str:
    form = shape(name, schema)
    return f"add {name}: {form}{'' if form[0] in '[{' else note(schema)}"


def _missing_kind(_: ErrorDetails, location: ErrorLocation) -> _Report:
    forms = [definition(form["$ref"])["properties"] for form in schema_at(location.path)["oneOf"]]
    kinds = [form["kind"]["const"] for form in forms]
    nearest_form = max(forms, key=lambda form: len(form.keys() & set(location.node.names)))
    fix = f"add kind: {nearest_form['kind']['const']}"
    return rules.UNKNOWN_WORD, f"{location.node.key} requires the key kind: {_choice(kinds)}", fix


def nearest_words(error: ErrorDetails, location: ErrorLocation) -> tuple[str, ...]:
    """Return the allowed words, the most similar one first if it is clear."""
    details = error.get("ctx", {})
    words = re.findall(r"'([^']+)'", details.get("expected_tags", details.get("expected", "")))
    value = location.node.value
    if not isinstance(value, str):
        return tuple(words)
    word = _ABBREVIATIONS.get(value.lower(), value.partition("#")[0])
    if (last := value.rpartition(".")[2]) in words:
        return (last,)
    near = _clearly_nearest(word, words)
    return (near,) if near else tuple(words)


_ABBREVIATIONS = {"k8s": "kubernetes", "kube": "kubernetes"}


def _unknown_word(error: ErrorDetails, location: ErrorLocation) -> _Report:
    details = error.get("ctx", {})
    words = re.findall(r"'([^']+)'", details.get("expected_tags", details.get("expected", "")))
    choice = _choice(words)
    return (
        rules.UNKNOWN_WORD,
        f"must be {choice}, not {shown(location.node.value)}",
        f"write {_choice(nearest_words(error, location))}",
    )


def _choice(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _out_of_range(error: ErrorDetails, location: ErrorLocation) -> _Report:
    limits = error.get("ctx", {})
    sides = {"ge": "at least", "le": "at most", "gt": "more than"}
    side, limit = next((sides[name], f"{limits[name]:.10g}") for name in sides if name in limits)
    delete = default_note(location.schema) if location.is_optional else ""
    fix = "write a private ASN, such as 65000" if location.name == "asn" else f"write {limit}{delete}"
    if "gt" in limits:
        fix = f"write a larger number{delete}"
    return rules.OUT_OF_RANGE, f"must be {side} {limit}, not {shown(location.node.value)}", fix


def _empty_list(_: ErrorDetails, location: ErrorLocation) -> _Report:
    delete = default_note(location.schema) if location.is_optional else ""
    fix = f"write {shape(location.name, location.schema)}{delete}"
    return rules.EMPTY_LIST, f"{location.node.key} is empty", fix


def _long_list(error: ErrorDetails, location: ErrorLocation) -> _Report:
    details = error.get("ctx", {})
    most, length = details.get("max_length"), details.get("actual_length")
    return (
        rules.OUT_OF_RANGE,
        f"{location.node.key} has {length} items; at most {most} are allowed",
        f"keep at most {most} items",
    )


_REPORTS: Mapping[str, Callable[[ErrorDetails, ErrorLocation], _Report]] = {
    "enum": _unknown_word,
    "extra_forbidden": _unknown_key,
    "greater_than": _out_of_range,
    "greater_than_equal": _out_of_range,
    "less_than_equal": _out_of_range,
    "literal_error": _unknown_word,
    "missing": _missing_key,
    "too_long": _long_list,
    "too_short": _empty_list,
    "union_tag_invalid": _unknown_word,
    "union_tag_not_found": _missing_kind,
}
