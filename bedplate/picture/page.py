"""The page of the picture: header, address map, regions and sites, ladders, and legend."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from bedplate.picture.addresses import bands, map_height, outside
from bedplate.picture.places import TO, above, below, is_meshed, tiers
from bedplate.picture.template import Cell, Word, height_of, render
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan

FRAME, SECTION, BELOW = 180, 54, 14  # heights: margins with header and legend, a heading, the space below a ladder
RUNGS = 4  # side by side


@dataclass(frozen=True, slots=True)
class Ladder:
    """A group with its rungs."""

    name: Cell
    types: Cell
    rungs: tuple[Cell, ...]

    @property
    def height(self) -> int:
        """The height of the rungs, and at least that of name and types."""
        return max(height_of((self.name, self.types)), height_of(self.rungs, RUNGS))


def ladders(plan: FleetPlan) -> Iterator[Ladder]:
    """Yield the groups."""
    for name, members in groupby(plan.pools, key=lambda pool: pool.group):
        pools = tuple(members)
        first = pools[0]
        fabric = f", {first.fabric.value}" if first.fabric else ""
        facts = Word(f"{first.min}{TO}{first.max} for {first.use.value}{fabric}", "note fixed")
        yield Ladder((Word(name, "name"), facts), (Word(", ".join(first.types), "note"),), tuple(_rungs(pools)))


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
    ladders_height = SECTION * bool(groups) + sum(group.height + BELOW for group in groups)
    height = FRAME + SECTION + map_height(parts, others) + SECTION + (regions + sites)[-1].bottom + ladders_height
    return render(
        "fleet.svg.j2",
        plan=plan,
        height=height,
        bands=parts,
        outside=others,
        regions=regions,
        sites=sites,
        mesh=[*map(above, regions)] if is_meshed(plan) else [],
        tunnels=[*map(below, regions), *map(above, sites)] if sites else [],
        ladders=groups,
    )
