"""Which images have just been recorded, and which they took the place of."""

from collections.abc import Iterable, Iterator, Mapping

from bedplate.report.columns import aligned, counted


def image_lines(places: Iterable[str], before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield a row a place, what is new marked; then what was recorded."""
    rows = tuple(places)
    fresh = [place for place in rows if before.get(place) != now[place]]
    yield from aligned(
        (f"{'+' if place in fresh else ' '} {place}", now[place], *_former(place, before, fresh)) for place in rows
    )
    yield f"recorded in fleet.lock: {counted(len(fresh), 'image')}" if fresh else "fleet.lock held all of it already"


def _former(place: str, before: Mapping[str, str], fresh: Iterable[str]) -> tuple[str, ...]:
    return (f"was {before[place]}",) if place in fresh and place in before else ()
