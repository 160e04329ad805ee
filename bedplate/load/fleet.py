"""Reads a fleet file into a fleet and its faults; and reads only names of people, gateways and pools."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path

from bedplate.catalog import Catalog
from bedplate.checks import file as rules
from bedplate.checks.catalogue import RULES, check_fleet, count_rules
from bedplate.checks.cluster import check_members
from bedplate.checks.diagnostics import Context, Declared
from bedplate.checks.examples import EXAMPLE_VALUE, OFFERS_OF_OTHER_ACCOUNT, UNVERIFIED_CHECKSUM, live_faults
from bedplate.checks.exceptions import without_allowed
from bedplate.checks.hub import check_hub_paths
from bedplate.checks.images import check_images
from bedplate.checks.lifetimes import IN_THE_PAST, check_budget
from bedplate.checks.people import SECRET, Secret, secrets_in
from bedplate.checks.storage import check_policies
from bedplate.errors import InputError
from bedplate.load.catalog import fleet_catalog
from bedplate.load.model import Modelling, current_keys, model
from bedplate.load.source import read_source, today
from bedplate.load.yaml import MOST_FAULTS, Composer, Node, Place, Unreadable, place_after
from bedplate.plan import FleetPlan
from bedplate.plan.faults import PlanFaults
from bedplate.plan.planner import plan_fleet
from bedplate.plan.record import Record
from bedplate.rules import Fault, Level, fault
from bedplate.spec import Fleet
from bedplate.spec.base import shown
from bedplate.spec.sshkey import PRIVATE_KEY

HIDDEN = "(hidden)"
_SECRET_CODES = frozenset({SECRET.code, PRIVATE_KEY.code})


@dataclass(frozen=True, slots=True)
class SecretText:
    """A key, value or comment with a secret: its whole text, the secret part of it, and the fault."""

    text: str
    secret: str
    fault: Fault


def find_secrets(text: str, tree: Node | None, most: int) -> tuple[SecretText, ...]:
    """Return at most `most` secrets in the keys and values of the tree, then in the rest of the text."""
    in_tree = tuple(islice(_secrets_in_tree(tree), most)) if tree else ()
    tree_secrets = {item.secret for item in in_tree}
    return (*in_tree, *(item for item in islice(_secrets_in_text(text), most) if item.secret not in tree_secrets))


def redact(fault: Fault, secrets: tuple[SecretText, ...]) -> Fault:
    """Return the fault without any of the secrets in its key, message and fix."""
    rule = RULES[fault.code]
    has_secret = any(fault.key == item.fault.key for item in secrets if item.fault.key)
    if fault.code not in _SECRET_CODES and has_secret:
        fault = replace(fault, message=f"{HIDDEN} violates the rule {rule.name}", fix=rule.fix)
    texts = [fault.key, fault.message, fault.fix]
    for item in secrets:
        for form in (shown(item.text), item.text, shown(item.secret), item.secret):
            texts = [text.replace(form, HIDDEN) for text in texts]
    return replace(fault, key=texts[0], message=texts[1], fix=texts[2])


def _secrets_in_tree(tree: Node) -> Iterator[SecretText]:
    """Search all keys and values at once: one search per value takes seconds in a large file."""
    texts = tuple(_texts(tree))
    starts = tuple(accumulate((len(text) + 1 for text, _, _ in texts), initial=0))
    joined = "\n".join(text for text, _, _ in texts)
    for secret in secrets_in(joined):
        text, key, place = texts[bisect_right(starts, secret.start) - 1]
        yield SecretText(text, joined[secret.start : secret.end], place.of(_secret_fault(secret, key)))


def _texts(tree: Node) -> Iterator[tuple[str, str, Place]]:
    """Yield every string of the tree, with its key and place."""
    for node in tree.walk():
        if isinstance(node.value, str):
            yield node.value, node.key, node.place
        for name, child in zip(node.names, node.children, strict=True):
            if isinstance(name, str):
                yield name, child.key, child.key_place


def _secrets_in_text(text: str) -> Iterator[SecretText]:
    for secret in secrets_in(text):
        part = text[secret.start : secret.end]
        yield SecretText(part, part, place_after(text[: secret.start]).of(_secret_fault(secret, "")))


def _secret_fault(secret: Secret, key: str) -> Fault:
    return fault(secret.rule, key, f"this looks like {secret.kind}")


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a file: its faults in the order of the file, and the fleet, if there is one.

    `nodes` maps the keys of the fleet to values of the file; the indices differ if an item of a list was rejected.
    """

    path: Path
    faults: tuple[Fault, ...]
    nodes: Mapping[str, Node]
    fleet: Fleet | None = None

    @property
    def has_errors(self) -> bool:
        """Whether any fault is an error."""
        return any(fault.level is Level.ERROR for fault in self.faults)

    def placed(self, fault: Fault) -> Fault:
        """Return a fault of the fleet with its position in the file: of its key, or of the nearest key above it."""
        key = self._nearest(fault.key)
        node = self.nodes[key]
        place = node.key_place if RULES[fault.code].at_key else node.report_place
        return replace(place.of(fault), key=node.key + fault.key.removeprefix(key), file=str(self.path))

    def where(self, key: str) -> str:
        """Return the position of a key, or of the nearest key above it: `lab.yaml:57:9 groups.train`."""
        node = self.nodes[self._nearest(key)]
        return f"{self.path}:{node.report_place.line}:{node.report_place.column} {node.key}"

    def _nearest(self, key: str) -> str:
        while key not in self.nodes:
            key = key.rpartition(".")[0]
        return key


