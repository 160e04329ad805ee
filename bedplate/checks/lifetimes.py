"""Lifetimes and costs: expiry and schedule of groups, and the monthly budget."""

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from functools import partial

from bedplate.catalog import Catalog
from bedplate.checks.diagnostics import Context
from bedplate.checks.groups import has_gpus
from bedplate.errors import edits, nearest
from bedplate.plan import FleetPlan, bill
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.groups import Group, Schedule
from bedplate.spec.text import PERMANENT


def is_past(when: str, today: date) -> bool:
    """Return whether a date, or the date of a time in UTC, is before today."""
    return date.fromisoformat(when[:10]) < today


NOTICE = timedelta(days=60)
"""How long before a support or a key ends `check` warns: about two monthly upgrades."""


def ending(what: str, ends: date, today: date) -> str:
    """Return the message about the end of something, past or soon."""
    return f"{what} {'ended' if ends < today else 'ends'} on {ends}"


def check_keys(context: Context) -> Iterator[Fault]:
    """Yield a fault for each key of an apt repository of the cluster that ends soon."""
    for name, key in context.catalog.keys.items() if context.fleet.kubernetes else ():
        if key.ends and key.ends < context.today + NOTICE:
            yield fault(
                KEY_ENDS, "kubernetes.version", ending(f"the key of the repository {name}", key.ends, context.today)
            )


# What the fix of a missing expiry proposes.
DEFAULT_LIFETIME = timedelta(days=90)


def check_lifetimes(context: Context) -> Iterator[Fault]:
    """Yield faults of past expiries and unusable schedules, and warnings about GPUs without an expiry."""
    for name, group in context.fleet.groups.items():
        key = f"groups.{name}"
        yield from _check_expiry(context, key, group)
        if group.schedule:
            yield from _check_schedule_use(key, group)
            yield from _check_schedule(context, f"{key}.schedule", group.schedule)


def _check_expiry(context: Context, key: str, group: Group) -> Iterator[Fault]:
    if group.expires is not None:
        if group.expires != PERMANENT and is_past(group.expires, context.today):
            message = f"the group expired on {group.expires}; today is {context.today}"
            yield fault(IN_THE_PAST, f"{key}.expires", message, _renewal(group))
    elif _has_permanent_gpus(context, group) and not context.declared.has(key, "expires"):
        message = f"{group.nodes.min} x {group.types[0]} runs permanently without an expiry"
        day = context.today + DEFAULT_LIFETIME
        yield fault(
            GPUS_WITHOUT_EXPIRY,
            f"{key}.expires",
            message,
            f"add expires: '{day}' or another last day, or expires: permanent",
        )


def _renewal(group: Group) -> str:
    """Return how to keep an expired group: AWS has changed its sizes, which Pulumi sees only after a refresh."""
    regions = " ".join(dict.fromkeys(f"--stack {rung.region}" for rung in group.ladder))
    return f"delete the group, or write a later day and run `bedplate refresh {regions}`, then `bedplate up`"


def _has_permanent_gpus(context: Context, group: Group) -> bool:
    """Return whether an SSH group always has GPU machines."""
    is_permanent = group.nodes.min and not group.schedule
    return bool(is_permanent) and group.use.is_ssh and has_gpus(context.catalog, group)


def _check_schedule_use(key: str, group: Group) -> Iterator[Fault]:
    """Yield a fault if a schedule would terminate running jobs."""
    if group.use.is_worker:
        yield fault(SCHEDULE_ENDS_JOBS, f"{key}.schedule", "a group of Kubernetes workers cannot have a schedule")
    elif group.fabric is not None:
        yield fault(SCHEDULE_ENDS_JOBS, f"{key}.schedule", "a group with a fabric cannot have a schedule")


def _check_schedule(context: Context, key: str, schedule: Schedule) -> Iterator[Fault]:
    if schedule.start == schedule.stop:
        yield fault(EMPTY_SCHEDULE, f"{key}.stop", f"the machines start and stop at the same time, {schedule.start}")
    zones = context.catalog.time_zones
    if zones and schedule.zone not in zones:
        near = nearest(schedule.zone, zones)
        area, _, city = schedule.zone.partition("/")
        # One letter in three may be wrong; another city is no correction.
        is_near = near is not None and edits(near.lower(), schedule.zone.lower()) * 3 < len(city)
        fix = f"write {near}" if is_near else f"write a name that `timedatectl list-timezones | grep {area}/` prints"
        yield fault(UNKNOWN_TIME_ZONE, f"{key}.zone", f"unknown time zone {schedule.zone}", fix)


