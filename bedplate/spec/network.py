"""The network of a fleet: the block everything lies in, and how its parts reach each other and the world."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from bedplate.spec.address import Block, Prefix
from bedplate.spec.base import Spec
from bedplate.spec.text import RegionName, Slug, ZoneName


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


class LaptopGateway(Spec):
    """An OpenVPN gateway, in a region or on a site (one of the two)."""

    region: RegionName | None = Field(default=None, title="Region", description="The region it stands in.")
    site: Slug | None = Field(default=None, title="Site", description="The site it stands on.")


class Laptops(Spec):
    """The gateways that laptops dial, and the addresses they get there."""

    gateways: tuple[LaptopGateway, ...] = Field(
        min_length=1, title="Gateways", description="Every user's profile names them all."
    )
    pool: Prefix = Field(
        default=22, title="Pool size", description="Prefix length of each gateway's pool of client addresses."
    )
    between: bool = Field(
        default=False,
        title="Between laptops",
        description="Whether laptops reach each other; nobody else opens a connection to one either way.",
    )


class TunnelAuth(StrEnum):
    """By what two gateways of the fleet know each other, in IPsec's words."""

    PSK = "psk"
    CERTIFICATES = "certificates"


class Tunnels(Spec):
    """Tunnels between gateways of the fleet's own, of regions and of sites; those to AWS have AWS's keys."""

    auth: TunnelAuth = Field(
        default=TunnelAuth.PSK,
        strict=False,
        title="Authentication",
        description="psk (a key for each two gateways) or certificates (of the fleet's authority, renewed by a sync).",
    )


class Vpn(Spec):
    """Virtual private networks of the fleet."""

    laptops: Laptops | None = Field(default=None, title="Laptops", description="OpenVPN for people.")
    tunnels: Tunnels = Field(
        default_factory=Tunnels, title="Tunnels", description="Tunnels between the fleet's own gateways."
    )