def read_fleet(path: Path, catalog: Catalog, text: str | None = None) -> Reading:
    """Return the reading of a file, or of another `text` of it; a file that cannot be read has one fault."""
    if path.suffix == ".lock":
        problem = fault(rules.NOT_A_FILE, "", f"{path} is a lock file, not a fleet file")
        return Reading(path, (replace(problem, file=str(path), line=1, column=1),), {})
    try:
        text = read_source(path) if text is None else text
    except Unreadable as error:
        return Reading(path, (replace(error.fault, file=str(path)),), {})
    return _read_text(path, text, catalog)


def _read_text(path: Path, text: str, catalog: Catalog) -> Reading:
    composer = Composer(text)
    try:
        tree = composer.compose()
    except Unreadable as error:
        faults = (*composer.faults, error.fault)
        return Reading(path, tuple(_reported(path, text, None, faults)), {})
    modelling = model(tree, composer.faults, catalog)
    reading = Reading(path, (), dict(current_keys(modelling.tree)), modelling.fleet)
    checked = map(reading.placed, islice(_check(modelling, catalog), MOST_FAULTS + 1))
    # What follows from a wrong value, or from the word in its place, is no second fault.
    wrong = {fault.key for fault in modelling.faults}
    faults = (*modelling.faults, *(fault for fault in checked if fault.key not in wrong))
    return replace(reading, faults=tuple(_reported(path, text, tree, faults)))


def _check(modelling: Modelling, catalog: Catalog) -> Iterator[Fault]:
    """Yield the faults that the checks find in the accepted part of a file, and that the file does not allow."""
    if modelling.fleet:
        declared = Declared(modelling.source.plain_mapping())
        context = Context(modelling.fleet, catalog, declared, today(), modelling.lost)
        placeholders = modelling.placeholders
        faults = (fault for fault in check_fleet(context) if fault.key.partition(".")[0] not in placeholders)
        # An exception may be needed again when the wrong values are corrected.
        yield from without_allowed(faults, modelling.fleet.allow, RULES, is_whole=not modelling.faults)


