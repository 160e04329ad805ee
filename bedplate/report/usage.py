"""What GPUs of the fleet do, who has had them, and what they have cost: lines of `bedplate top` and of reports."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.report.columns import aligned

STATES = ("busy", "held", "stuck", "free")
"""What a GPU does: work, nothing for its owner, only what looks like work, nothing for nobody."""
Rows = Sequence[tuple[Mapping[str, str], float]]
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
        return sum(self.usd.values()) - self.usd["busy"]

    @property
    def idle_hours(self) -> float:
        """The hours of GPUs that did not work."""
        return sum(self.hours.values()) - self.hours["busy"]


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
    """Yield the GPU hours of each by what the GPUs did, and the dollars for those that did not work."""
    rows: list[Sequence[str]] = [("", *_HEAD, "IDLE", "IDLE USD")]
    for use in (*uses, _sum(uses)):
        total = sum(use.hours.values())
        cells = (f"{hours:,.1f}" for hours in (total, *(use.hours[state] for state in STATES)))
        share = f"{use.idle_hours / total:.0%}" if total else "-"
        rows.append((use.name, *cells, share, f"{use.idle_usd:,.2f}"))
    yield from aligned(rows, right=range(1, len(rows[0])))


def cost_lines(uses: Sequence[Use], other: float, bill: float) -> Iterator[str]:
    """Yield the dollars of each by what the GPUs did, those for all else, and the bill, which is their sum."""
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
    for what in ("machines", "up", "usd"):
        for labels, value in figures[what]:
            places[labels.get("place", ""), labels.get("group", "")][what] = value
    for labels, value in figures["gpus"]:
        places[labels.get("place", ""), labels.get("group", "")][labels["state"]] = value
    rows: list[Sequence[str]] = [("PLACE", "GROUP", "MACHINES", "GPUS", *_HEAD[1:], "USD/HOUR")]
    for (place, group), facts in sorted(places.items()):
        counts = [facts[state] for state in STATES]
        cells = (f"{count:.0f}" for count in (sum(counts), *counts))
        price = f"{facts['usd']:,.2f}" if facts["usd"] else "-"
        rows.append((place, group or "-", f"{facts['up']:.0f} of {facts['machines']:.0f}", *cells, price))
    yield from aligned(rows, right=range(2, len(rows[0])))
    alerts = sorted(
        (labels["severity"], labels["alertname"], labels.get("place", "")) for labels, _ in figures["alerts"]
    )
    counts_of = {(labels["alertname"], labels.get("place", "")): value for labels, value in figures["alerts"]}
    yield "alerts" if alerts else "no alert"
    yield from aligned(
        [("", severity, name, place, f"{counts_of[name, place]:.0f}") for severity, name, place in alerts], right=(4,)
    )
    gpus = {(labels.get("person", ""), labels.get("run", "")): value for labels, value in figures["idle_gpus"]}
    usd = {(labels.get("person", ""), labels.get("run", "")): value for labels, value in figures["idle_usd"]}
    most = sorted(gpus, key=lambda key: (-usd.get(key, 0.0), -gpus[key], key))[:10]
    yield "GPUs that somebody has and that do not work" if most else "every GPU that somebody has works"
    idle = [
        ("", person, run or "(no run)", f"{gpus[person, run]:.0f}", _price(usd.get((person, run))))
        for person, run in most
    ]
    yield from aligned(idle, right=(3, 4))


def _price(usd: float | None) -> str:
    return "no price" if usd is None else f"{usd:,.2f} USD/hour"
