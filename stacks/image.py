"""The image that nodes start from: the one that the lock remembers for their region, or else Canonical's own."""

from bedplate.catalog import Catalog
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.images import architecture, image_parameter

# Where these images have their root volume.
ROOT_DEVICE = "/dev/sda1"


def image_of(plan: FleetPlan, region: str, types: tuple[str, ...], catalog: Catalog) -> str:
    """Return the image of a region's machines of these types: the recorded one by its id, else Canonical's newest."""
    arch = architecture(types, catalog)
    return plan.record.images.get(f"{region}/{arch}") or image_reference(arch)


def image_reference(arch: str) -> str:
    """Return what a launch template takes for an image id: EC2 looks the parameter up at each launch."""
    return f"resolve:ssm:{image_parameter(arch)}"
