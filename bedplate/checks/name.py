"""Names that are made from the file's words: within what AWS and DNS take, once all prefixes stand before them."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.ladder import rungs_of
from bedplate.checks.rules import fault
from bedplate.plan.member import member_name
from bedplate.plan.names import pool_name
from bedplate.spec import Fleet
from bedplate.spec.domain import LONGEST
from bedplate.spec.site import Use

# Amazon EC2 API reference, CreateLaunchTemplate; an Auto Scaling group's may have 255.
LONGEST_TEMPLATE = 128


def check_names(evidence: Evidence) -> Iterator[Fault]:
    """Tell groups whose pools or machines would have names that are too long, or somebody else's."""
    fleet = evidence.fleet
    yield from _taken(fleet)
    for name, group in fleet.groups.items():
        for key, rung in rungs_of(name, group):
            # A pool of one zone is named after it: one letter more than the region.
            place = rung.zone or f"{rung.region}a"
            pool = f"{fleet.name}-{pool_name(name, rung, place)}"
            if len(pool) > LONGEST_TEMPLATE:
                message = f"the launch template {pool[:20]}... has {len(pool)} characters; EC2 takes {LONGEST_TEMPLATE}"
                yield fault("E350", key, message)
            host = f"{name}-{group.nodes.max}.{rung.region}.{fleet.domain}"
            if group.use is Use.SSH and len(host) > LONGEST:
                message = f"full names of its machines have {len(host)} characters; RFC 1123 allows {LONGEST}"
                yield fault("E248", f"groups.{name}", message)
                break


def _taken(fleet: Fleet) -> Iterator[Fault]:
    """Tell groups that people log in to whose machines would be called like those of the control plane."""
    home = next((name for name, region in fleet.regions.items() if region.home), "")
    first = member_name(1, home)
    for name, group in fleet.groups.items() if fleet.kubernetes else ():
        places = {rung.region for rung in group.ladder}
        if group.use is Use.SSH and home in places and f"{name}-1.{home}" == first:
            yield fault("E353", f"groups.{name}", f"{first} is a machine of the control plane")
