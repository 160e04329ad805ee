"""The guard's text for nftables, and that by which charons on ports of their own are reached.

Each replaces itself as a whole and touches no other table. The guard follows from the plan alone; whom a charon
answers does not, for AWS makes up where its ends are dialled.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from jinja2 import Environment, PackageLoader, StrictUndefined

# Devices of tunnels: XFRM interfaces are named so by us, TUN devices by charon.
TUNNELS = '"ipsec*"'
# Of IPv4 and of TCP, without options.
_HEADERS = 40
_TEMPLATES = Environment(
    loader=PackageLoader("vpn.guard"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701  rules of a packet filter, filled with addresses alone
)


@dataclass(frozen=True, slots=True)
class Handover:
    """A peer whose packets for the ports of IKE are for a charon that listens on others."""

    peer: IPv4Address
    ports: tuple[int, int]


def guard_text(elsewhere: Iterable[IPv4Network], mtu: int) -> str:
    """Return the rules for a gateway; `elsewhere` are the blocks behind others, `mtu` is what a tunnel carries."""
    blocks = tuple(collapse_addresses(elsewhere))
    return _TEMPLATES.get_template("guard.nft.j2").render(elsewhere=blocks, tunnels=TUNNELS, segment=mtu - _HEADERS)


def handover_text(handovers: Iterable[Handover]) -> str:
    """Return the rules by which each charon gets what its peer sends."""
    return _TEMPLATES.get_template("handover.nft.j2").render(handovers=tuple(handovers))
