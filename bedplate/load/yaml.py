"""A YAML 1.2 reader that keeps the position of every value and reports several faults in one pass.

Unquoted words have the meaning of the core schema (YAML 1.2, section 10.3), with one difference: 010 is a string here,
because YAML 1.1 reads it as 8. Words that YAML 1.1 reads differently are faults.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from bedplate.checks import file as rules
from bedplate.load.syntax import find_slip
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.base import shown

Scalar = str | int | float | bool | None

_LONGEST_NUMBER = 40
_CONSTANTS: Mapping[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], Scalar]], ...] = (
    (re.compile(r"[-+]?(0|[1-9][0-9]*)"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text, 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
)
# Strings that YAML 1.1 reads as another type (yaml.org/type), with their meaning there.
_YAML_1_1: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i:y|yes|on)"), "true"),
    (re.compile(r"(?i:n|no|off)"), "false"),
    (re.compile(r"[-+]?0[0-7_]+"), "an octal number"),
    (re.compile(r"[-+]?0[0-9_]+(\.[0-9_]*)?"), "a number"),
    (re.compile(r"[-+]?0b[01_]+"), "a binary number"),
    (re.compile(r"[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"), "a number to the base 60"),
    (re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?"), "a number"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date"),
    (re.compile(r"="), "a default value"),
)


def resolve(text: str) -> Scalar:
    """Return the value of an unquoted word."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _LONGEST_NUMBER or text[0] not in "+-.0123456789":
        return text
    return next((read(text) for pattern, read in _NUMBERS if pattern.fullmatch(text)), text)


def meaning_in_yaml_1_1(text: str) -> str | None:
    """Return the meaning in YAML 1.1 of a word that is a string in YAML 1.2; None if it is the same."""
    if len(text) > _LONGEST_NUMBER or text[0] not in "+-.0123456789=yYnNoO":
        return None
    return next((kind for pattern, kind in _YAML_1_1 if pattern.fullmatch(text)), None)


def unambiguous(text: str, meaning: str) -> str | None:
    """Return an ambiguous word as a plain boolean or decimal number; None if it is neither."""
    if meaning in ("true", "false"):
        return meaning
    digits = text.replace("_", "").lstrip("0")
    return digits if digits.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the file; line and column start at 1."""

    line: int
    column: int

    def of(self, fault: Fault) -> Fault:
        """Return the fault with this position."""
        return replace(fault, line=self.line, column=self.column)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file: its dotted path, its place, and the place of its key (its own place in a list).

    `text` is a scalar as the file spells it: 1.30 is not 1.3 where a string is expected.
    """

    key: str
    value: "Scalar | dict[str, Node] | tuple[Node, ...]"
    place: Place
    key_place: Place
    text: str = ""

    @property
    def report_place(self) -> Place:
        """The place of a fault: the value itself if it is a scalar, or else its key."""
        return self.key_place if isinstance(self.value, dict | tuple) else self.place

    @property
    def names(self) -> tuple[str | int, ...]:
        """The keys or indices of the child values."""
        if isinstance(self.value, dict):
            return tuple(self.value)
        return tuple(range(len(self.value))) if isinstance(self.value, tuple) else ()

    @property
    def children(self) -> tuple["Node", ...]:
        """The child values."""
        if isinstance(self.value, dict):
            return tuple(self.value.values())
        return self.value if isinstance(self.value, tuple) else ()

    def child(self, name: object) -> "Node | None":
        """Return the child value of a key or index; None if it does not exist."""
        if isinstance(self.value, dict):
            return self.value.get(name) if isinstance(name, str) else None
        if isinstance(self.value, tuple) and isinstance(name, int) and name < len(self.value):
            return self.value[name]
        return None

    def plain_mapping(self) -> dict[str, object]:
        """Return the children by key, as dicts, tuples and scalars; empty for a scalar."""
        return {str(name): child.plain() for name, child in zip(self.names, self.children, strict=True)}

    def plain(self) -> object:
        """Return the value as dicts, tuples and scalars."""
        if isinstance(self.value, dict):
            return self.plain_mapping()
        if isinstance(self.value, tuple):
            return tuple(child.plain() for child in self.value)
        return self.value

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all nodes below it, in the order of the file."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


def key_below(key: str, name: str | int) -> str:
    """Return the dotted path of a child, printable in messages."""
    return f"{key}.{shown(name)}" if key else shown(name)


def place_after(text: str) -> Place:
    """Return the position after a text at the start of the file."""
    return Place(text.count("\n") + 1, len(text) - text.rfind("\n"))


class Unreadable(Exception):
    """The file cannot be read further; `fault` says why. Callers add it to the list of faults."""

    def __init__(self, rule: Rule, message: str, place: Place, key: str = "", *, fix: str = "") -> None:
        super().__init__(message)
        self.fault = place.of(fault(rule, key, message, fix))


