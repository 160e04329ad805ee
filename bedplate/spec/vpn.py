"""How people's laptops join the fleet's network, and how its own gateways know each other."""

from enum import StrEnum

from pydantic import Field

from bedplate.spec.address import Prefix
from bedplate.spec.base import Spec
from bedplate.spec.text import RegionName, Slug


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
