"""What a fleet costs, line by line, and as a document for programs."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from bedplate.catalog.catalog import Change
from bedplate.plan.cost import Bill, Line, Span
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import together
from bedplate.plan.quotas import Granted, Need
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
        "budget": {"monthly": plan.budget.monthly} if plan.budget else None,
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
    limit, month = plan.budget.monthly, bill.hourly.monthly
    hours = limit / bill.hourly.max if bill.hourly.max else 0
    yield f"budget: {limit:,} USD a month; the minimum takes {100 * month.min / limit:,.0f} % of it"
    if month.max > limit:
        yield f"        the maximum would use it up in {hours:,.0f} hours"


_ENDPOINTS = "interface-endpoint"


def price_lines(bill: Bill) -> Iterator[str]:
    """Yield the hourly list price at minimum and at maximum, what endpoints take of it, and what is left out."""
    yield (
        f"list price {bill.hourly.min:,.2f} USD/h at minimum, {bill.hourly.max:,.2f} USD/h at maximum "
        f"({bill.region}, {bill.date}): `bedplate cost`"
    )
    yield from _endpoints(bill)
    if bill.unknown:
        yield f"no price known for {', '.join(bill.unknown)}"


def _endpoints(bill: Bill) -> Iterator[str]:
    lines = [line for line in bill.lines if line.what == _ENDPOINTS]
    usd = sum(line.usd for line in lines)
    if lines:
        count = counted(sum(line.count for line in lines), "interface")
        yield f"endpoints {Span(usd, usd).monthly.min:,.2f} USD/month of it ({count})"


_RIGHT = (1, 2, 3, 4)
_HEADING = ("minimum", "maximum", "new account")
_HOW = "ask for more: `aws service-quotas request-service-quota-increase`, or the console's Service Quotas"


def quota_lines(needs: Iterable[Need], granted: Granted) -> Iterator[str]:
    """Yield a table a region: what is needed at minimum and maximum, what there is, and the quota's code."""
    told = tuple(needs)
    for region, each in groupby(told, key=lambda need: need.region):
        yield from aligned(_quotas_rows(region, tuple(each), granted), right=_RIGHT if granted else _RIGHT[:-1])
        yield ""
    whose = "granted" if granted else "what a new account has"
    yield f"! {whose} does not hold the minimum, + it does not hold the maximum"
    yield "a group counts in every region and market of its ladder, for it may come to stand there as a whole"
    yield _HOW


def quota_document(needs: Iterable[Need], granted: Granted) -> dict[str, Any]:
    """Return the needs as JSON's own types; `granted` is null where the account was not asked."""
    return {"quotas": [_entry(need, granted) for need in needs]}


def short(needs: Iterable[Need], granted: Granted) -> tuple[Need, ...]:
    """Return the needs that the account's quotas do not even meet at the minimum."""
    return tuple(need for need in needs if granted.get(_key(need), need.least) < need.least)


def _key(need: Need) -> tuple[str, str]:
    return need.region, need.quota.code


def _quotas_rows(region: str, needs: tuple[Need, ...], granted: Granted) -> Iterator[tuple[str, ...]]:
    yield (region, *_HEADING, *(("granted",) if granted else ()), "code")
    for need in needs:
        figures = (f"{need.least:,}", f"{need.most:,}", f"{need.quota.default:,}")
        there = (_granted(need, granted),) if granted else ()
        yield (f"{_mark(need, granted)} {need.quota.name}", *figures, *there, need.quota.code)


def _granted(need: Need, granted: Granted) -> str:
    value = granted.get(_key(need))
    return "-" if value is None else f"{value:,.0f}"


def _mark(need: Need, granted: Granted) -> str:
    """Return ! where the minimum does not fit, + where the maximum does not: in a new account, if nobody was asked."""
    there = granted.get(_key(need), need.most if granted else need.quota.default)
    return "!" if there < need.least else "+" if there < need.most else " "


def _entry(need: Need, granted: Granted) -> dict[str, Any]:
    return {
        "region": need.region,
        "name": need.quota.name,
        "service": need.quota.service,
        "code": need.quota.code,
        "min": need.least,
        "max": need.most,
        "default": need.quota.default,
        "granted": granted.get(_key(need)),
    }


_RENEWAL_HEADING = ("", "before", "added", "changed", "dropped")


def renewal_lines(changes: Iterable[Change], skipped: Iterable[str]) -> Iterator[str]:
    """Yield a row a kind of fact that changed; `skipped` are the regions that were not asked."""
    told = [each for each in changes if each.added or each.changed or each.dropped]
    rows = [(each.what, *(f"{count:,}" for count in _counts(each))) for each in told]
    yield from (
        aligned((_RENEWAL_HEADING, *rows), right=(1, 2, 3, 4))
        if rows
        else ("AWS tells what the catalogue knew already",)
    )
    if names := ", ".join(skipped):
        yield f"not asked, for the account has not enabled them: {names}"


def _counts(change: Change) -> tuple[int, ...]:
    return change.before, change.added, change.changed, change.dropped
