"""A pool of addresses that a gateway hands out to laptops. Never says where it lies."""

from ipaddress import IPv4Network

# Nobody's in each transport's half: its first address, its last, and the gateway's.
_NOT_LAPTOPS = 3


def room(pool: IPv4Network) -> int:
    """Return how many laptops have an address of their own, which they have in both halves: by UDP and by TCP."""
    return pool.num_addresses // 2 - _NOT_LAPTOPS
