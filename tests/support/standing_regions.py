"""Two regions whose tunnel stands, whatever their gateways know each other by, and what is seen of it from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bedplate.plan import FleetPlan
from tests.support.lab_regions import RegionsLab, regions_lab
from tests.support.netlab_probe import capture
from vpn.sites.proof import PlaceProofs

INSIDE = "net 10.0.0.0/8"
# From the table of promises in docs/vpn-sites.md.
MOST_SECONDS = 10


@contextmanager
def standing_regions(plan: FleetPlan, proofs: PlaceProofs | None = None) -> Iterator[RegionsLab]:
    """Give both regions of a plan once a node of one answers a node of the other; by keys without other proofs."""
    with regions_lab(plan, proofs) as made:
        made.start()
        made.wait()
        yield made


def seen_of_pings(stands: RegionsLab) -> Path:
    """Have a node of each region answer one of the other, and return what the internet saw of it."""
    with capture(stands.internet, "us") as wire:
        assert stands.west.node.pings(stands.north.address)
        assert stands.north.node.pings(stands.west.address)
    return wire
