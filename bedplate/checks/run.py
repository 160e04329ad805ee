"""All checks of a fleet, in the order of its file."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from bedplate.catalog.nearest import nearest
from bedplate.checks.addresses import check_overlaps, check_ranges, check_sizes
from bedplate.checks.catalogue import RULES
from bedplate.checks.cluster import check_control_plane, check_laptops, check_workers
from bedplate.checks.context import Evidence
from bedplate.checks.diagnostics import Fault, fault
from bedplate.checks.groups import check_groups, check_kinds, check_labels, check_tags, check_volumes
from bedplate.checks.images import check_driver, check_versions
from bedplate.checks.ladders import check_blocks, check_ladders, check_markets, check_offers, check_reservations
from bedplate.checks.lifetimes import check_budget, check_tenure
from bedplate.checks.names import check_certified, check_names
from bedplate.checks.people import check_people
from bedplate.checks.regions import (
    check_endpoints,
    check_home,
    check_interconnect,
    check_out_of_reach,
    check_regions,
    check_room,
)
from bedplate.checks.sites import check_gateways, check_joins, check_name_servers, check_sites
from bedplate.checks.storage import check_mounts, check_stores

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


def excused(faults: Iterable[Fault], allow: Mapping[str, str], *, is_whole: bool) -> Iterator[Fault]:
    """Yield the faults that the file does not allow, and what is wrong with its exceptions.

    An exception that no fault needs is told where the file `is_whole`, so that every check has seen all of it.
    """
    met = set()
    for told in faults:
        met.add(told.code)
        if told.code not in allow or not RULES[told.code].allowable:
            yield told
    for code, reason in allow.items():
        yield from _faults_of(code, reason)
        rule = RULES.get(code)
        if is_whole and rule and rule.allowable and not rule.late and code not in met:
            yield fault("W703", f"allow.{code}", f"nothing in this file breaks {code}")


def _faults_of(code: str, reason: str) -> Iterator[Fault]:
    if code not in RULES:
        near = nearest(code, RULES)
        yield fault("E701", f"allow.{code}", "there is no rule of this code", f"write {near}" if near else "")
    elif not RULES[code].allowable:
        yield fault("E702", f"allow.{code}", f"{code} {RULES[code].name} cannot be allowed")
    if not reason.strip():
        yield fault("E704", f"allow.{code}", "the exception has no reason")
