"""Tenure: until when a group's machines are wanted, and at what hours they run."""

from collections.abc import Iterator

from bedplate.catalog.nearest import nearest
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.group import has_gpus
from bedplate.checks.past import is_past
from bedplate.checks.rules import fault
from bedplate.spec.day import PERMANENT
from bedplate.spec.group import Group
from bedplate.spec.schedule import Schedule
from bedplate.spec.site import Use


def check_tenure(evidence: Evidence) -> Iterator[Fault]:
    """Tell expiries and schedules that cannot be kept, and GPUs that nobody would ever take back."""
    for name, group in evidence.fleet.groups.items():
        key = f"groups.{name}"
        yield from _expiry(evidence, key, group)
        if group.schedule:
            yield from _place(key, group)
            yield from _hours(evidence, f"{key}.schedule", group.schedule)


def _expiry(evidence: Evidence, key: str, group: Group) -> Iterator[Fault]:
    if group.expires is not None:
        if group.expires != PERMANENT and is_past(group.expires, evidence.today):
            message = f"the group expired on {group.expires}; today is {evidence.today}"
            yield fault("E329", f"{key}.expires", message, _renewal(evidence, group))
    elif _is_kept(evidence, group) and not evidence.declared.says(key, "expires"):
        message = f"{group.nodes.min} of {group.types[0]} run day and night, and nobody says until when"
        yield fault("W330", f"{key}.expires", message)


def _renewal(evidence: Evidence, group: Group) -> str:
    """Return how to keep an expired group: AWS changed its sizes, which only a refresh shows to Pulumi."""
    regions = dict.fromkeys(rung.region for rung in group.ladder)
    commands = " and ".join(f"`pulumi up --refresh -s {evidence.fleet.name}.{region}`" for region in regions)
    return f"delete the group, or write a later day and run {commands}"


def _is_kept(evidence: Evidence, group: Group) -> bool:
    """Tell whether a group keeps GPUs for people at all hours."""
    around = group.nodes.min and not group.schedule
    return bool(around) and group.use is Use.SSH and has_gpus(evidence.catalog, group)


def _place(key: str, group: Group) -> Iterator[Fault]:
    """Tell groups in which a schedule would end work that nobody has saved."""
    if group.use is Use.KUBERNETES:
        yield fault("E331", f"{key}.schedule", "Kubernetes workers come and go with their pods, not by the clock")
    elif group.fabric is not None:
        yield fault("E331", f"{key}.schedule", "machines on a fabric work together and end together, by hand")


def _hours(evidence: Evidence, key: str, schedule: Schedule) -> Iterator[Fault]:
    if schedule.start == schedule.stop:
        yield fault("E332", f"{key}.stop", f"the machines start and stop at {schedule.start}")
    zones = evidence.catalog.time_zones
    if zones and schedule.zone not in zones:
        near = nearest(schedule.zone, zones)
        yield fault("E333", f"{key}.zone", f"there is no time zone {schedule.zone}", f"write {near}" if near else "")
