"""What a fleet needs of the account's quotas, as a table and as a document for programs."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from bedplate.plan.quotas import Granted, Need
from bedplate.report.columns import aligned

_RIGHT = (1, 2, 3, 4)
_HEADING = ("minimum", "maximum", "new account")
_HOW = "ask for more: `aws service-quotas request-service-quota-increase`, or the console's Service Quotas"


def quota_lines(needs: Iterable[Need], granted: Granted) -> Iterator[str]:
    """Yield a table a region: what is needed at minimum and maximum, what there is, and the quota's code."""
    told = tuple(needs)
    for region, each in groupby(told, key=lambda need: need.region):
        yield from aligned(_rows(region, tuple(each), granted), right=_RIGHT if granted else _RIGHT[:-1])
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


def _rows(region: str, needs: tuple[Need, ...], granted: Granted) -> Iterator[tuple[str, ...]]:
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
