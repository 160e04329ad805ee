"""What a run may cost: its own limit, and the budget of its person."""

import math
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from .hub import WRONG, BpError, Hub

# Seconds below which nothing useful runs.
_LEAST = 60


def paid_seconds(seconds: int, price: float, most: str) -> int:
    """Return the seconds of a run at a price an hour, at most those that its limit in US dollars pays for."""
    if not most:
        return seconds
    if not price:
        raise BpError("the price is unknown, so --max-cost cannot be kept", "write --for instead", WRONG)
    paid = int(float(most) / price * 3_600)
    if paid < _LEAST:
        least = math.ceil(price * _LEAST / 36) / 100
        raise BpError(f"--max-cost {most} pays for {paid} seconds", f"write at least --max-cost {least:.2f}", WRONG)
    return min(seconds, paid)


def limit_lines(hub: Hub, fleet: Mapping[str, Any], most: str, seconds: int, cost: float) -> Iterator[str]:
    """Yield when the costs of a run end it, and what is left of its person's budget. Raises BpError if nothing is."""
    if most:
        yield f"stopped after {timedelta(seconds=seconds)} at the latest: --max-cost {most}"
    if hub.settings.person not in fleet.get("budgets", ()):
        return
    facts = hub.call("/bedplate/budget")
    if not facts:
        # The sweep runs each minute.
        yield "your budget is unknown until the hub has added up the runs of this month"
        return
    spent, left = f"{facts['spent']:.2f} of {facts['budget']:g} USD", facts["budget"] - facts["spent"]
    if left <= 0:
        what = f"your budget for {facts['month']} is used up: {spent} are spent"
        raise BpError(what, "ask your operator for `jobs.budgets`", WRONG)
    unknown = f", and {facts['unknown']:.0f} runs have no known price" if facts["unknown"] else ""
    yield f"your budget for {facts['month']}: {spent} are spent{unknown}"
    if cost > left:
        yield f"note: this run may cost more than the {left:.2f} USD that are left"
