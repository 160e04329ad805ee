"""Whether a day or a moment of the fleet file has gone by."""

from collections.abc import Iterable, Iterator
from datetime import date

from bedplate.catalog import Catalog
from bedplate.catalog.nearest import nearest
from bedplate.catalog.tables import HOURS_OF_MONTH
from bedplate.checks.context import Evidence
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.checks.groups import has_gpus
from bedplate.spec.groups import Group, Schedule
from bedplate.spec.sites import Use
from bedplate.spec.text import PERMANENT


def is_past(when: str, today: date) -> bool:
    """Tell whether a day, or the day of a moment in UTC, lies before today."""
    return date.fromisoformat(when[:10]) < today


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


# How long after the fact its budgets may learn of a cost (AWS Budgets).
HOURS_TO_NOTICE = 24


def check_budget(evidence: Evidence) -> Iterator[Fault]:
    """Tell a budget that the minimums alone exceed, or that the maximums spend before anybody is told."""
    if evidence.fleet.budget is None:
        return
    monthly, key = evidence.fleet.budget.monthly, "budget.monthly"
    least = sum(usd for _, usd in _hourly(evidence)) * HOURS_OF_MONTH
    most = sum(_dearest(evidence))
    if least > monthly:
        name, _ = max(_hourly(evidence), key=lambda each: (each[1], each[0]))
        message = (
            f"the machines kept at all times cost {least:,.0f} USD a month at list price; the budget is {monthly:,}"
        )
        yield fault("E801", key, message, f"write {_rounded(least)}, or keep fewer, of {name} above all")
    elif most * HOURS_TO_NOTICE > monthly:
        message = (
            f"all groups at their maximum cost {most:,.0f} USD an hour, the whole budget in {monthly / most:,.0f} h"
        )
        yield fault("W802", key, message)


def _hourly(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yield what the minimum of each group and the control plane cost an hour, with the cheapest of their types."""
    catalog, cluster = evidence.catalog, evidence.fleet.kubernetes
    for name, group in evidence.fleet.groups.items():
        yield name, group.nodes.min * min(_prices(catalog, group.types), default=0.0)
    if cluster:
        plane = cluster.control_plane
        yield "the control plane", plane.count * min(_prices(catalog, (plane.type,)), default=0.0)


def _dearest(evidence: Evidence) -> Iterator[float]:
    for group in evidence.fleet.groups.values():
        yield group.nodes.max * max(_prices(evidence.catalog, group.types), default=0.0)


def _prices(catalog: Catalog, types: Iterable[str]) -> list[float]:
    return [price for name in types if (price := catalog.price(name)) is not None]


def _rounded(usd: float) -> int:
    """Return the next hundred dollars above a sum."""
    return int(usd // 100 + 1) * 100


LIFE_RULES = (
    Rule("E318", "no-such-day", "A day that the calendar lacks is a slip of the pen.", "write it as '2027-01-31'"),
    Rule(
        "E319",
        "schedule-words",
        "Auto Scaling takes hours, weekdays and time zones.",
        "write start: '07:00', stop: '20:00', days: MON-FRI, zone: Europe/Zurich",
        "EC2 Auto Scaling PutScheduledUpdateGroupAction",
    ),
    Rule(
        "E320",
        "label-syntax",
        "Kubernetes takes no other labels.",
        "write it as lab.example/team: vision",
        "Kubernetes, Labels and Selectors",
    ),
    Rule(
        "E321",
        "taint-syntax",
        "Kubernetes takes no other taints.",
        "write it as team=vision:NoSchedule",
        "Kubernetes, Taints and Tolerations",
    ),
    Rule(
        "E329",
        "in-the-past",
        "Auto Scaling refuses to act in the past, and what has ended cannot be started.",
        "write a later day, then run `pulumi up --refresh` for the group's regions",
        "EC2 Auto Scaling PutScheduledUpdateGroupAction",
        allowable=True,
    ),
    Rule(
        "W330",
        "gpus-without-end",
        "GPUs that nobody takes back are the dearest thing in a lab.",
        "add expires: '2027-01-31', or expires: permanent",
        allowable=True,
    ),
    Rule("E331", "schedule-ends-work", "A schedule ends machines whatever runs on them.", "delete the schedule"),
    Rule("E332", "no-hours", "Machines that stop as they start never run.", "write another time"),
    Rule(
        "E333",
        "unknown-time-zone",
        "Auto Scaling takes names of the IANA database.",
        "write it as Europe/Zurich",
        "IANA time zone database",
    ),
    Rule(
        "E337",
        "label-kept",
        "Labels and taints of these domains are set by Kubernetes, by drivers or by bedplate.",
        "write it in a domain of your own",
        "Kubernetes, NodeRestriction",
    ),
    Rule("E338", "label-unread", "Labels and taints are of Kubernetes nodes.", "delete them, or write use: kubernetes"),
    Rule(
        "E339",
        "too-many-tags",
        "Labels and taints are tags of Auto Scaling groups, from which a group grows from zero.",
        "shorten or delete some",
        "AWS tag naming limits; EC2 Auto Scaling quotas",
    ),
    Rule(
        "E351",
        "taint-twice",
        "A node has a taint once for each effect.",
        "delete one of them",
        "Kubernetes, Taints and Tolerations",
    ),
)


BUDGET_RULES = (
    Rule(
        "E801",
        "minimum-above-budget",
        "What is kept at all times is spent for certain.",
        "raise monthly, or keep fewer machines",
        "AWS price list",
        allowable=True,
    ),
    Rule(
        "W802",
        "budget-gone-in-a-day",
        "AWS tells of a cost up to a day after it.",
        "raise monthly, or lower the maximums",
        "AWS Budgets, best practices",
        allowable=True,
    ),
)
