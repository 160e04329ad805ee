"""The image that nodes start from: the one that the lock remembers for their region, or else Canonical's own."""

from bedplate.catalog import Catalog
from bedplate.catalog.facts import Arch
from bedplate.plan.fleet import FleetPlan

# Canonical's names of the architectures in its public parameters.
# Source: https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/, read 2026-11.
_CANONICAL: dict[Arch, str] = {"x86_64": "amd64", "arm64": "arm64"}
_PARAMETER = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{arch}/hvm/ebs-gp3/ami-id"
# Where these images have their root volume.
ROOT_DEVICE = "/dev/sda1"


def architecture(types: tuple[str, ...], catalog: Catalog) -> Arch:
    """Return the architecture of a pool's types; a type that the catalogue does not know counts as x86_64."""
    facts = (catalog.types.get(name) for name in types)
    return next((fact.arch for fact in facts if fact is not None), "x86_64")


def image_of(plan: FleetPlan, region: str, types: tuple[str, ...], catalog: Catalog) -> str:
    """Return the image of a region's machines of these types: the recorded one by its id, else Canonical's newest."""
    arch = architecture(types, catalog)
    return plan.record.images.get(f"{region}/{arch}") or image_reference(arch)


def image_reference(arch: Arch) -> str:
    """Return what a launch template takes for an image id: EC2 looks the parameter up at each launch."""
    return f"resolve:ssm:{_PARAMETER.format(arch=_CANONICAL[arch])}"