MOST_ALIASES = 100
MOST_VALUES = 30_000


class Anchors:
    """The anchored values of a document so far, and the number of its values including expanded aliases."""

    def __init__(self) -> None:
        self._values = 0
        self._aliases = 0
        self._open: list[str] = []
        self._nodes: dict[str, Node] = {}

    def count(self, place: Place) -> None:
        """Count one value; raise Unreadable if the file has too many."""
        self._values += 1
        if self._values > MOST_VALUES:
            raise Unreadable(rules.TOO_MANY_VALUES, f"the file has more than {MOST_VALUES:,} values", place)

    @contextmanager
    def reading(self, anchor: str) -> Iterator[None]:
        """Mark the values of the block as part of the anchored value."""
        self._open.append(anchor)
        yield
        self._open.pop()

    def keep(self, anchor: str, node: Node) -> Node:
        """Store an anchored value, and return it."""
        self._nodes[anchor] = node
        return node

    def expand(self, anchor: str, key: str, key_place: Place, place: Place) -> Node:
        """Return a copy of the anchored value for `key`; raise Unreadable if aliases are nested or too many."""
        self._aliases += 1
        name = f"*{shown(anchor)}"
        if anchor in self._open:
            raise Unreadable(rules.RECURSIVE_ALIAS, f"{name} is inside the value that it repeats", place, key)
        if self._open:
            raise Unreadable(
                rules.NESTED_ALIAS, f"{name} is inside the anchored value &{shown(self._open[-1])}", place, key
            )
        if anchor not in self._nodes:
            raise Unreadable(rules.UNKNOWN_ALIAS, f"{name} has no anchor before it", place, key)
        if self._aliases > MOST_ALIASES:
            raise Unreadable(rules.TOO_MANY_ALIASES, f"the file has more than {MOST_ALIASES} aliases", place, key)
        return self._copy(replace(self._nodes[anchor], place=place, key_place=key_place), key)

    def _copy(self, node: Node, key: str) -> Node:
        self.count(node.place)
        if isinstance(node.value, dict):
            children = {name: self._copy(child, key_below(key, name)) for name, child in node.value.items()}
            return replace(node, key=key, value=children)
        if isinstance(node.value, tuple):
            items = tuple(self._copy(child, key_below(key, i)) for i, child in enumerate(node.value))
            return replace(node, key=key, value=items)
        return replace(node, key=key)


DEEPEST = 32
MOST_FAULTS = 100
_START = Place(1, 1)