def _reported(path: Path, text: str, tree: Node | None, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Yield the faults in the order of the file: no duplicates, no secrets, and at most MOST_FAULTS."""
    secrets = find_secrets(text, tree, MOST_FAULTS)
    unique = {(fault.code, fault.key): fault for fault in reversed([*(item.fault for item in secrets), *faults])}
    ordered = sorted(unique.values(), key=lambda fault: (fault.line, fault.column, fault.code))
    for file_fault in ordered[:MOST_FAULTS]:
        yield replace(redact(file_fault, secrets), file=str(path))
    if len(ordered) > MOST_FAULTS:
        last = ordered[MOST_FAULTS]
        message = f"the file has more than {MOST_FAULTS} faults"
        yield replace(fault(rules.TOO_MANY_FAULTS, "", message), file=str(path), line=last.line, column=last.column)


_NO_RECORD = Record({})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A fleet without errors; `faults` are its warnings, `catalog` has the facts against which it was checked."""

    fleet: Fleet
    faults: tuple[Fault, ...]
    path: Path
    reading: Reading
    catalog: Catalog

    @property
    def rules(self) -> int:
        """How many rules of the catalog apply to the file."""
        return count_rules(self.reading.nodes)

    def placed(self, plan_faults: Iterable[Fault]) -> tuple[Fault, ...]:
        """Return faults of the plan with their positions, in the order of the file."""
        return in_order(map(self.reading.placed, plan_faults))

    @contextmanager
    def locating_plan_faults(self) -> Iterator[None]:
        """Turn errors of the planner into faults of the fleet file, each with its line."""
        try:
            yield
        except PlanFaults as refused:
            raise FleetFaults(self.placed(refused.faults)) from None

    def plan(self, record: Record) -> FleetPlan:
        """Return the plan of the fleet and its lock; raise FleetFaults if they violate a rule."""
        with self.locating_plan_faults():
            plan = plan_fleet(self.fleet, record, self.catalog)
        faults = _plan_faults(self.reading, self.fleet, plan)
        if faults:
            raise FleetFaults(faults)
        return plan


class FleetFaults(InputError):
    """The fleet file has errors, so the command did nothing; `faults` includes its warnings."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        errors = [fault for fault in self.faults if fault.level is Level.ERROR]
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = errors[0]
        where = f"{first.file}:{first.line}:{first.column} {first.key}"
        super().__init__(f"{first.code} {first.message}{others}", where=where, fix=first.fix)


def load_fleet(
    path: Path, catalog: Catalog | None = None, part: str | None = None, text: str | None = None, name: str = ""
) -> Loaded:
    """Return the fleet of a file; raise FleetFaults with all faults if there is an error.

    Without a catalog, it is checked against that of its folder. An earlier `text` is read in place of the file's;
    `name` is that of its source in faults.

    With a `part` of the fleet (`shared`, a region or `links`), for a deployment, expired groups of other parts are not
    an error; example values, offers of another account and unverified checksums are.
    """
    facts = catalog or fleet_catalog(path)
    reading = read_fleet(Path(name or path), facts, text)
    if part is not None:
        reading = replace(reading, faults=_deployment_faults(reading, part, facts))
    if reading.fleet is None or reading.has_errors:
        raise FleetFaults(reading.faults)
    return Loaded(reading.fleet, reading.faults, path, reading, facts)


def examine(path: Path, catalog: Catalog, record: Record = _NO_RECORD) -> tuple[Fault, ...]:
    """Return all faults of a file in its order; without errors, also those of its plan."""
    reading = read_fleet(path, catalog)
    if reading.fleet is None or reading.has_errors:
        return reading.faults
    try:
        plan = plan_fleet(reading.fleet, record, catalog)
    except PlanFaults as error:
        return in_order((*reading.faults, *map(reading.placed, error.faults)))
    return in_order((*reading.faults, *_plan_faults(reading, reading.fleet, plan)))


def _deployment_faults(reading: Reading, part: str, catalog: Catalog) -> tuple[Fault, ...]:
    """Return the faults for a deployment of one part of the fleet."""
    faults = (
        replace(fault, level=Level.ERROR) if fault.code == OFFERS_OF_OTHER_ACCOUNT.code else fault
        for fault in reading.faults
        if fault.code not in (EXAMPLE_VALUE.code, UNVERIFIED_CHECKSUM.code) and _concerns(fault, reading, part)
    )
    example_faults = map(reading.placed, live_faults(reading.fleet, catalog)) if reading.fleet else ()
    return in_order((*faults, *example_faults))


def _concerns(fault: Fault, reading: Reading, part: str) -> bool:
    """Return False for an expired group without a pool in that part of the fleet."""
    if fault.code != IN_THE_PAST.code or reading.fleet is None:
        return True
    group = reading.fleet.groups[fault.key.split(".")[1]]
    return any(rung.region == part for rung in group.ladder)


def _plan_faults(reading: Reading, fleet: Fleet, plan: FleetPlan) -> tuple[Fault, ...]:
    """Return the faults of a plan that the file does not allow, one per key, in the order of the file."""
    plan_faults = (
        *check_images(plan, plan.catalog),
        *check_members(plan, plan.catalog),
        *check_hub_paths(plan),
        *check_policies(plan),
        *check_budget(plan),
    )
    faults = {fault.key: fault for fault in plan_faults if fault.code not in fleet.allow}
    return in_order(map(reading.placed, faults.values()))


def in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return the faults in the order of the file."""
    return tuple(sorted(faults, key=lambda fault: (fault.line, fault.column)))
