"""The two questions about a fleet file: which fleet is it, and what is wrong with it."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path

from bedplate.catalog import Catalog
from bedplate.checks.catalogue import RULES, applying
from bedplate.checks.context import Declared, Evidence
from bedplate.checks.diagnostics import Fault, Level, fault
from bedplate.checks.images import check_images
from bedplate.checks.people import Secret, secrets_in
from bedplate.checks.run import check_fleet, excused
from bedplate.errors import InputError
from bedplate.load.model import Modelling, model, standing
from bedplate.load.source import read_source, today
from bedplate.load.yaml import MOST_FAULTS, Composer, Node, Place, Unreadable, place_after
from bedplate.plan import FleetPlan
from bedplate.plan.planner import plan_fleet
from bedplate.plan.record import PlanFault, PlanFaults, Record
from bedplate.spec import Fleet
from bedplate.spec.base import shown

HIDDEN = "(hidden)"
_SECRET = frozenset({"E501", "E502"})


@dataclass(frozen=True, slots=True)
class Word:
    """A key or a value of the file; `text` is the whole of it, `secret` the part that must not be told."""

    text: str
    secret: str
    told: Fault


def secret_words(text: str, tree: Node | None, most: int) -> tuple[Word, ...]:
    """Return at most so many words that hold a secret: keys and values of the tree, then comments of the text."""
    inside = tuple(islice(_in_tree(tree), most)) if tree else ()
    known = {word.secret for word in inside}
    return (*inside, *(word for word in islice(_in_text(text), most) if word.secret not in known))


def cover(told: Fault, words: tuple[Word, ...]) -> Fault:
    """Return the fault without any of the secrets in its key, its message or its fix."""
    rule = RULES[told.code]
    if told.code not in _SECRET and any(told.key == word.told.key for word in words if word.told.key):
        told = replace(told, message=f"{HIDDEN} breaks the rule {rule.name}", fix=rule.fix)
    texts = [told.key, told.message, told.fix]
    for word in words:
        for form in (shown(word.text), word.text, shown(word.secret), word.secret):
            texts = [text.replace(form, HIDDEN) for text in texts]
    return replace(told, key=texts[0], message=texts[1], fix=texts[2])


def _in_tree(tree: Node) -> Iterator[Word]:
    """Look through all keys and values at once: one after the other, a large file would take seconds."""
    spots = tuple(_spots(tree))
    starts = tuple(accumulate((len(text) + 1 for text, _, _ in spots), initial=0))
    joined = "\n".join(text for text, _, _ in spots)
    for secret in secrets_in(joined):
        text, key, place = spots[bisect_right(starts, secret.start) - 1]
        yield Word(text, joined[secret.start : secret.end], place.of(_fault(secret, key)))


def _spots(tree: Node) -> Iterator[tuple[str, str, Place]]:
    for node in tree.walk():
        if isinstance(node.value, str):
            yield node.value, node.key, node.place
        for name, child in zip(node.names, node.children, strict=True):
            if isinstance(name, str):
                yield name, child.key, child.named


def _in_text(text: str) -> Iterator[Word]:
    for secret in secrets_in(text):
        found = text[secret.start : secret.end]
        yield Word(found, found, place_after(text[: secret.start]).of(_fault(secret, "")))


def _fault(secret: Secret, key: str) -> Fault:
    return fault(secret.code, key, f"this looks like {secret.kind}")


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


_NO_RECORD = Record({})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A fleet that passed its checks; `faults` are warnings."""

    fleet: Fleet
    faults: tuple[Fault, ...]
    path: Path
    reading: Reading

    @property
    def rules(self) -> int:
        """How many rules of the catalogue apply to the file."""
        return applying(self.reading.nodes)

    def placed(self, refused: Iterable[PlanFault]) -> tuple[Fault, ...]:
        """Return what the plan refuses as faults of the file."""
        return _placed(self.reading, refused)

    def judge(self, plan: FleetPlan, catalog: Catalog) -> FleetPlan:
        """Return the plan; FleetFaults when it shows, beside its lock, what the file alone did not."""
        found = _late(self.reading, self.fleet, plan, catalog)
        if found:
            raise FleetFaults(found)
        return plan


class FleetFaults(InputError):
    """A fleet file with errors; nothing was done. `faults` holds its warnings too."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        errors = [told for told in self.faults if told.level is Level.ERROR]
        also = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = errors[0]
        where = f"{first.file}:{first.line}:{first.column} {first.key}"
        super().__init__(f"{first.code} {first.message}{also}", where=where, fix=first.fix)


def load_fleet(path: Path, catalog: Catalog, part: str | None = None) -> Loaded:
    """Return the fleet of a file; FleetFaults holds all that is wrong with it.

    With a `part` of the fleet (`shared`, a region or `links`), groups that have expired in other parts are no fault.
    """
    reading = read_fleet(path, catalog)
    if part is not None:
        reading = replace(reading, faults=tuple(told for told in reading.faults if _is_about(told, reading, part)))
    if reading.fleet is None or reading.has_errors:
        raise FleetFaults(reading.faults)
    return Loaded(reading.fleet, reading.faults, path, reading)


def examine(path: Path, catalog: Catalog, record: Record = _NO_RECORD) -> tuple[Fault, ...]:
    """Return all that is wrong with a file, in its order; what the plan refuses too, once all else is right."""
    reading = read_fleet(path, catalog)
    if reading.fleet is None or reading.has_errors:
        return reading.faults
    try:
        plan = plan_fleet(reading.fleet, record, catalog)
    except PlanFaults as refusal:
        return (*reading.faults, *_placed(reading, refusal.faults))
    return (*reading.faults, *_late(reading, reading.fleet, plan, catalog))


def _is_about(told: Fault, reading: Reading, part: str) -> bool:
    """Return False for the expiry of a group that has no pool in that part of the fleet."""
    if told.code != "E329" or reading.fleet is None:
        return True
    group = reading.fleet.groups[told.key.split(".")[1]]
    return any(rung.region == part for rung in group.ladder)


def _late(reading: Reading, fleet: Fleet, plan: FleetPlan, catalog: Catalog) -> tuple[Fault, ...]:
    """Return what a plan shows to be wrong, but what the file allows; each key once, in the order of the file."""
    found = {told.key: told for told in check_images(plan, catalog) if told.code not in fleet.allow}
    return tuple(sorted(map(reading.placed, found.values()), key=lambda one: (one.line, one.column)))


def _placed(reading: Reading, refused: Iterable[PlanFault]) -> tuple[Fault, ...]:
    told = (fault(each.code, each.key, each.message, each.fix) for each in refused)
    return tuple(sorted(map(reading.placed, told), key=lambda one: (one.line, one.column)))
