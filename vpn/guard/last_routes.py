"""Routes of last resort, as `ip -batch` reads them: what is for a block behind another gateway is refused at once.

They lie under every route into a tunnel: with the last of those gone, the default route would be next, and the guard
would drop without a word to whoever asked. As the guard, they follow from the plan alone, and stand from its start.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, collapse_addresses

# By which ours are known from others' when they are laid anew; no daemon's (linux/rtnetlink.h, FRR's zebra).
PROTOCOL = 98
# FRR reads an administrative distance in the upper byte: a route of 255 leads nowhere, and it tells nobody of it.
_METRIC = 0xFF00_2000


def last_routes_text(elsewhere: Iterable[IPv4Network]) -> str:
    """Return what lays the routes for the blocks behind other gateways, and takes away those of before."""
    blocks = collapse_addresses(elsewhere)
    laid = "".join(f"route replace unreachable {block} metric {_METRIC} proto {PROTOCOL}\n" for block in blocks)
    return f"# Made by bedplate; changed by the next run of the role.\nroute flush proto {PROTOCOL}\n{laid}"
