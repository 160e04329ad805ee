"""What comes of a fleet file: all of its faults, and the fleet that is left of it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bedplate.catalog import Catalog
from bedplate.checks.evidence import Declared, Evidence
from bedplate.checks.exception import excused
from bedplate.checks.fault import Fault, Level
from bedplate.checks.rules import RULES, fault
from bedplate.checks.run import check_fleet
from bedplate.load.compose import Composer
from bedplate.load.hide import cover, secret_words
from bedplate.load.model import Modelling
from bedplate.load.node import Node
from bedplate.load.refusal import Unreadable
from bedplate.load.source import read_source
from bedplate.load.trim import without
from bedplate.spec import Fleet

MOST_FAULTS = 200


@dataclass(frozen=True, slots=True)
class Reading:
    """A file's faults in its order, where each of its keys stands, and the fleet, if any could be made of it."""

    path: Path
    faults: tuple[Fault, ...]
    nodes: Mapping[str, Node]
    fleet: Fleet | None = None

    @property
    def has_errors(self) -> bool:
        """Whether the file is refused."""
        return any(told.level is Level.ERROR for told in self.faults)

    def placed(self, told: Fault) -> Fault:
        """Return a fault of a key with the position of the key, or of the nearest one above that the file has."""
        key = told.key
        while key and key not in self.nodes:
            key = key.rpartition(".")[0]
        node = self.nodes.get(key)
        if node is None:
            return replace(told, file=str(self.path), line=1, column=1)
        place = node.named if RULES[told.code].at_key else node.told_at
        return replace(place.of(told), file=str(self.path))


def read_fleet(path: Path, catalog: Catalog) -> Reading:
    """Return the reading of a file; a file that cannot be read is one with faults."""
    try:
        text = read_source(path)
    except Unreadable as stop:
        return Reading(path, (replace(stop.fault, file=str(path)),), {})
    return _read_text(path, text, catalog)


def _read_text(path: Path, text: str, catalog: Catalog) -> Reading:
    composer = Composer(text)
    try:
        tree = composer.compose()
    except Unreadable as stop:
        faults = (*composer.faults, stop.fault)
        return Reading(path, tuple(_covered(path, text, None, faults)), {})
    nodes = {node.key: node for node in tree.walk()}
    fleet, found = _checked(tree, Reading(path, (), nodes), catalog)
    faults = tuple(_covered(path, text, tree, (*composer.faults, *found)))
    return Reading(path, faults, nodes, fleet)


def _checked(tree: Node, reading: Reading, catalog: Catalog) -> tuple[Fleet | None, tuple[Fault, ...]]:
    """Return the fleet that is left of a tree, and what the models and the checks find."""
    nulls = [node for node in tree.walk() if node.value is None]
    modelling = Modelling(without(tree, {node.key for node in nulls}), MOST_FAULTS)
    modelling.dropped.update(node.key for node in nulls)
    fleet = modelling.fleet()
    faults = [*(node.place.of(fault("E104", node.key, "there is no value")) for node in nulls), *modelling.faults]
    if fleet is None:
        return None, tuple(faults)
    evidence = Evidence(fleet, catalog, Declared(tree.plain_mapping()))
    found = [told for told in check_fleet(evidence) if told.key.partition(".")[0] not in modelling.stand_ins]
    left = excused(found, fleet.allow, is_whole=not modelling.dropped)
    return fleet, (*faults, *map(reading.placed, left))


def _covered(path: Path, text: str, tree: Node | None, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Yield the faults in the order of the file, each once, without secrets, and not more than anybody reads."""
    words = secret_words(text, tree, MOST_FAULTS)
    once = {(told.code, told.key): told for told in reversed([*(word.told for word in words), *faults])}
    ordered = sorted(once.values(), key=lambda told: (told.line, told.column, told.code))
    for told in ordered[:MOST_FAULTS]:
        yield replace(cover(told, words), file=str(path))
    if len(ordered) > MOST_FAULTS:
        last = ordered[MOST_FAULTS]
        message = f"there are more faults than {MOST_FAULTS}"
        yield replace(fault("E020", "", message), file=str(path), line=last.line, column=last.column)
