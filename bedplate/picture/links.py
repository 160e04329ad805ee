"""Lines between cards: one rail above each row of regions, a double one below for the tunnels of sites.

A rail says that everything on it reaches everything: no line crosses a card or another line, however many there are.
"""

from collections.abc import Iterator, Sequence

from bedplate.picture.grid import Tier
from bedplate.picture.marks import Line, Mark, Rect

RAIL, HUB, TWIN = 24.0, 9.0, 2.5
MESH_AT, TUNNEL_AT = 26.0, 30.0  # from a card's left and right edge


def mesh(tiers: Sequence[Tier], trunk: float) -> Iterator[Mark]:
    """Yield the rail above each tier, its taps, and the trunk at the left that joins the rails."""
    is_joined = len(tiers) > 1
    for tier in tiers:
        y, taps = tier.y - RAIL, _mesh_taps(tier)
        start = trunk if is_joined else taps[0]
        yield Line(start, y, taps[-1] - start, 0, "mesh")
        for x in taps:
            yield Line(x, y, 0, RAIL, "mesh")
    if is_joined:
        yield Line(trunk, tiers[0].y - RAIL, 0, tiers[-1].y - tiers[0].y, "mesh")


def mesh_ends(tiers: Sequence[Tier]) -> Iterator[Mark]:
    """Yield the round ends of the rail's taps, which lie over the cards."""
    for tier in tiers:
        for x in _mesh_taps(tier):
            yield Rect(x - HUB / 2, tier.y - HUB / 2, HUB, HUB, "hub", HUB / 2)


def tunnels(regions: Sequence[Tier], sites: Sequence[Tier], trunk: float) -> Iterator[Mark]:
    """Yield the double rails, their taps, and the trunk at the right that joins them.

    The first tier of sites hangs on the rail of the last tier of regions.
    """
    rails = [*(tier.bottom + RAIL for tier in regions), *(tier.y - RAIL for tier in sites[1:])]
    hanging = (*((tier,) for tier in regions[:-1]), (regions[-1], sites[0]), *((tier,) for tier in sites[1:]))
    for y, tiers in zip(rails, hanging, strict=True):
        taps = [x for tier in tiers for x in _tunnel_taps(tier)]
        yield from _twin(min(taps), y, (trunk if len(rails) > 1 else max(taps)) - min(taps), 0)
    for tier in regions:
        for x in _tunnel_taps(tier):
            yield from _twin(x, tier.bottom, 0, RAIL)
    for tier in sites:
        for x in _tunnel_taps(tier):
            yield from _twin(x, tier.y - RAIL, 0, RAIL)
    if len(rails) > 1:
        yield from _twin(trunk, rails[0], 0, rails[-1] - rails[0])


def tunnel_ends(regions: Sequence[Tier], sites: Sequence[Tier]) -> Iterator[Mark]:
    """Yield the square ends of the tunnels, which lie over the cards."""
    borders = (*((tier, tier.bottom) for tier in regions), *((tier, tier.y) for tier in sites))
    for tier, y in borders:
        for x in _tunnel_taps(tier):
            yield Rect(x - HUB / 2, y - HUB / 2, HUB, HUB, "end", 1)


def _mesh_taps(tier: Tier) -> list[float]:
    return [tier.columns.x(number) + MESH_AT for number in range(len(tier.cards))]


def _tunnel_taps(tier: Tier) -> list[float]:
    return [tier.columns.x(number) + tier.columns.width - TUNNEL_AT for number in range(len(tier.cards))]


def _twin(x: float, y: float, dx: float, dy: float) -> Iterator[Mark]:
    """Yield two lines side by side."""
    aside, below = (TWIN, 0.0) if dy else (0.0, TWIN)
    for side in (-1, 1):
        yield Line(x + side * aside, y + side * below, dx, dy, "tunnel")
