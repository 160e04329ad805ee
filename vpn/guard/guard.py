"""The guard's rules for nftables: they follow from the plan alone, replace themselves, and touch no other table."""

from collections.abc import Iterable
from ipaddress import IPv4Network, collapse_addresses

from jinja2 import Environment, PackageLoader, StrictUndefined

# The XFRM interfaces of tunnels.
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


def guard_text(elsewhere: Iterable[IPv4Network], mtu: int) -> str:
    """Return the rules for a gateway; `elsewhere` are the blocks behind others, `mtu` is what a tunnel carries."""
    blocks = tuple(collapse_addresses(elsewhere))
    return _TEMPLATES.get_template("guard.nft.j2").render(elsewhere=blocks, tunnels=TUNNELS, segment=mtu - _HEADERS)


# By which ours are known from others' when they are laid anew; no daemon's (linux/rtnetlink.h, FRR's zebra).
PROTOCOL = 98
# FRR reads an administrative distance in the upper byte: a route of 255 leads nowhere, and it tells nobody of it.
_METRIC = 0xFF00_2000


def last_routes_text(elsewhere: Iterable[IPv4Network]) -> str:
    """Return what lays the routes for the blocks behind other gateways, and takes away those of before."""
    blocks = collapse_addresses(elsewhere)
    laid = "".join(f"route replace unreachable {block} metric {_METRIC} proto {PROTOCOL}\n" for block in blocks)
    return f"# Made by bedplate; changed by the next run of the role.\nroute flush proto {PROTOCOL}\n{laid}"
