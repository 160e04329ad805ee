"""List prices of what is paid for by its standing there, as text: what it is, hour or month, USD."""

from collections.abc import Iterable

# What AWS's own calculator takes for a month: 365 days of 24 hours, by twelve.
HOURS_OF_MONTH = 730


def read_rates(rows: Iterable[str]) -> dict[str, float]:
    """Return USD an hour by what is paid for; a month is 730 hours."""
    cells = (row.split("\t") for row in rows)
    return {name: float(usd) / _hours(time) for name, time, usd in cells}


def _hours(time: str) -> int:
    return {"hour": 1, "month": HOURS_OF_MONTH}[time]
