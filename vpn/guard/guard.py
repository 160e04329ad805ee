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
