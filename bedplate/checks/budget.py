"""The budget against what the file is certain to cost: the machines that it keeps at all times."""

from collections.abc import Iterable, Iterator

from bedplate.catalog import Catalog
from bedplate.catalog.rates import HOURS_OF_MONTH
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault

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
