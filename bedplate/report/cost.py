"""What a fleet costs, line by line, and as a document for programs."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from bedplate.plan.bill import Bill, Line
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import together
from bedplate.plan.span import Span
from bedplate.report.columns import aligned, counted

_NUMBERS = (1, 2)
_BY_USE = "not counted: bytes stored and moved, requests, logs; reservations are paid already, spot is cheaper"
# How what stands is told; an instance type is told by its name.
_NOUNS = {
    "alarm": "alarms",
    "hosted-zone": "private zones",
    "interface-endpoint": "interface endpoints",
    "key": "keys",
    "nat-gateway": "NAT gateways",
    "public-address": "public addresses",
    "resolver-address": "resolver addresses",
    "secret": "secrets",
    "transit-attachment": "transit attachments",
    "vpn-connection": "VPN connections",
}

Row = tuple[str, str, str, str]


def cost_lines(plan: FleetPlan, bill: Bill) -> Iterator[str]:
    """Yield what each group, rung, region and standing thing costs an hour, then the whole and the budget."""
    yield from aligned(_rows(plan, bill), right=_NUMBERS)
    yield ""
    for name, span in (("an hour", bill.hourly), ("a month", bill.hourly.monthly)):
        yield f"{name}: {span.min:,.2f} USD at minimum, {span.max:,.2f} USD at most"
    yield from _budget(plan, bill)
    yield f"list prices on demand of {bill.region}, {bill.date}; other regions differ by some percent"
    yield _BY_USE
    if bill.unknown:
        yield f"no price known for {', '.join(bill.unknown)}: counted as nothing"


def cost_document(plan: FleetPlan, bill: Bill) -> dict[str, Any]:
    """Return the bill as JSON's own types: USD an hour, but for `monthly` and `budget`."""
    return {
        "hourly": _span(bill.hourly),
        "monthly": _span(bill.hourly.monthly),
        "groups": {name: _span(span) for name, span in bill.groups.items()},
        "rungs": {name: _span(span) for name, span in bill.rungs.items()},
        "regions": {name: _span(span) for name, span in bill.regions.items()},
        "disks": _span(bill.disks),
        "standing": [
            {"what": line.what, "region": line.region, "count": line.count, "hourly": round(line.usd, 5)}
            for line in bill.lines
        ],
        "budget": {"monthly": plan.budget[0]} if plan.budget else None,
        "prices": {"region": bill.region, "date": bill.date, "unknown": list(bill.unknown)},
    }


def _span(span: Span) -> dict[str, float]:
    return {"min": span.min, "max": span.max}


def _rows(plan: FleetPlan, bill: Bill) -> Iterator[Row]:
    yield ("USD an hour", "minimum", "at most", "")
    for group, pools in groupby(plan.pools, key=lambda pool: pool.group):
        each = tuple(pools)
        least, most = sum(pool.min for pool in each), together(each)
        yield _row(group, bill.groups[group], f"{least} to {most} of {_types(each[0].types)}")
        for pool in each:
            place = pool.name.removeprefix(f"{group}-").removesuffix(f"-{pool.offer.reservation}")
            yield _row(f"  {place}", bill.rungs[pool.name], pool.market.value)
    if plan.pools:
        yield _row("root volumes", bill.disks, "gp3")
    yield from _standing(bill.lines)
    yield ("", "", "", "")
    yield from (_row(name, span, "all that may stand there") for name, span in bill.regions.items())


def _types(types: tuple[str, ...]) -> str:
    more = f" or {len(types) - 1} more" if len(types) > 1 else ""
    return types[0] + more


def _standing(lines: Iterable[Line]) -> Iterator[Row]:
    """Yield one row for each kind of thing, over all regions."""
    for what, each in groupby(sorted(lines, key=lambda line: line.what), key=lambda line: line.what):
        same = tuple(each)
        usd, count = sum(line.usd for line in same), sum(line.count for line in same)
        places = counted(len({line.region for line in same}), "region")
        yield _row(_NOUNS.get(what, what), Span(usd, usd), f"{count} in {places}")


def _row(name: str, span: Span, note: str) -> Row:
    return (name, f"{span.min:,.3f}", f"{span.max:,.3f}", note)


def _budget(plan: FleetPlan, bill: Bill) -> Iterator[str]:
    if plan.budget is None:
        yield "no budget: `budget: {monthly: USD, email: ...}` tells somebody before a month costs more"
        return
    limit, month = plan.budget[0], bill.hourly.monthly
    hours = limit / bill.hourly.max if bill.hourly.max else 0
    yield f"budget: {limit:,} USD a month; the minimum takes {100 * month.min / limit:,.0f} % of it"
    if month.max > limit:
        yield f"        the maximum would use it up in {hours:,.0f} hours"
