"""How much of the public internet a set of blocks covers, however it is written."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

from bedplate.checks.claim import CARRIER, PRIVATE, RESERVED

Block = IPv4Network | IPv6Network

# More than this is no lab, no company and no provider's office any more.
WIDE = 65_536
_NOT_PUBLIC = tuple(collapse_addresses((*RESERVED, *PRIVATE, CARRIER)))
# RFC 4291: global unicast. One host, or one link, is given a /64, so that one counts as one address.
_GLOBAL = IPv6Network("2000::/3")
_HOST_BITS = 64


def block_of(text: str) -> Block | None:
    """Return the block that AWS makes of a text, host bits cleared; None where it is no block."""
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def public_size(blocks: Iterable[Block]) -> int:
    """Return how many public addresses the blocks cover together, each counted once; an IPv6 /64 counts as one."""
    told = tuple(blocks)
    four = tuple(collapse_addresses(block for block in told if isinstance(block, IPv4Network)))
    six = collapse_addresses(block for block in told if isinstance(block, IPv6Network))
    hidden = sum(_shared(block, other) for block in four for other in _NOT_PUBLIC)
    return (
        sum(block.num_addresses for block in four)
        - hidden
        + sum(min(block.num_addresses, _GLOBAL.num_addresses) >> _HOST_BITS for block in six if block.overlaps(_GLOBAL))
    )


def is_wide(blocks: Iterable[Block]) -> bool:
    """Whether the blocks let in more of the internet than anybody's own addresses."""
    return public_size(blocks) > WIDE


def _shared(one: IPv4Network, other: IPv4Network) -> int:
    """Return the size of what two blocks share: blocks that overlap lie in one another."""
    return min(one.num_addresses, other.num_addresses) if one.overlaps(other) else 0