class Composer:
    """Reads one document; `faults` collects the faults after which reading continues."""

    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self._events = _events(text)
        self._anchors = Anchors()
        self._depth = 0

    def compose(self) -> Node:
        """Return the tree of the document; raise Unreadable if the file cannot be read to its end."""
        tree: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                self._check_document(event, again=tree is not None)
            elif not isinstance(event, DocumentEndEvent | StreamStartEvent | StreamEndEvent):
                tree = self._node(event, "", _START)
        if tree is None or tree.value is None:
            raise Unreadable(rules.EMPTY_FILE, "the file is empty, or has only comments", _START)
        return tree

    def _check_document(self, event: DocumentStartEvent, *, again: bool) -> None:
        if again:
            raise Unreadable(rules.MANY_DOCUMENTS, "a second YAML document starts here", _place(event))
        if event.version or event.tags:
            self._add_fault(rules.YAML_DIRECTIVE, "", "the file starts with a YAML directive", _START)

    def _node(self, event: Event, key: str, key_place: Place | None = None) -> Node:
        """Return the value that starts with this event."""
        place = _place(event)
        if isinstance(event, AliasEvent):
            return self._anchors.expand(event.anchor, key, key_place or place, place)
        if not isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
            raise Unreadable(rules.YAML_SYNTAX, "a value is missing here", place, key)
        self._anchors.count(place)
        if event.tag is not None:
            self._add_fault(rules.TAG, key, f"the value has the tag {_shorthand(event.tag)}", place)
        text = str(event.value) if isinstance(event, ScalarEvent) else ""
        if event.anchor is None:
            return Node(key, self._value(event, key), place, key_place or place, text)
        with self._anchors.reading(event.anchor):
            node = Node(key, self._value(event, key), place, key_place or place, text)
        return self._anchors.keep(event.anchor, node)

    def _value(
        self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent, key: str
    ) -> Scalar | dict[str, Node] | tuple[Node, ...]:
        if isinstance(event, ScalarEvent):
            return self._scalar(event, key)
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable(rules.TOO_DEEP, f"more than {DEEPEST} nested levels", _place(event))
        value = self._mapping(key) if isinstance(event, MappingStartEvent) else self._sequence(key)
        self._depth -= 1
        return value

    def _scalar(self, event: ScalarEvent, key: str) -> Scalar:
        """Return the value of a word; add a fault if YAML 1.1 reads it differently."""
        if event.style:
            return str(event.value)
        value = resolve(event.value)
        meaning = meaning_in_yaml_1_1(value) if isinstance(value, str) else None
        if meaning:
            message = f"{event.value} is a string in YAML 1.2, but {meaning} in YAML 1.1"
            plain = unambiguous(event.value, meaning)
            quote = f"quote it: '{event.value}'"
            fix = f"for a string, {quote}; otherwise write {plain}" if plain else quote
            self._add_fault(rules.AMBIGUOUS_WORD, key, message, _place(event), fix)
        return value

    def _sequence(self, key: str) -> tuple[Node, ...]:
        items = self._until(SequenceEndEvent)
        return tuple(self._node(event, key_below(key, index)) for index, event in enumerate(items))

    def _mapping(self, key: str) -> dict[str, Node]:
        """Return the values by key; for a duplicate key, the first value."""
        values: dict[str, Node] = {}
        name: str | None = None
        for event in self._until(MappingEndEvent):
            rest = _rest_of_number(event, values[name]) if name is not None and name in values else ""
            if name is not None and rest:
                values[name] = self._joined_number(values[name], rest)
                next(self._events)
                continue
            name = self._name(event, key)
            value = self._node(next(self._events), key_below(key, name or ""), _place(event))
            if name is None:
                continue
            if name in values:
                lines = f"lines {values[name].key_place.line} and {value.key_place.line}"
                self._add_fault(rules.DUPLICATE_KEY, value.key, f"duplicate key, in {lines}", value.key_place)
            values.setdefault(name, value)
        return values

    def _joined_number(self, node: Node, rest: str) -> Node:
        """Return a number that a comma splits into two entries as one number, with a fault."""
        text = f"{node.text},{rest}"
        number = int(node.text + rest) if len(rest) == _DIGITS_OF_THOUSANDS else float(f"{node.text}.{rest}")
        self._add_fault(
            rules.KEY_NOT_TEXT,
            node.key,
            f"{text} is two entries: a comma separates them",
            node.place,
            f"write {number}",
        )
        return replace(node, value=number, text=str(number))

    def _name(self, event: Event, key: str) -> str | None:
        """Return the key of a mapping; None, with a fault, for a list, mapping or alias."""
        if not isinstance(event, ScalarEvent):
            self._node(event, key)
            message = "a key must be a string, not a list, mapping or alias"
            is_template = isinstance(event, MappingStartEvent) and event.flow_style
            fix = "a fleet file has no templates: write the value itself" if is_template else ""
            self._add_fault(rules.KEY_NOT_TEXT, key, message, _place(event), fix)
            return None
        name, value = str(event.value), self._node(event, key_below(key, str(event.value))).value
        if name == "<<" and not event.style:
            self._add_fault(rules.MERGE_KEY, key_below(key, name), "<< is a merge key", _place(event))
        elif not isinstance(value, str):
            message = f"the key {shown(name)} is not a string"
            self._add_fault(
                rules.KEY_NOT_TEXT, key_below(key, name), message, _place(event), f"quote it: '{shown(name)}'"
            )
        return name

    def _until(self, end: type[Event]) -> Iterator[Event]:
        """Yield the first event of each value, up to the end of the collection."""
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _add_fault(self, rule: Rule, key: str, message: str, place: Place, fix: str = "") -> None:
        if len(self.faults) <= MOST_FAULTS:
            self.faults.append(place.of(fault(rule, key, message, fix)))


# As in 5,000; other digits after a comma are decimals, as in 1,5.
_DIGITS_OF_THOUSANDS = 3


def _rest_of_number(event: Event, before: Node) -> str:
    """Return the digits of a key directly after a comma and an integer; else an empty string."""
    after = Place(before.place.line, before.place.column + len(before.text) + 1)
    if not isinstance(event, ScalarEvent) or event.style or not before.text.isdecimal() or _place(event) != after:
        return ""
    return str(event.value) if str(event.value).isdecimal() and isinstance(before.value, int) else ""


def _events(text: str) -> Iterator[Event]:
    """Yield the parser's events; raise Unreadable if the text is not YAML."""
    try:
        yield from YAML(typ="safe").parse(text)
    except MarkedYAMLError as error:
        slip = find_slip(text, error)
        raise Unreadable(rules.YAML_SYNTAX, slip.message, Place(slip.line, slip.column), fix=slip.fix) from None
    except YAMLError:
        raise Unreadable(rules.YAML_SYNTAX, "the text is not YAML", _START) from None


def _place(event: Event) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _shorthand(tag: str) -> str:
    """Return a tag in its short form."""
    return shown(tag.replace("tag:yaml.org,2002:", "!!", 1))
