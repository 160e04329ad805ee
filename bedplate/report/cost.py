"""Reports of `cost`, `quotas` and `catalog refresh`."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple
from itertools import groupby
from typing import Any

from bedplate.catalog.catalog import Change
from bedplate.plan.cost import Bill, BillLine, CostRange, Granted, QuotaNeed
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan, combined_max, share_of_week
from bedplate.report.columns import aligned, counted

_NUMBERS = (1, 2)
_BY_USE = "not included: storage, traffic, requests, logs, metrics; prepaid reservations; spot discounts"
# Names of billed items. An instance type keeps its own name.
_NOUNS = {
    "alarm": "alarm metrics",
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
_HINTS = {"transit-attachment": "; `interconnect: peering` costs 0"}

Row = tuple[str, str, str, str]


def cost_lines(plan: FleetPlan, bill: Bill) -> Iterator[str]:
    """Yield the hourly cost of each group, rung, region and permanent item, then the total and the budget."""
    yield from aligned(_rows(plan, bill), right=_NUMBERS)
    yield ""
    for name, span in (("an hour", bill.hourly), ("a month", bill.hourly.monthly)):
        yield f"{name}: {span.min:,.2f} USD at minimum, {span.max:,.2f} USD at maximum"
    yield from _budget(plan, bill)
    traffic = ((f"  {way}", f"{100 * usd:,.2f}") for way, usd in _traffic(plan, bill))
    yield from ("", *aligned((("traffic, USD per 100 GB", ""), *traffic), right=(1,)), "")
    yield f"on-demand list prices of {bill.region}, {bill.date}; other regions differ by a few percent"
    yield _BY_USE
    if bill.unknown:
        yield f"unknown price: {', '.join(bill.unknown)}; counted as 0"


def cost_document(plan: FleetPlan, bill: Bill) -> dict[str, Any]:
    """Return the document of `cost --json`: USD per hour, except `monthly` and `budget`."""
    return {
        "hourly": asdict(bill.hourly),
        "monthly": asdict(bill.hourly.monthly),
        "groups": {name: asdict(span) for name, span in bill.groups.items()},
        "rungs": {name: asdict(span) for name, span in bill.rungs.items()},
        "regions": {name: asdict(span) for name, span in bill.regions.items()},
        "disks": asdict(bill.disks),
        "standing": [
            {"what": line.what, "region": line.region, "count": line.count, "hourly": round(line.usd, 5)}
            for line in bill.lines
        ],
        "traffic_per_gb": dict(_traffic(plan, bill)),
        "budget": {"monthly": plan.budget.monthly} if plan.budget else None,
        "prices": {"region": bill.region, "date": bill.date, "unknown": list(bill.unknown)},
    }


def _rows(plan: FleetPlan, bill: Bill) -> Iterator[Row]:
    yield ("USD/h", "minimum", "maximum", "")
    for group, pools in groupby(plan.pools, key=lambda pool: pool.group):
        rungs = tuple(pools)
        least, most = sum(pool.min for pool in rungs), combined_max(rungs)
        yield _row(group, bill.groups[group], f"{least} to {most} x {_types(rungs[0].types)}{_hours(rungs[0])}")
        for pool in rungs:
            place = pool.name.removeprefix(f"{group}-").removesuffix(f"-{pool.rung_spec.reservation}")
            yield _row(f"  {place}", bill.rungs[pool.name], pool.market.value)
    if plan.pools:
        yield _row("root volumes", bill.disks, "gp3")
    yield from _permanent(bill.lines)
    yield ("", "", "", "")
    yield from (_row(name, span, "the whole region") for name, span in bill.regions.items())


def _hours(pool: PoolPlan) -> str:
    share = share_of_week(pool.group_spec.schedule)
    return f"; minimum in {100 * share:.0f} % of hours" if share < 1 else ""


def _types(types: tuple[str, ...]) -> str:
    more = f" or {len(types) - 1} more" if len(types) > 1 else ""
    return types[0] + more


def _permanent(lines: Iterable[BillLine]) -> Iterator[Row]:
    """Yield one row for each kind of permanent item, over all regions."""
    for what, group in groupby(sorted(lines, key=lambda line: line.what), key=lambda line: line.what):
        items = tuple(group)
        usd, count = sum(line.usd for line in items), sum(line.count for line in items)
        places = counted(len({line.region for line in items}), "region")
        yield _row(_NOUNS.get(what, what), CostRange(usd, usd), f"{count} in {places}{_HINTS.get(what, '')}")


def _row(name: str, span: CostRange, note: str) -> Row:
    return (name, f"{span.min:,.3f}", f"{span.max:,.3f}", note)


def _traffic(plan: FleetPlan, bill: Bill) -> Iterator[tuple[str, float]]:
    """Yield USD for a GB of traffic of each way, without ways through resources that the fleet lacks."""
    present = {line.what for line in bill.lines}
    for name, usd in plan.catalog.rates.items():
        way = name.removeprefix("traffic ")
        if way != name and (way in present or way not in _NOUNS):
            yield _NOUNS.get(way, way), usd


def _budget(plan: FleetPlan, bill: Bill) -> Iterator[str]:
    if plan.budget is None:
        yield "no budget declared: `budget: {monthly: USD, email: ADDRESS}` sends a warning before it is exceeded"
        return
    limit, month = plan.budget.monthly, bill.hourly.monthly
    hours = limit / bill.hourly.max if bill.hourly.max else 0
    yield f"budget: {limit:,} USD/month; the minimum uses {100 * month.min / limit:,.0f} %"
    if month.max > limit:
        yield f"        at the maximum it is used up after {hours:,.0f} hours"


def price_lines(bill: Bill) -> Iterator[str]:
    """Yield the hourly list price at minimum and maximum, and unknown prices."""
    yield (
        f"list price {bill.hourly.min:,.2f} USD/h at minimum, {bill.hourly.max:,.2f} USD/h at maximum "
        f"({bill.region}, {bill.date}): `bedplate cost`"
    )
    if bill.unknown:
        yield f"unknown price: {', '.join(bill.unknown)}"


_RIGHT = (1, 2, 3, 4)
_HEADING = ("minimum", "maximum", "new account")


def quota_lines(needs: Iterable[QuotaNeed], granted: Granted) -> Iterator[str]:
    """Yield a table for each region: the quota's name, the needs, the default, the granted value and the code."""
    rows = tuple(needs)
    for region, group in groupby(rows, key=lambda need: need.region):
        yield from aligned(_quota_rows(region, tuple(group), granted), right=_RIGHT if granted else _RIGHT[:-1])
        yield ""
    quota = "the granted quota" if granted else "a new account's quota"
    yield f"! {quota} is below the minimum, + below the maximum"
    yield "fixed: no request raises it; rates are those of all machines started in one minute, which then wait"
    yield "a group counts in every region and market of its ladder: all its machines can be launched there"
    marks = {need: _mark(need, granted) for need in rows}
    too_small = [need for need in rows if need.quota.code and marks[need] == ("!" if "!" in marks.values() else "+")]
    if too_small:
        yield "request an increase in the AWS console, or by:"
        yield from (line for need in too_small for line in _increase_lines(need))


