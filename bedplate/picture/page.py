"""The page of the picture: header, address map, regions and sites, ladders, and legend."""

from collections.abc import Iterator
from itertools import groupby

from bedplate.picture.addresses import bands, map_height, outside
from bedplate.picture.places import TO, is_meshed, rails, tiers
from bedplate.picture.template import ROW, Cell, Word, height_of, render
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan

FRAME, SECTION, BELOW = 180, 54, 14  # heights: margins with header and legend, a heading, the space below a ladder
RUNGS = 4  # side by side


# The words of a group, the types of its machines, and its rungs.
Ladder = tuple[Cell, Cell, tuple[Cell, ...]]


def ladders(plan: FleetPlan) -> Iterator[Ladder]:
    """Yield the groups."""
    for name, members in groupby(plan.pools, key=lambda pool: pool.group):
        pools = tuple(members)
        first = pools[0]
        fabric = f", {first.fabric.value}" if first.fabric else ""
        facts = Word(f"{first.min}{TO}{first.max} for {first.use.value}{fabric}", "note fixed")
        yield (Word(name, "name"), facts), (Word(", ".join(first.types), "note"),), tuple(_rungs(pools))


def _rungs(pools: tuple[PoolPlan, ...]) -> Iterator[Cell]:
    """Yield the numbered rungs; pools that differ only in their zone are one rung."""
    groups = groupby(pools, key=lambda pool: (pool.market, pool.region, pool.rung_spec.reservation))
    for number, ((market, region, _), members) in enumerate(groups, start=1):
        rung = tuple(members)
        title = f"{market.value}: {', '.join(pool.name for pool in rung)}"
        zones = [zone.removeprefix(region) for pool in rung for zone in pool.zones]
        letters = "".join(zones) if len(zones) == len(rung) else ""
        yield (Word(number, "note fixed"), Word(region, sign=market.value, title=title), Word(letters, "note"))


def picture(plan: FleetPlan) -> str:
    """Return the picture as SVG; the same plan gives the same bytes."""
    parts, others, groups = tuple(bands(plan)), outside(plan), tuple(ladders(plan))
    regions, sites = tiers(plan)
    rung_heights = (max(2 * ROW, height_of(rungs, RUNGS)) for _, _, rungs in groups)
    ladders_height = SECTION * bool(groups) + sum(height + BELOW for height in rung_heights)
    height = FRAME + SECTION + map_height(parts, others) + SECTION + (regions + sites)[-1].bottom + ladders_height
    return render(
        "fleet.svg.j2",
        plan=plan,
        height=height,
        bands=parts,
        outside=others,
        regions=regions,
        sites=sites,
        mesh=[*rails(regions)] if is_meshed(plan) else [],
        tunnels=[*rails(regions, is_below=True), *rails(sites)] if sites else [],
        ladders=groups,
    )