# AWS Budgets may show a cost up to this many hours late.
HOURS_OF_DELAY = 24


def check_budget(plan: FleetPlan) -> Iterator[Fault]:
    """Yield a fault of a budget below the bill of the minimum: of machines, and of all that is billed without them."""
    costs = bill(plan, plan.catalog)
    month = costs.hourly.monthly.min
    if plan.budget and month > plan.budget.monthly:
        message = f"the minimum costs {month:,.0f} USD per month; the budget is {plan.budget.monthly:,}"
        least = max(costs.groups, key=lambda name: costs.groups[name].min, default="")
        other = f", or lower the minimum of {least}" if least and costs.groups[least].min else ""
        yield fault(BUDGET_BELOW_MINIMUM, "budget.monthly", message, f"write monthly: {_rounded(month)}{other}")


def check_spending(context: Context) -> Iterator[Fault]:
    """Yield a fault of a budget that all maximums spend before AWS shows it."""
    groups, budget = context.fleet.groups.values(), context.fleet.budget
    most = sum(group.nodes.max * max(_prices(context.catalog, group.types), default=0.0) for group in groups)
    if budget and most * HOURS_OF_DELAY > budget.monthly:
        hours = budget.monthly / most
        message = f"all groups at their maximum cost {most:,.0f} USD per hour: the whole budget in {hours:,.0f} h"
        yield fault(BUDGET_SPENT_IN_A_DAY, "budget.monthly", message)


def _prices(catalog: Catalog, types: Iterable[str]) -> list[float]:
    return [price for name in types if (price := catalog.price(name)) is not None]


def _rounded(usd: float) -> int:
    """Return the next hundred dollars above an amount."""
    return int(usd // 100 + 1) * 100


_SCHEDULES = "EC2 Auto Scaling PutScheduledUpdateGroupAction"

CHECKS = (check_lifetimes, check_spending, check_keys)
_group_rule = partial(Rule, section="groups")
IN_THE_PAST = _group_rule(
    "E329",
    "Auto Scaling rejects actions in the past, and ended capacity cannot start.",
    "write a later day, then run `bedplate refresh` and `bedplate up`",
    _SCHEDULES,
    allowable=True,
)
GPUS_WITHOUT_EXPIRY = _group_rule(
    "W330",
    "Forgotten GPU machines are the largest avoidable cost.",
    "add expires with the last day, such as '2027-01-31', or expires: permanent",
    allowable=True,
)
SCHEDULE_ENDS_JOBS = _group_rule(
    "E331",
    "Kubernetes workers and groups with a fabric cannot have a schedule: it would terminate running jobs.",
    "delete the schedule",
)
EMPTY_SCHEDULE = _group_rule("E332", "The machines would never run.", "write another time")
UNKNOWN_TIME_ZONE = _group_rule(
    "E333", "Auto Scaling takes names of the IANA database.", "write it as Europe/Zurich", "IANA time zone database"
)
_budget_rule = partial(Rule, section="budget")
BUDGET_BELOW_MINIMUM = _budget_rule(
    "E801",
    "The minimum runs all the time or by a schedule, with gateways, addresses and volumes, at list price.",
    "raise monthly, or lower the minimums",
    "AWS price list",
    allowable=True,
    late=True,
)
BUDGET_SPENT_IN_A_DAY = _budget_rule(
    "W802",
    "AWS shows a cost up to a day late.",
    "raise monthly, or lower the maximums",
    "AWS Budgets, best practices",
    allowable=True,
)
_cluster_rule = partial(Rule, section="kubernetes")
KEY_ENDS = _cluster_rule(
    "W644",
    "After the end of its key apt refuses the repository: no machine can install its packages.",
    "run `bedplate catalog refresh`, then `bedplate bundle push`, and apply the roles",
    "the key itself",
    allowable=True,
)
