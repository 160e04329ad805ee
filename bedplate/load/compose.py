"""From YAML's events to a tree of nodes, within limits that keep any file quick and small.

The events are libyaml's (by ruamel.yaml), so that a megabyte takes milliseconds. What they mean is decided here:
no tags, no merge keys, no key twice, few aliases and none that could multiply.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

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

from bedplate.load.anchors import Anchors
from bedplate.load.node import Node, Place, key_below
from bedplate.load.refusal import Unreadable
from bedplate.load.scalar import Scalar, meaning_elsewhere, plainly, resolve
from bedplate.load.told import fault
from bedplate.spec.shown import shown

if TYPE_CHECKING:
    from bedplate.checks.fault import Fault

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