def _increase_lines(need: QuotaNeed) -> tuple[str, str]:
    """Return the AWS command for a quota, on two lines that a shell joins."""
    quota = f"--service-code {need.quota.service} --quota-code {need.quota.code} --desired-value {need.most}"
    return f"aws service-quotas request-service-quota-increase --region {need.region} \\", f"  {quota}"


def quota_document(needs: Iterable[QuotaNeed], granted: Granted) -> dict[str, Any]:
    """Return the document of `quotas --json`; `granted` is null if the account's value is unknown."""
    return {"quotas": [_entry(need, granted) for need in needs]}


def unmet_needs(needs: Iterable[QuotaNeed], granted: Granted) -> tuple[QuotaNeed, ...]:
    """Return the needs whose minimum exceeds the granted quota."""
    return tuple(need for need in needs if granted.get(_key(need), need.least) < need.least)


def _key(need: QuotaNeed) -> tuple[str, str]:
    return need.region, need.quota.code


def _quota_rows(region: str, needs: tuple[QuotaNeed, ...], granted: Granted) -> Iterator[tuple[str, ...]]:
    yield (region, *_HEADING, *(("granted",) if granted else ()), "code")
    for need in needs:
        figures = (f"{need.least:,}", f"{need.most:,}", f"{need.quota.default:,}")
        value = (_granted(need, granted),) if granted else ()
        yield (f"{_mark(need, granted)} {need.quota.name}", *figures, *value, need.quota.code or "fixed")


def _granted(need: QuotaNeed, granted: Granted) -> str:
    value = granted.get(_key(need))
    return "-" if value is None else f"{value:,.0f}"


def _mark(need: QuotaNeed, granted: Granted) -> str:
    """Return ! if the quota is below the minimum, + if below the maximum. Unknown quotas count as a new account's."""
    quota = granted.get(_key(need), need.most if granted and need.quota.code else need.quota.default)
    return "!" if quota < need.least else "+" if quota < need.most else " "


def _entry(need: QuotaNeed, granted: Granted) -> dict[str, Any]:
    quota = {"name": need.quota.name, "service": need.quota.service, "code": need.quota.code or None}
    figures = {"min": need.least, "max": need.most, "default": need.quota.default, "granted": granted.get(_key(need))}
    return {"region": need.region, **quota, **figures}


_RENEWAL_HEADING = ("", "before", "added", "changed", "dropped")


def renewal_lines(changes: Iterable[Change]) -> Iterator[str]:
    """Yield a row for each kind of changed fact."""
    different = [change for change in changes if change.added or change.changed or change.dropped]
    rows = [(what, *(f"{count:,}" for count in counts)) for what, *counts in map(astuple, different)]
    yield from aligned((_RENEWAL_HEADING, *rows), right=(1, 2, 3, 4)) if rows else ("the catalog is up to date",)
