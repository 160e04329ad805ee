"""Use, owners and cost of GPUs of the fleet: lines of `bedplate top` and of reports."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.report.columns import aligned

STATES = ("busy", "held", "stuck", "free")
"""States of a GPU: it works, is idle with an owner, only looks busy, or has no owner."""
Rows = Sequence[tuple[Mapping[str, str], float]]
_MOST = 10
_HEAD = ("GPU HOURS", "BUSY", "HELD", "STUCK", "FREE")


@dataclass(frozen=True, slots=True)
class Use:
    """What a person, run or group has had: GPU hours and US dollars, by state."""

    labels: Mapping[str, str]
    hours: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STATES, 0.0))
    usd: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STATES, 0.0))

    @property
    def name(self) -> str:
        """The person or run, or the group in its place."""
        if "place" in self.labels:
            return " in ".join(filter(None, (self.labels["group"], self.labels["place"])))
        return " of ".join(filter(None, (self.labels.get("run"), self.labels["person"]))) or "(nobody)"

    @property
    def idle_usd(self) -> float:
        """The dollars for GPUs that did not work."""
        return sum(usd for state, usd in self.usd.items() if state != "busy")

    @property
    def idle_hours(self) -> float:
        """The hours of GPUs that did not work."""
        return sum(hours for state, hours in self.hours.items() if state != "busy")


def uses_of(hours: Rows, usd: Rows, names: Sequence[str]) -> list[Use]:
    """Return the uses by these labels, those with the most expensive idle GPUs first."""
    uses: dict[tuple[str, ...], Use] = {}
    for rows, part in ((hours, "hours"), (usd, "usd")):
        for labels, value in rows:
            key = tuple(labels.get(name, "") for name in names)
            use = uses.setdefault(key, Use(dict(zip(names, key, strict=True))))
            getattr(use, part)[labels["state"]] += value
    return sorted(uses.values(), key=lambda use: (-use.idle_usd, -use.idle_hours, use.name))


def idle_lines(uses: Sequence[Use]) -> Iterator[str]:
    """Yield the GPU hours of each by state, and the dollars for GPUs that did not work."""
    rows: list[Sequence[str]] = [("", *_HEAD, "IDLE", "IDLE USD")]
    for use in (*uses, _sum(uses)):
        total = sum(use.hours.values())
        cells = (f"{hours:,.1f}" for hours in (total, *(use.hours[state] for state in STATES)))
        share = f"{use.idle_hours / total:.0%}" if total else "-"
        rows.append((use.name, *cells, share, f"{use.idle_usd:,.2f}"))
    yield from aligned(rows, right=range(1, len(rows[0])))


def cost_lines(uses: Sequence[Use], other: float, bill: float) -> Iterator[str]:
    """Yield the dollars of each by state, then for all else, and the bill, which is their sum."""
    rows: list[Sequence[str]] = [("USD", "ALL", *_HEAD[1:], "SHARE")]
    for use in sorted(uses, key=lambda use: -sum(use.usd.values())):
        total = sum(use.usd.values())
        cells = (f"{usd:,.2f}" for usd in (total, *(use.usd[state] for state in STATES)))
        rows.append((use.name, *cells, f"{total / bill:.0%}" if bill else "-"))
    rows.append(("machines without GPUs, or without their figures", f"{other:,.2f}"))
    rows.append(("bill, at list price", f"{bill:,.2f}"))
    yield from aligned(rows, right=range(1, len(rows[0])))


def _sum(uses: Sequence[Use]) -> Use:
    total = Use({"person": "all"})
    for use in uses:
        for state in STATES:
            total.hours[state] += use.hours[state]
            total.usd[state] += use.usd[state]
    return total


def fleet_lines(figures: Mapping[str, Rows]) -> Iterator[str]:
    """Yield a line for each group and place with its machines and GPUs, then alerts, then who has idle GPUs."""
    places: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for what in ("machines", "up", "usd", "gpus"):
        for labels, value in figures[what]:
            places[labels.get("place", ""), labels.get("group", "")][labels.get("state", what)] = value
    rows: list[Sequence[str]] = [("PLACE", "GROUP", "MACHINES", "GPUS", *_HEAD[1:], "USD/HOUR")]
    for (place, group), facts in sorted(places.items()):
        counts = [facts[state] for state in STATES]
        cells = (f"{count:.0f}" for count in (sum(counts), *counts))
        price = f"{facts['usd']:,.2f}" if facts["usd"] else "-"
        rows.append((place, group or "-", f"{facts['up']:.0f} of {facts['machines']:.0f}", *cells, price))
    yield from aligned(rows, right=range(2, len(rows[0])))
    yield "alerts" if figures["alerts"] else "no alert"
    alerts = ((labels["severity"], labels["alertname"], labels.get("place", "")) for labels, _ in figures["alerts"])
    yield from aligned(("", *words) for words in sorted(alerts))
    uses = uses_of(figures["idle_gpus"], figures["idle_usd"], ("person", "run"))[:_MOST]
    yield "GPUs that somebody has and that do not work" if uses else "every GPU that somebody has works"
    prices = (f"{use.idle_usd:,.2f} USD/hour" if use.idle_usd else "no price" for use in uses)
    idle = [("", use.name, f"{use.idle_hours:.0f}", price) for use, price in zip(uses, prices, strict=True)]
    yield from aligned(idle, right=(2, 3))
