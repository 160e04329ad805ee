"""One AWS region of a fleet."""

from pydantic import Field

from bedplate.spec.address import Block
from bedplate.spec.base import Spec
from bedplate.spec.text import ZoneName


class Region(Spec):
    """An AWS region, and the zones of it that the fleet uses."""

    home: bool = Field(
        default=False,
        title="Home region",
        description="True for exactly one region: Kubernetes control plane, image bakes, shared parameters.",
    )
    zones: tuple[ZoneName, ...] = Field(
        min_length=1,
        title="Availability zones",
        description="Zones of this region to use; each gets an edge and a node subnet.",
    )
    block: Block | None = Field(
        default=None,
        title="Declared block",
        description="The VPC's block, where it must be a certain one; left out, bedplate allots it in the supernet.",
    )
