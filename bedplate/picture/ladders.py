"""The ladders: for each group what it is, and where its next machine comes from, in order."""

from collections.abc import Iterator
from itertools import groupby

from bedplate.picture.flow import in_columns
from bedplate.picture.marks import Mark, Part, Text, stacked
from bedplate.picture.measure import TO, Face, fitted
from bedplate.picture.signs import MARKETS
from bedplate.picture.table import ROW, TOKEN_GAP, Cell, Shape, Word, cell_marks, cell_width
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan

ASIDE, GAP = 340.0, 14.0


def ladders(plan: FleetPlan, room: float) -> Part:
    """Return the groups below one another, each with its rungs; rungs of one number stand below one another."""
    groups = [tuple(pools) for _, pools in groupby(plan.pools, key=lambda pool: pool.group)]
    widest = max(cell_width(rung) for pools in groups for rung in _rungs(pools))
    return stacked((_ladder(pools, room, widest) for pools in groups), GAP)


def _ladder(pools: tuple[PoolPlan, ...], room: float, widest: float) -> Part:
    first = pools[0]
    rungs = in_columns(tuple(_rungs(pools)), room - ASIDE, widest)
    types = ", ".join(first.types)
    facts = Word(_facts(first), Face.NOTE)
    name = fitted(first.group, Face.STRONG, ASIDE - GAP - TOKEN_GAP - facts.width)
    words: tuple[Mark, ...] = (
        *cell_marks((Word(name, Face.STRONG), facts), 0, ROW / 2),
        Text(0, ROW + 10, fitted(types, Face.NOTE, ASIDE - GAP), Face.NOTE, title=types),
    )
    return Part(room, max(rungs.height, 2 * ROW - 4), (*words, *rungs.at(ASIDE, 0)))


def _facts(pool: PoolPlan) -> str:
    fabric = f", {pool.fabric.value}" if pool.fabric else ""
    return f"{pool.min}{TO}{pool.max} for {pool.use.value}{fabric}"


def _rungs(pools: tuple[PoolPlan, ...]) -> Iterator[Cell]:
    """Yield the rungs by their numbers; pools that differ in their zone alone are one rung."""
    alike = groupby(pools, key=lambda pool: (pool.market, pool.region, pool.offer.reservation))
    for number, ((market, region, _), same) in enumerate(alike, start=1):
        rung = tuple(same)
        sign = Shape(MARKETS[market], title=f"{market.value}: {', '.join(pool.name for pool in rung)}")
        yield (Word(str(number), Face.NOTE), sign, Word(region), Word(_zones(rung), Face.NOTE))


def _zones(rung: tuple[PoolPlan, ...]) -> str:
    """Return the letters of the zones of a rung whose pools keep to one each."""
    if any(len(pool.zones) > 1 for pool in rung):
        return ""
    return "".join(zone.removeprefix(pool.region) for pool in rung for zone in pool.zones)
