"""People: one account and one key each, groups that are nobody's own, and somebody who may mend things."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.spec.shown import shown


def check_people(evidence: Evidence) -> Iterator[Fault]:
    """Tell people who could be taken for one another, and a fleet that nobody may mend."""
    people = evidence.fleet.people.items()
    for name in sorted(evidence.declared.names("people").difference(evidence.fleet.people)):
        if name.casefold() in evidence.fleet.people:
            yield fault("E505", f"people.{name.casefold()}", f"{shown(name)} is {name.casefold()} but for case")
    keys = ((f"people.{name}.keys.{i}", line) for name, person in people for i, line in enumerate(person.keys))
    for key, _, first in repeated((key, tuple(line.split(" ")[:2])) for key, line in keys):
        yield fault("W511", key, f"{first.split('.')[1]} has the same key")
    yield from _groups(evidence)
    if people and evidence.is_whole("people") and not any(person.admin for _, person in people):
        yield fault("W512", "people", "nobody is an administrator")


def _groups(evidence: Evidence) -> Iterator[Fault]:
    """Tell groups that are called like a person, and those that a person is in twice."""
    people = evidence.declared.names("people")
    for name, person in evidence.fleet.people.items():
        listed = tuple((f"people.{name}.groups.{i}", group) for i, group in enumerate(person.groups))
        for key, group in listed:
            if group in people:
                yield fault("E514", key, f"{group} is a person, with a group of their own")
        for key, group, _ in repeated(listed):
            yield fault("E515", key, f"{name} is in {group} already")
