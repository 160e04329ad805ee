"""The card of a site: its LAN, its gateway, how many machines it has for what, and what they export."""

from collections import Counter

from bedplate.picture.card import Card, Piece, Rule
from bedplate.picture.measure import Face
from bedplate.picture.place import direct_rows, laptops_row, store_row
from bedplate.picture.signs import Sign
from bedplate.picture.table import Cell, Shape, Table, Word
from bedplate.plan.fleet import FleetPlan, SitePlan
from bedplate.spec.site import Dials, Use

Row = tuple[Cell, ...]
DIALS = {Dials.SITE: "dials", Dials.AWS: "waits for AWS to dial"}
USES = {Use.KUBERNETES: "for kubernetes", Use.SSH: "for ssh", None: "serving the site"}


def site_card(plan: FleetPlan, site: SitePlan) -> Card:
    """Return the card of one site of the plan."""
    title: Row = ((Word(site.name, Face.HEADING),), (Word(str(site.lan), Face.CODE),))
    doors = (_gateway(site), *direct_rows(plan, site.name), *_names(site), *laptops_row(plan, site.name))
    pieces: list[Piece] = [Table((title,)), Table(doors)]
    for rows in (_machines(site), _exports(plan, site)):
        if rows:
            pieces += (Rule(), Table(rows))
    return Card(tuple(pieces))


def _gateway(site: SitePlan) -> Row:
    reached = (Word(str(site.public), Face.CODE), Word(f"AS{site.asn}", Face.NOTE))
    return ((Shape(Sign.GATEWAY, "door"), Word(site.gateway), Word(DIALS[site.dials], Face.NOTE)), reached)


def _names(site: SitePlan) -> tuple[Row, ...]:
    """Return the row of the site's own domain, where the fleet asks for it there."""
    if site.dns is None:
        return ()
    servers = " ".join(map(str, site.dns.servers))
    return (((Shape(Sign.NAMES, "door", f"asked of {servers}"), Word("names")), (Word(site.dns.domain, Face.CODE),)),)


def _exports(plan: FleetPlan, site: SitePlan) -> tuple[Row, ...]:
    return tuple(
        store_row(Sign.FILES, f"{each.machine}:{each.export}", each.store, f"NFS on {each.mount}")
        for each in plan.exports
        if each.site == site.name
    )


def _machines(site: SitePlan) -> tuple[Row, ...]:
    counts = Counter(site.uses.values())
    return tuple(
        ((Word(f"machines {words}"),), (Word(str(counts[use])),)) for use, words in USES.items() if counts[use]
    )
