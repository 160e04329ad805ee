"""The card of a site: its LAN, its gateway, and how many machines it has for what."""

from collections import Counter

from bedplate.picture.card import Card, Piece, Rule
from bedplate.picture.measure import Face
from bedplate.picture.place import laptops_row
from bedplate.picture.signs import Sign
from bedplate.picture.table import Cell, Shape, Table, Word
from bedplate.plan.fleet import FleetPlan, SitePlan
from bedplate.spec.site import Use

Row = tuple[Cell, ...]
USES = {Use.KUBERNETES: "for kubernetes", Use.SSH: "for ssh", None: "serving the site"}


def site_card(plan: FleetPlan, site: SitePlan) -> Card:
    """Return the card of one site of the plan."""
    title: Row = ((Word(site.name, Face.HEADING),), (Word(str(site.lan), Face.CODE),))
    doors = (_gateway(site), *laptops_row(plan, site.name))
    pieces: list[Piece] = [Table((title,)), Table(doors)]
    if site.machines:
        pieces += (Rule(), Table(_machines(site)))
    return Card(tuple(pieces))


def _gateway(site: SitePlan) -> Row:
    reached = (Word(str(site.public), Face.CODE), Word(f"AS{site.asn}", Face.NOTE))
    return ((Shape(Sign.GATEWAY, "door"), Word(site.gateway)), reached)


def _machines(site: SitePlan) -> tuple[Row, ...]:
    counts = Counter(site.uses.values())
    return tuple(
        ((Word(f"machines {words}"),), (Word(str(counts[use])),)) for use, words in USES.items() if counts[use]
    )
