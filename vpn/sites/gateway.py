"""A gateway with all its tunnels."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from vpn.sites.tunnel import Tunnel


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway: `blocks` lie behind it, `elsewhere` behind others.

    `address` is its own on its LAN, from which it sends what is its own; where it is None, the kernel picks one.
    """

    name: str
    address: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    elsewhere: tuple[IPv4Network, ...]
    tunnels: tuple[Tunnel, ...]
    asn: int | None = None
