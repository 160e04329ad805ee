"""Images that the lock remembers, against where machines start: all of a fleet start from an image of its own, or none.

Only a plan and its lock show it, so it is asked once there is a plan.
"""

from collections.abc import Iterator

from bedplate.catalog import Catalog
from bedplate.catalog.facts import Arch
from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault
from bedplate.plan import FleetPlan


def check_images(plan: FleetPlan, catalog: Catalog) -> Iterator[Fault]:
    """Tell rungs and a control plane in a region, or of an architecture, for which no image is recorded."""
    images = plan.record.images
    if not images:
        return
    have = ", ".join(sorted(images))
    for key, region, types in _places(plan):
        for arch in sorted({_arch(name, catalog) for name in types}):
            if f"{region}/{arch}" not in images:
                message = f"the lock has no image for {arch} in {region}: {have} alone"
                yield fault("E349", key, message)


def _places(plan: FleetPlan) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield where machines start: the key that asks for them, the region, their types."""
    for pool in plan.pools:
        yield f"groups.{pool.group}.ladder.{pool.rung}", pool.region, pool.types
    if plan.control_plane:
        yield "kubernetes.control_plane", plan.home.name, (plan.control_plane.type,)


def _arch(name: str, catalog: Catalog) -> Arch:
    facts = catalog.types.get(name)
    return facts.arch if facts else "x86_64"
