"""What comes of a fleet file: all of its faults, and the fleet that is left of it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from bedplate.catalog import Catalog
from bedplate.checks.evidence import Declared, Evidence
from bedplate.checks.exception import excused
from bedplate.checks.fault import Fault, Level
from bedplate.checks.rules import RULES, fault
from bedplate.checks.run import check_fleet
from bedplate.load.clock import today
from bedplate.load.compose import MOST_FAULTS, Composer
from bedplate.load.hide import cover, secret_words
from bedplate.load.model import Modelling, model
from bedplate.load.node import Node
from bedplate.load.refusal import Unreadable
from bedplate.load.source import read_source
from bedplate.load.trim import standing
from bedplate.spec import Fleet


@dataclass(frozen=True, slots=True)
class Reading:
    """A file's faults in its order, and the fleet, if any could be made of it.

    `nodes` are the values of the file by their keys in the fleet, which differ where a list has lost an item.
    """

    path: Path
    faults: tuple[Fault, ...]
    nodes: Mapping[str, Node]
    fleet: Fleet | None = None

    @property
    def has_errors(self) -> bool:
        """Whether the file is refused."""
        return any(told.level is Level.ERROR for told in self.faults)

    def placed(self, told: Fault) -> Fault:
        """Return a fault of the fleet with its place in the file: of its key, or the nearest above that is there."""
        key = self._nearest(told.key)
        node = self.nodes[key]
        place = node.named if RULES[told.code].at_key else node.told_at
        return replace(place.of(told), key=node.key + told.key.removeprefix(key), file=str(self.path))

    def where(self, key: str) -> str:
        """Return `lab.yaml:57:9 groups.train`: where a key stands, or the nearest above that is there."""
        node = self.nodes[self._nearest(key)]
        return f"{self.path}:{node.told_at.line}:{node.told_at.column} {node.key}"

    def _nearest(self, key: str) -> str:
        while key not in self.nodes:
            key = key.rpartition(".")[0]
        return key


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
    modelling = model(tree, composer.faults)
    reading = Reading(path, (), dict(standing(modelling.tree)), modelling.fleet)
    found = map(reading.placed, islice(_checked(tree, modelling, catalog), MOST_FAULTS + 1))
    return replace(reading, faults=tuple(_covered(path, text, tree, (*modelling.faults, *found))))


def _checked(tree: Node, modelling: Modelling, catalog: Catalog) -> Iterator[Fault]:
    """Yield what the checks find in the fleet that is left of a tree, and what the file does not allow of it."""
    if modelling.fleet:
        evidence = Evidence(modelling.fleet, catalog, Declared(tree.plain_mapping()), today(), modelling.lost)
        stand_ins = modelling.stand_ins
        found = (told for told in check_fleet(evidence) if told.key.partition(".")[0] not in stand_ins)
        yield from excused(found, modelling.fleet.allow, is_whole=not modelling.lost)


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
