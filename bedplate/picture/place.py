"""What regions and sites both have: stores, a gateway for laptops, and the tunnels that end there."""

from bedplate.picture.measure import Face
from bedplate.picture.signs import Sign
from bedplate.picture.table import Cell, Shape, Word
from bedplate.plan.fleet import FleetPlan

Row = tuple[Cell, ...]


def laptops_row(plan: FleetPlan, place: str) -> tuple[Row, ...]:
    """Return the row of the laptop gateway in a region or on a site, where it has one."""
    return tuple(
        ((Shape(Sign.LAPTOP, "door"), Word("laptops")), (Word(str(pool.block), Face.CODE),))
        for pool in plan.laptops
        if pool.place == place
    )


def store_row(sign: Sign, title: str, name: str, facts: str) -> Row:
    """Return the row of a store."""
    return ((Shape(sign, title=title), Word(name)), (Word(facts, Face.NOTE),))


def gateway_rows(plan: FleetPlan, region: str) -> tuple[Row, ...]:
    """Return a row for each site whose tunnels end in the region, with their inside blocks."""
    return tuple(
        ((Shape(Sign.TUNNELS, "door"), Word(site.name)), _insides(plan, site.name, region))
        for site in plan.sites
        if any((tunnel.site, tunnel.region) == (site.name, region) for tunnel in plan.tunnels)
    )


def direct_rows(plan: FleetPlan, site: str) -> tuple[Row, ...]:
    """Return a row for each site that this one has a tunnel to, without AWS, with its inside block."""
    return tuple(
        ((Shape(Sign.TUNNELS, "door"), Word(each.other(site))), (Word(str(each.inside), Face.FAINT),))
        for each in plan.directs_of(site)
    )


def _insides(plan: FleetPlan, site: str, region: str) -> Cell:
    ours = (tunnel for tunnel in plan.tunnels if (tunnel.site, tunnel.region) == (site, region))
    return tuple(Word(str(tunnel.inside), Face.FAINT) for tunnel in ours)
