"""All checks of a fleet, in the order of its file."""

from collections.abc import Callable, Iterator

from bedplate.checks.block import check_overlaps, check_ranges, check_sizes
from bedplate.checks.budget import check_budget
from bedplate.checks.certified import check_certified
from bedplate.checks.cluster import check_control_plane, check_laptops, check_workers
from bedplate.checks.driver import check_driver
from bedplate.checks.endpoint import check_endpoints
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.group import check_groups
from bedplate.checks.interconnect import check_interconnect, check_out_of_reach
from bedplate.checks.join import check_joins
from bedplate.checks.kind import check_kinds
from bedplate.checks.label import check_labels
from bedplate.checks.ladder import check_ladders
from bedplate.checks.market import check_markets
from bedplate.checks.mount import check_mounts
from bedplate.checks.name import check_names
from bedplate.checks.name_server import check_name_servers
from bedplate.checks.offer import check_offers
from bedplate.checks.person import check_people
from bedplate.checks.region import check_home, check_regions
from bedplate.checks.reservation import check_blocks, check_reservations
from bedplate.checks.room import check_room
from bedplate.checks.site import check_gateways, check_sites
from bedplate.checks.store import check_stores
from bedplate.checks.tag import check_tags
from bedplate.checks.tenure import check_tenure
from bedplate.checks.version import check_versions
from bedplate.checks.volume import check_volumes

Checker = Callable[[Evidence], Iterator[Fault]]

CHECKERS: tuple[Checker, ...] = (
    check_ranges,
    check_overlaps,
    check_sizes,
    check_regions,
    check_home,
    check_interconnect,
    check_endpoints,
    check_sites,
    check_gateways,
    check_joins,
    check_name_servers,
    check_groups,
    check_kinds,
    check_ladders,
    check_offers,
    check_markets,
    check_reservations,
    check_blocks,
    check_out_of_reach,
    check_room,
    check_volumes,
    check_tenure,
    check_labels,
    check_tags,
    check_names,
    check_driver,
    check_stores,
    check_mounts,
    check_people,
    check_workers,
    check_control_plane,
    check_versions,
    check_laptops,
    check_certified,
    check_budget,
)


def check_fleet(evidence: Evidence) -> Iterator[Fault]:
    """Yield every fault that the checks find, allowed ones too."""
    for check in CHECKERS:
        yield from check(evidence)
