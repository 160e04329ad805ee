"""Where laptops dial and ask for names, and how gateways are, as lines and as a document."""

from collections.abc import Iterator

from bedplate.plan.record import Record
from bedplate.report.columns import aligned


def door_lines(before: Record, now: Record) -> Iterator[str]:
    """Yield a row a region: what the lock holds now, and what it held where that was another."""
    yield from aligned(
        (region, f"gateway {address}", _was(before.gateways.get(region), address))
        for region, address in sorted(now.gateways.items())
    )
    yield from aligned(
        (region, f"resolver {_listed(addresses)}", _was(before.resolvers.get(region), addresses))
        for region, addresses in sorted(now.resolvers.items())
    )


def _was(before: object, now: object) -> str:
    return "" if before in {None, now} else f"was {_listed(before) if isinstance(before, tuple) else before}"


def _listed(addresses: tuple[object, ...]) -> str:
    return ", ".join(map(str, addresses))
