"""The guard of a gateway: nftables rules and routes that keep traffic between sites and regions inside the tunnels.

Both follow from the plan. The rules are a separate table, which replaces itself when it is loaded.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, collapse_addresses

from jinja2 import Environment, PackageLoader, StrictUndefined

# The XFRM interfaces of tunnels.
_TUNNEL_DEVICES = '"ipsec*"'
# IPv4 and TCP headers without options.
_HEADER_BYTES = 40
_TEMPLATES = Environment(
    loader=PackageLoader("vpn.guard"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701  nftables rules that contain only addresses
)


def guard_text(remote_blocks: Iterable[IPv4Network], mtu: int) -> str:
    """Return a gateway's packet filter; `remote_blocks` are behind other gateways, `mtu` is the tunnels' MTU."""
    blocks = tuple(collapse_addresses(remote_blocks))
    template = _TEMPLATES.get_template("guard.nft.j2")
    return template.render(remote_blocks=blocks, tunnels=_TUNNEL_DEVICES, segment=mtu - _HEADER_BYTES)


# Marks these routes, so that the next run can delete them; not used by a daemon (linux/rtnetlink.h, FRR's zebra).
PROTOCOL = 98
# FRR reads the upper byte as an administrative distance: it does not use or announce a route of distance 255.
_METRIC = 0xFF00_2000


def last_routes_text(remote_blocks: Iterable[IPv4Network]) -> str:
    """Return an `ip -batch` file that rejects packets to blocks behind other gateways while no tunnel routes them."""
    blocks = collapse_addresses(remote_blocks)
    routes = "".join(f"route replace unreachable {block} metric {_METRIC} proto {PROTOCOL}\n" for block in blocks)
    return f"# Managed by bedplate: manual changes are overwritten.\nroute flush proto {PROTOCOL}\n{routes}"
