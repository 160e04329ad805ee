"""The network sections of the fleet file: address space, regions, gateways for laptops, and tunnels."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from bedplate.spec.address import Block, Prefix
from bedplate.spec.base import Spec
from bedplate.spec.policy import (
    BOTH,
    CHANGED,
    EVERY,
    MOVE_DATA,
    RELEASE,
    Effect,
    entries,
    free,
    on_edit,
    refused,
    removes,
    replaces,
    shrinks,
)
from bedplate.spec.text import RegionName, Slug, ZoneName


class Interconnect(StrEnum):
    """How regions are connected."""

    TRANSIT = "transit"
    PEERING = "peering"
    NONE = "none"


class Egress(StrEnum):
    """How nodes without a public address reach the internet."""

    SHARED = "shared"
    PER_ZONE = "per-zone"
    NONE = "none"


class Endpoint(StrEnum):
    """An AWS service that nodes can reach through a VPC endpoint."""

    ECR = "ecr"
    SSM = "ssm"
    STS = "sts"
    LOGS = "logs"


class Network(Spec):
    """The address space, and the connections of regions."""

    supernet: Block = Field(
        title="Supernet",
        description="IPv4 block for all allocated blocks. fleet.lock records each of them.",
        json_schema_extra=on_edit(
            shrinks("recorded blocks would be outside it", Effect.REFUSED, "write a block that contains them all")
        ),
    )
    interconnect: Interconnect = Field(
        default=Interconnect.TRANSIT,
        strict=False,
        title="Interconnect",
        description="How regions are connected: transit (peered transit gateways), peering (VPC peering) or none "
        "(through their laptop gateways, or not at all).",
        json_schema_extra=on_edit(
            removes(
                "all connections of regions and sites are replaced, down meanwhile; then run `bedplate vpn tunnels`. "
                "Only transit connects laptops with pods",
                CHANGED,
            )
        ),
    )
    egress: Egress = Field(
        default=Egress.SHARED,
        strict=False,
        title="Egress",
        description="How nodes reach the internet: shared (a NAT gateway per region), per-zone (one per zone) or none.",
        json_schema_extra=on_edit(replaces("NAT gateways and their public addresses; with none, no egress")),
    )
    endpoints: tuple[Annotated[Endpoint, Field(strict=False)], ...] = Field(
        default=(),
        title="Endpoints",
        description="VPC endpoints in each region: ecr, ssm, sts, logs. Each costs money per zone and hour.",
        json_schema_extra=on_edit(free("endpoints; without one, nodes use the internet", *EVERY)),
    )
    region_size: Prefix = Field(
        default=16,
        title="Region size",
        examples=["/18"],
        description="Prefix length of the block of a new region, /16 to /20. Existing regions keep their block.",
        json_schema_extra=on_edit(free("new regions; existing ones keep their block")),
    )


class Region(Spec):
    """An AWS region, and the zones that the fleet uses in it."""

    home: bool = Field(
        default=False,
        title="Home region",
        description="True for exactly one region: it has the control plane, image builds and shared parameters.",
        json_schema_extra=on_edit(
            refused("all shared resources would move; keys and etcd's volumes are protected", MOVE_DATA)
        ),
    )
    zones: tuple[ZoneName, ...] = Field(
        min_length=1,
        title="Availability zones",
        description="Zones of this region. Each gets an edge subnet and a node subnet.",
        json_schema_extra=on_edit(
            free("nothing: the order has no meaning", CHANGED),
            entries(
                "its subnets; no other is affected",
                "its subnets; terminate its instances first, as `diff` shows; refused if etcd is there",
            ),
        ),
    )
    block: Block | None = Field(
        default=None,
        title="Declared block",
        examples=["10.80.0.0/16"],
        description="Block of the VPC. Default: bedplate allocates one in the supernet.",
        json_schema_extra=on_edit(
            refused("all addresses of the region would change", RELEASE),
            refused(
                "all addresses of the region would change",
                "write the recorded block or no block, if it is in the supernet",
                *BOTH,
            ),
        ),
    )


_ANOTHER_GATEWAY = "the old gateway and its address; a new gateway is created"


class LaptopGateway(Spec):
    """An OpenVPN gateway, in a region or at a site."""

    region: RegionName | None = Field(
        default=None,
        title="Region",
        description="Region of the gateway; instead of `site`.",
        json_schema_extra=on_edit(replaces(_ANOTHER_GATEWAY, *EVERY)),
    )
    site: Slug | None = Field(
        default=None,
        title="Site",
        examples=["office"],
        description="Site of the gateway; instead of `region`.",
        json_schema_extra=on_edit(replaces(_ANOTHER_GATEWAY, *EVERY)),
    )


class Laptops(Spec):
    """The VPN gateways for laptops, and the addresses of laptops."""

    gateways: tuple[LaptopGateway, ...] = Field(
        min_length=1,
        title="Gateways",
        description="Gateways for laptops. The profile of every user lists all of them.",
        json_schema_extra=on_edit(
            free("nothing: the order has no meaning", CHANGED), entries("a gateway", "the gateway and its address")
        ),
    )
    pool: Prefix = Field(
        default=22,
        title="Pool size",
        examples=["/24"],
        description="Prefix length of the pool of client addresses of each gateway.",
        json_schema_extra=on_edit(refused("the laptops' addresses would change", RELEASE)),
    )
    between: bool = Field(
        default=False,
        title="Between laptops",
        description="Whether laptops may connect to each other. Other hosts can never connect to a laptop.",
        json_schema_extra=on_edit(free("gateways at their next apply, laptops when they reconnect")),
    )


class TunnelAuth(StrEnum):
    """How two gateways of the fleet authenticate each other."""

    PSK = "psk"
    CERTIFICATES = "certificates"


class Tunnels(Spec):
    """The tunnels between the fleet's own gateways; tunnels to AWS use keys from AWS."""

    auth: TunnelAuth = Field(
        default=TunnelAuth.PSK,
        strict=False,
        title="Authentication",
        description="psk (a pre-shared key per pair of gateways) or certificates (of the fleet's CA, renewed by "
        "`bedplate vpn sync`).",
        json_schema_extra=on_edit(free("nothing in AWS; `bedplate vpn tunnels` configures the gateways")),
    )


class Vpn(Spec):
    """The VPNs of the fleet."""

    laptops: Laptops | None = Field(
        default=None,
        title="Laptops",
        description="OpenVPN gateways for laptops.",
        json_schema_extra=on_edit(entries("gateways", "gateways and the address pools of laptops")),
    )
    tunnels: Tunnels = Field(
        default_factory=Tunnels, title="Tunnels", description="Tunnels between the fleet's own gateways."
    )
