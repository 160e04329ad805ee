"""The middle of the picture: regions and sites as cards, and what ties them together."""

from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.picture.card import Card
from bedplate.picture.grid import Columns, Tier, columns, placed
from bedplate.picture.links import RAIL, mesh, mesh_ends, tunnel_ends, tunnels
from bedplate.picture.marks import Mark, Part, Text
from bedplate.picture.measure import Face
from bedplate.picture.region import region_card
from bedplate.picture.site import site_card
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.network import Interconnect

SIDE, TRUNK, ABOVE, APART = 14.0, 4.0, 20.0, 26.0
MESHES = {
    Interconnect.TRANSIT: "transit gateways, each peered with every other",
    Interconnect.PEERING: "VPC peerings, each region with every other",
}
TUNNELS = "two tunnels from each site to each region"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the cards stand; `mesh` says what ties regions together, and is empty where nothing does."""

    regions: tuple[Tier, ...]
    sites: tuple[Tier, ...]
    mesh: str
    room: float


def places(plan: FleetPlan, room: float) -> Part:
    """Return the cards of all regions and sites, tied together."""
    layout = _laid_out(plan, room)
    tiers = (*layout.regions, *layout.sites)
    cards = (mark for tier in tiers for mark in tier.marks())
    return Part(room, tiers[-1].bottom, (*_mesh(layout), *_tunnels(layout), *cards, *_ends(layout)))


def _laid_out(plan: FleetPlan, room: float) -> Layout:
    regions = tuple(region_card(plan, region) for region in plan.regions)
    sites = tuple(site_card(plan, site) for site in plan.sites)
    words = MESHES.get(plan.interconnect, "") if len(regions) > 1 else ""
    grid = _columns(regions, sites, room)
    top = ABOVE + RAIL if words else 0.0
    above = placed(regions, grid, top, RAIL * (bool(words) + bool(sites)) + APART)
    below = placed(sites, grid, above[-1].bottom + 2 * RAIL, RAIL + APART)
    return Layout(above, below, words, room)


def _columns(regions: tuple[Card, ...], sites: tuple[Card, ...], room: float) -> Columns:
    """Return columns that take the whole room, unless a trunk has to pass beside them."""
    natural = max(card.natural for card in (*regions, *sites))
    most = max(len(regions), len(sites))
    wide = columns(natural, most, 0, room)
    return wide if wide.count == most else columns(natural, most, SIDE, room - 2 * SIDE)


def _mesh(layout: Layout) -> Iterator[Mark]:
    if layout.mesh:
        first = layout.regions[0]
        yield Text(first.columns.x(0), first.y - RAIL - 8, layout.mesh, Face.NOTE)
        yield from mesh(layout.regions, TRUNK)


def _tunnels(layout: Layout) -> Iterator[Mark]:
    if layout.sites:
        last = layout.regions[-1]
        yield Text(last.columns.x(0), last.bottom + RAIL + 4, TUNNELS, Face.NOTE)
        yield from tunnels(layout.regions, layout.sites, layout.room - TRUNK)


def _ends(layout: Layout) -> Iterator[Mark]:
    if layout.mesh:
        yield from mesh_ends(layout.regions)
    if layout.sites:
        yield from tunnel_ends(layout.regions, layout.sites)
