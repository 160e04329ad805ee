"""The blocks inside tunnels, out of link-local addresses: a tunnel's number follows from its own."""

from ipaddress import IPv4Network

_INSIDE = IPv4Network("169.254.0.0/16")


def number_of(inside: IPv4Network) -> int:
    """Return the number of the tunnel with a block inside: no other tunnel of the gateway has it."""
    return (int(inside.network_address) - int(_INSIDE.network_address)) // inside.num_addresses
