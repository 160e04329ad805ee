"""What an unquoted word of a YAML file means: the core schema of YAML 1.2 (section 10.3), and where 1.1 differs.

One difference to the core schema: 010 is no number here, since a YAML 1.1 reader takes it for 8.
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

from bedplate.checks.diagnostics import Fault, fault
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
# Words that are text here and something else to a YAML 1.1 reader (yaml.org/type), with what they are there.
_ELSEWHERE: tuple[tuple[re.Pattern[str], str], ...] = (
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
    """Return what the unquoted `text` means."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _LONGEST_NUMBER or text[0] not in "+-.0123456789":
        return text
    return next((read(text) for pattern, read in _NUMBERS if pattern.fullmatch(text)), text)


def meaning_elsewhere(text: str) -> str | None:
    """Return what a YAML 1.1 reader takes an unquoted word for that is text here; None where it agrees."""
    if len(text) > _LONGEST_NUMBER or text[0] not in "+-.0123456789=yYnNoO":
        return None
    return next((kind for pattern, kind in _ELSEWHERE if pattern.fullmatch(text)), None)


def plainly(text: str, elsewhere: str) -> str | None:
    """Return how to write a word of two meanings so that it has but the one of a truth or of a decimal number."""
    if elsewhere in ("true", "false"):
        return elsewhere
    digits = text.replace("_", "").lstrip("0")
    return digits if digits.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the file; both count from 1."""

    line: int
    column: int

    def of(self, fault: Fault) -> Fault:
        """Return the fault as one of this position."""
        return replace(fault, line=self.line, column=self.column)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file; `key` is its dotted path, `named` is where its key stands (its own place in a list)."""

    key: str
    value: "Scalar | dict[str, Node] | tuple[Node, ...]"
    place: Place
    named: Place

    @property
    def told_at(self) -> Place:
        """Where a fault of this value is told: at a word itself, at the key of anything larger."""
        return self.named if isinstance(self.value, dict | tuple) else self.place

    @property
    def names(self) -> tuple[str | int, ...]:
        """The keys or the indices of the values directly below."""
        if isinstance(self.value, dict):
            return tuple(self.value)
        return tuple(range(len(self.value))) if isinstance(self.value, tuple) else ()

    @property
    def children(self) -> tuple["Node", ...]:
        """The values directly below."""
        if isinstance(self.value, dict):
            return tuple(self.value.values())
        return self.value if isinstance(self.value, tuple) else ()

    def child(self, name: object) -> "Node | None":
        """Return the value of that key or index directly below, if there is one."""
        if isinstance(self.value, dict):
            return self.value.get(name) if isinstance(name, str) else None
        held = isinstance(self.value, tuple) and isinstance(name, int) and name < len(self.value)
        return self.children[name] if held and isinstance(name, int) else None

    def plain_mapping(self) -> dict[str, object]:
        """Return what lies below by its key, as dicts, tuples and scalars; nothing for what is no mapping."""
        return {str(name): child.plain() for name, child in zip(self.names, self.children, strict=True)}

    def plain(self) -> object:
        """Return the value as dicts, tuples and scalars."""
        if isinstance(self.value, dict):
            return self.plain_mapping()
        if isinstance(self.value, tuple):
            return tuple(child.plain() for child in self.value)
        return self.value

    def walk(self) -> Iterator["Node"]:
        """Yield this node and every one below it, in the order of the file."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


def key_below(key: str, name: str | int) -> str:
    """Return the dotted path of what `name` is in `key`, fit for a message."""
    return f"{key}.{shown(name)}" if key else shown(name)


def place_after(text: str) -> Place:
    """Return the position of what follows the text that a file starts with."""
    return Place(text.count("\n") + 1, len(text) - text.rfind("\n"))


class Unreadable(Exception):
    """Carries the fault that ends the reading: on its way to the list of faults, not an error of its own."""

    def __init__(self, code: str, message: str, place: Place, key: str = "", *, fix: str = "") -> None:
        super().__init__(message)
        self.fault = place.of(fault(code, key, message, fix))


MOST_ALIASES = 100
MOST_VALUES = 30_000


class Anchors:
    """The values that a document has anchored so far, and the count of all its values, repeated ones too."""

    def __init__(self) -> None:
        self._values = 0
        self._aliases = 0
        self._held: list[str] = []
        self._nodes: dict[str, Node] = {}

    def count(self, place: Place) -> None:
        """Count one value; Unreadable when the file has too many."""
        self._values += 1
        if self._values > MOST_VALUES:
            raise Unreadable("E012", f"the file has more than {MOST_VALUES:,} values", place)

    @contextmanager
    def holding(self, anchor: str) -> Iterator[None]:
        """Know that what is read within belongs to the anchored value."""
        self._held.append(anchor)
        yield
        self._held.pop()

    def keep(self, anchor: str, node: Node) -> Node:
        """Remember an anchored value, and return it."""
        self._nodes[anchor] = node
        return node

    def repeat(self, anchor: str, key: str, named: Place, place: Place) -> Node:
        """Return the anchored value as it is at `key`; Unreadable when aliases could multiply."""
        self._aliases += 1
        name = f"*{shown(anchor)}"
        if anchor in self._held:
            raise Unreadable("E015", f"{name} lies inside the value that it repeats", place, key)
        if self._held:
            raise Unreadable("E014", f"{name} lies inside the anchored value &{shown(self._held[-1])}", place, key)
        if anchor not in self._nodes:
            raise Unreadable("E021", f"nothing before {name} is anchored by that name", place, key)
        if self._aliases > MOST_ALIASES:
            raise Unreadable("E013", f"the file has more than {MOST_ALIASES} aliases", place, key)
        return self._copy(replace(self._nodes[anchor], place=place, named=named), key)

    def _copy(self, node: Node, key: str) -> Node:
        self.count(node.place)
        if isinstance(node.value, dict):
            below = {name: self._copy(child, key_below(key, name)) for name, child in node.value.items()}
            return replace(node, key=key, value=below)
        if isinstance(node.value, tuple):
            items = tuple(self._copy(child, key_below(key, i)) for i, child in enumerate(node.value))
            return replace(node, key=key, value=items)
        return replace(node, key=key)


DEEPEST = 32
MOST_FAULTS = 100
_START = Place(1, 1)


class Composer:
    """Reads one document; `faults` collects what is wrong with it and does not end the reading."""

    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self._events = _events(text)
        self._anchors = Anchors()
        self._depth = 0

    def compose(self) -> Node:
        """Return the document's tree; Unreadable when the file cannot be read to its end."""
        tree: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                self._check_document(event, again=tree is not None)
            elif not isinstance(event, DocumentEndEvent | StreamStartEvent | StreamEndEvent):
                tree = self._node(event, "", _START)
        if tree is None or tree.value is None:
            raise Unreadable("E008", "the file holds no fleet: it is empty, or comments alone", _START)
        return tree

    def _check_document(self, event: DocumentStartEvent, *, again: bool) -> None:
        if again:
            raise Unreadable("E009", "a second document starts here", _place(event))
        if event.version or event.tags:
            self._tell("E022", "", "there is a YAML directive before the document", _START)

    def _node(self, event: Event, key: str, named: Place | None = None) -> Node:
        """Return the value that starts with this event, whatever it is."""
        place = _place(event)
        if isinstance(event, AliasEvent):
            return self._anchors.repeat(event.anchor, key, named or place, place)
        if not isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
            raise Unreadable("E010", "a value is wanted here", place, key)
        self._anchors.count(place)
        if event.tag is not None:
            self._tell("E016", key, f"the value has the tag {_shorthand(event.tag)}", place)
        if event.anchor is None:
            return Node(key, self._value(event, key), place, named or place)
        with self._anchors.holding(event.anchor):
            node = Node(key, self._value(event, key), place, named or place)
        return self._anchors.keep(event.anchor, node)

    def _value(
        self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent, key: str
    ) -> Scalar | dict[str, Node] | tuple[Node, ...]:
        if isinstance(event, ScalarEvent):
            return self._scalar(event, key)
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable("E011", f"more than {DEEPEST} levels lie in each other here", _place(event))
        value = self._mapping(key) if isinstance(event, MappingStartEvent) else self._sequence(key)
        self._depth -= 1
        return value

    def _scalar(self, event: ScalarEvent, key: str) -> Scalar:
        """Return what the word means, and tell where another reader would mean something else."""
        if event.style:
            return str(event.value)
        value = resolve(event.value)
        elsewhere = meaning_elsewhere(value) if isinstance(value, str) else None
        if elsewhere:
            message = f"{event.value} is text in YAML 1.2, and {elsewhere} to a YAML 1.1 reader"
            plain = plainly(event.value, elsewhere)
            quote = f"quote it: '{event.value}'"
            fix = f"where text is wanted, {quote}; else write {plain}" if plain else quote
            self._tell("E110", key, message, _place(event), fix)
        return value

    def _sequence(self, key: str) -> tuple[Node, ...]:
        items = self._until(SequenceEndEvent)
        return tuple(self._node(event, key_below(key, index)) for index, event in enumerate(items))

    def _mapping(self, key: str) -> dict[str, Node]:
        """Return the values by key; of a key that comes twice, the first."""
        values: dict[str, Node] = {}
        for event in self._until(MappingEndEvent):
            name = self._name(event, key)
            value = self._node(next(self._events), key_below(key, name or ""), _place(event))
            if name is None:
                continue
            if name in values:
                lines = f"lines {values[name].named.line} and {value.named.line}"
                self._tell("E018", value.key, f"the key is there twice: {lines}", value.named)
            values.setdefault(name, value)
        return values

    def _name(self, event: Event, key: str) -> str | None:
        """Return a mapping's key; None, and a fault, for what can be none."""
        if not isinstance(event, ScalarEvent):
            self._node(event, key)
            self._tell("E019", key, "a list, a mapping or an alias is used as a key", _place(event))
            return None
        name, value = str(event.value), self._node(event, key_below(key, str(event.value))).value
        if name == "<<" and not event.style:
            self._tell("E017", key_below(key, name), "<< merges another mapping into this one", _place(event))
        elif not isinstance(value, str):
            message = f"the key {shown(name)} is not text"
            self._tell("E019", key_below(key, name), message, _place(event), f"quote it: '{shown(name)}'")
        return name

    def _until(self, end: type[Event]) -> Iterator[Event]:
        """Yield the events that start a value, up to the end of the collection."""
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _tell(self, code: str, key: str, message: str, place: Place, fix: str = "") -> None:
        if len(self.faults) <= MOST_FAULTS:
            self.faults.append(place.of(fault(code, key, message, fix)))


def _events(text: str) -> Iterator[Event]:
    """Yield libyaml's events; Unreadable where the text is no YAML."""
    try:
        yield from YAML(typ="safe").parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else _START
        told = ": ".join(part for part in (error.context, error.problem) if part)
        raise Unreadable("E010", told or "this is no YAML", place) from None
    except YAMLError:
        raise Unreadable("E010", "this is no YAML", _START) from None


def _place(event: Event) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _shorthand(tag: str) -> str:
    """Return a tag as it was most likely written."""
    return shown(tag.replace("tag:yaml.org,2002:", "!!", 1))
