"""List prices as text: instance type, USD an hour."""

from collections.abc import Iterable, Mapping


def read_prices(rows: Iterable[str]) -> dict[str, float]:
    """Return the prices by instance type."""
    pairs = (row.split("\t") for row in rows)
    return {name: float(price) for name, price in pairs}


def write_prices(prices: Mapping[str, float]) -> tuple[str, ...]:
    """Return one row an instance type, by name."""
    return tuple(f"{name}\t{prices[name]}" for name in sorted(prices))
