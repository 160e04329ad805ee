"""Turns the YAML tree into the models, with a fault for everything that the models reject.

A rejected value is removed from the tree, as small a part as possible, and the rest is validated again. So one pass
reports all faults, and the checks see everything that is valid.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bedplate.catalog import Catalog
from bedplate.checks import file as rules
from bedplate.load.reports import (
    ErrorLocation,
    correction,
    locate,
    missing_section,
    nearest_words,
    shape_fault,
    with_typed_fix,
)
from bedplate.load.yaml import MOST_FAULTS, Node, key_below
from bedplate.rules import Fault, fault
from bedplate.spec import Fleet


def without(node: Node, keys: Collection[str]) -> Node:
    """Return the node without the values of these keys; all other values keep their key and place."""
    if isinstance(node.value, dict):
        kept = {name: without(child, keys) for name, child in node.value.items() if child.key not in keys}
        return replace(node, value=kept)
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(without(item, keys) for item in node.value if item.key not in keys))
    return node


def changed(node: Node, key: str, change: Callable[[Node], Node]) -> Node:
    """Return the node with a changed value of that key."""
    if node.key == key:
        return change(node)
    if isinstance(node.value, dict):
        return replace(node, value={name: changed(child, key, change) for name, child in node.value.items()})
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(changed(item, key, change) for item in node.value))
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

    `source` is the whole tree with corrected keys and words: what follows from a misspelt one is no second fault.
    `removed` has the keys of the rejected values, `reduced` the keys of their parents.
    """

    tree: Node
    source: Node
    faults: list[Fault]
    catalog: Catalog
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
        faulty_keys = {fault.key for fault in self.faults}
        most = MOST_FAULTS + 1 - len(self.faults)
        self.faults.extend(islice((fault for fault in faults if fault.key not in faulty_keys), max(most, 0)))

    def reject(self, error: ValidationError) -> None:
        """Correct or remove the values that pydantic rejects, and add their faults."""
        located = [
            (details, locate(self.tree, details["loc"]))
            for details in error.errors(include_url=False, include_input=False)
        ]
        self.reduced |= {location.above.key for _, location in located}
        results = _resulting_errors(located)
        located = [
            (details, location)
            for details, location in located
            if (details["type"], location.node.key, location.missing) not in results
        ]
        self.add_faults(
            shape_fault(details, location, self.source, self.catalog)
            for details, location in located
            if not self._is_consequence(details["type"], location)
        )
        first, rest = located[:MOST_FAULTS], located[MOST_FAULTS:]
        rest += [(details, location) for details, location in first if not self._correct(details, location)]
        self.removed |= {key_below(location.above.key, location.name) for _, location in rest}
        self.remove(location.node for _, location in rest)

    def _is_consequence(self, error_type: str, location: ErrorLocation) -> bool:
        """Return whether an error results only from a value that an earlier round removed."""
        if error_type == "too_short":
            return location.node.key in self.reduced
        return error_type == "missing" and location.missing_key in self.removed

    def _correct(self, details: ErrorDetails, location: ErrorLocation) -> bool:
        """Replace a misspelt key or word by the one it stands for; return False if none is clear."""
        if details["type"] == "extra_forbidden":
            near, old = correction(location), location.path[-1]
            above = self._node(location.above.key)
            if near is None or above is None or near in above.names:
                return False
            self._change(location.above.key, lambda node: _renamed(node, old, near))
            return True
        if details["type"] in ("enum", "literal_error"):
            word, *others = nearest_words(details, location)
            if not others:
                self._change(location.node.key, lambda node: replace(node, value=word, text=word))
            return not others
        return False

    def _node(self, key: str) -> Node | None:
        return next((node for node in self.tree.walk() if node.key == key), None)

    def _change(self, key: str, change: Callable[[Node], Node]) -> None:
        self.tree, self.source = changed(self.tree, key, change), changed(self.source, key, change)


def _resulting_errors(located: Sequence[tuple[ErrorDetails, ErrorLocation]]) -> set[tuple[str, str, str]]:
    """Return type, key and missing name of errors that result from others: of a list's items, or of a misspelt key."""
    results = set()
    for details, location in located:
        if details["type"] != "too_short":
            names = location.node.key.split(".")
            results |= {("too_short", ".".join(names[:length]), "") for length in range(1, len(names))}
    for details, location in located[:MOST_FAULTS]:
        if details["type"] == "extra_forbidden" and (near := correction(location)):
            results.add(("missing", location.above.key, near))
    return results


def _renamed(node: Node, old: object, new: str) -> Node:
    """Return a mapping with another name for a key."""
    values = node.value if isinstance(node.value, dict) else {}
    return replace(node, value={new if name == old else name: child for name, child in values.items()})


def model(tree: Node, faults: Iterable[Fault], catalog: Catalog) -> Modelling:
    """Validate a tree that already has some faults; the fleet is None if nothing of it is valid."""
    modelling = Modelling(tree, tree, list(faults), catalog)
    if not isinstance(tree.value, dict):
        not_a_mapping = fault(rules.WRONG_TYPE, "", "a fleet file must be a mapping", "copy examples/minimal.yaml")
        modelling.faults.append(tree.place.of(not_a_mapping))
        return modelling
    nulls = [node for node in tree.walk() if node.value is None]
    empty = (node.place.of(fault(rules.NULL_VALUE, node.key, "the key has no value")) for node in nulls)
    typed = (with_typed_fix(tree_fault, tree, catalog) for tree_fault in (*modelling.faults, *empty))
    modelling.faults = []
    modelling.add_faults(filter(None, typed))
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
    missing = [name for name in PLACEHOLDERS if name not in modelling.source.names]
    modelling.add_faults(missing_section(tree, name) for name in missing)
    return modelling
