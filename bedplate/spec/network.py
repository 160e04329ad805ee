"""The network of a fleet: the block everything lies in, and how its parts reach each other and the world."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from bedplate.spec.address import Block, Prefix
from bedplate.spec.base import Spec


class Interconnect(StrEnum):
    """How regions reach each other."""

    TRANSIT = "transit"
    PEERING = "peering"
    NONE = "none"


class Egress(StrEnum):
    """How nodes without a public address reach the internet."""

    SHARED = "shared"
    PER_ZONE = "per-zone"
    NONE = "none"


class Endpoint(StrEnum):
    """A service of AWS that nodes reach without leaving their region's network."""

    ECR = "ecr"
    SSM = "ssm"
    STS = "sts"
    LOGS = "logs"


class Network(Spec):
    """Where addresses come from, and the fabric between them."""

    supernet: Block = Field(
        title="Supernet",
        description="The IPv4 block in which every block that bedplate allots lies; fleet.lock remembers each.",
    )
    interconnect: Interconnect = Field(
        default=Interconnect.TRANSIT,
        strict=False,
        title="Interconnect",
        description="How regions reach each other: transit (transit gateways, peered), peering (VPC peering) or none "
        "(by their gateways of laptops, or not at all).",
    )
    egress: Egress = Field(
        default=Egress.SHARED,
        strict=False,
        title="Egress",
        description="How nodes reach the internet: shared (one NAT gateway a region), per-zone (one a zone) or none.",
    )
    endpoints: tuple[Annotated[Endpoint, Field(strict=False)], ...] = Field(
        default=(),
        title="Endpoints",
        description="Services that nodes reach inside each region: ecr, ssm, sts, logs. Paid for by zone and hour.",
    )
    region_size: Prefix = Field(
        default=16,
        title="Size of a region",
        description="Prefix length of the block that a region gets, /16 to /20. A region that has its block keeps it.",
    )
