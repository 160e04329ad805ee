"""The images that a fleet's machines start from: for which regions and architectures, and where each is looked up."""

import re
from collections.abc import Iterator

from bedplate.catalog import Catalog
from bedplate.catalog.facts import Arch
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.standing import GATEWAY_TYPE

IMAGE_ID = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})", re.ASCII)
# Canonical's names of the architectures in its public parameters.
# Source: https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/, read 2026-11.
_CANONICAL: dict[str, str] = {"x86_64": "amd64", "arm64": "arm64"}
_PARAMETER = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{arch}/hvm/ebs-gp3/ami-id"


def architecture(types: tuple[str, ...], catalog: Catalog) -> Arch:
    """Return the architecture of a pool's types; a type that the catalogue does not know counts as x86_64."""
    facts = (catalog.types.get(name) for name in types)
    return next((fact.arch for fact in facts if fact is not None), "x86_64")


def image_parameter(arch: str) -> str:
    """Return the public parameter in which Canonical names its newest image, the same in every region."""
    return _PARAMETER.format(arch=_CANONICAL[arch])


def image_places(plan: FleetPlan, catalog: Catalog) -> tuple[str, ...]:
    """Return every `region/architecture` in which pools, laptop gateways or the control plane have machines."""
    used = {f"{region}/{architecture(types, catalog)}" for region, types in _machines(plan)}
    return tuple(sorted(used))


def unrecorded_images(plan: FleetPlan, catalog: Catalog) -> tuple[str, ...]:
    """Return the places of which the lock remembers no image."""
    return tuple(place for place in image_places(plan, catalog) if place not in plan.record.images)


def indispensable_images(plan: FleetPlan, catalog: Catalog) -> tuple[str, ...]:
    """Return the places of which the lock remembers no image, and where a parameter cannot stand for it.

    Auto Scaling takes none where it chooses types by what they have. Source: its user guide, "Use AWS Systems Manager
    parameters instead of AMI IDs in launch templates", limitations.
    """
    chosen = {f"{pool.region}/{architecture(pool.types, catalog)}" for pool in plan.pools if pool.offer.similar}
    return tuple(sorted(chosen - plan.record.images.keys()))


def _machines(plan: FleetPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from ((pool.region, pool.types) for pool in plan.pools)
    regions = {region.name for region in plan.regions}
    yield from ((gateway.place, (GATEWAY_TYPE,)) for gateway in plan.laptops if gateway.place in regions)
    if plan.control_plane:
        yield plan.home.name, (plan.control_plane.type,)
