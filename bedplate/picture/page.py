"""The page: what the fleet is, its addresses, its places, its ladders, and what the signs mean."""

from bedplate.picture.ladders import ladders
from bedplate.picture.legend import legend
from bedplate.picture.marks import Mark, Part, Rect, Text, stacked
from bedplate.picture.measure import Face, fitted
from bedplate.picture.paint import painted
from bedplate.picture.places import places
from bedplate.picture.supernet import supernet_map
from bedplate.picture.table import Word, cell_marks
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.network import Egress

WIDTH, MARGIN, GAP, HEAD = 1152.0, 32.0, 30.0, 14.0
ROOM = WIDTH - 2 * MARGIN
EGRESS = {
    Egress.SHARED: "one NAT gateway in each region",
    Egress.PER_ZONE: "one NAT gateway in each zone",
    Egress.NONE: "no way out to the internet",
}
LADDERS = "where machines come from"


def picture(plan: FleetPlan) -> str:
    """Return the fleet as SVG text; the same plan gives the same bytes."""
    return painted(page(plan), f"The fleet {plan.name}", described(plan))


def page(plan: FleetPlan) -> Part:
    """Return all marks of the picture."""
    sections = [
        _header(plan),
        _headed("Addresses", f"supernet {plan.supernet}", supernet_map(plan, ROOM)),
        _headed("Regions and sites" if plan.sites else "Regions", EGRESS[plan.egress], places(plan, ROOM)),
    ]
    if plan.pools:
        sections.append(_headed("Ladders", LADDERS, ladders(plan, ROOM)))
    drawn = stacked(sections, GAP)
    body = stacked((drawn, legend(drawn.marks, ROOM)), GAP)
    height = body.height + 2 * MARGIN
    ground = Rect(0, 0, WIDTH, height, "page", 12)
    return Part(WIDTH, height, (ground, *body.at(MARGIN, MARGIN)))


def described(plan: FleetPlan) -> str:
    """Return the picture in a sentence, for who does not see it."""
    regions = ", ".join(f"{region.name} ({region.block})" for region in plan.regions)
    sites = ", ".join(f"{site.name} ({site.lan})" for site in plan.sites) or "none"
    return f"Supernet {plan.supernet}. Regions: {regions}. Sites: {sites}. Interconnect: {plan.interconnect.value}."


def _header(plan: FleetPlan) -> Part:
    facts = f"account {plan.account} · {plan.domain} · {plan.owner}"
    cut = fitted(facts, Face.NOTE, ROOM)
    marks: tuple[Mark, ...] = (Text(0, 20, plan.name, Face.TITLE), Text(0, 42, cut, Face.NOTE))
    return Part(ROOM, 46, marks)


def _headed(words: str, aside: str, body: Part) -> Part:
    head = cell_marks((Word(words, Face.HEADING), Word(aside, Face.NOTE)), 0, HEAD / 2)
    return stacked((Part(body.width, HEAD, head), body), 10)
