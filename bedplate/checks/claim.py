"""The blocks that a file claims, and the ranges of the internet that nobody may claim."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.spec import Fleet

# What no host has, wherever it stands: the range, what it is for, and who says so.
NOBODYS: Mapping[IPv4Network, str] = {
    IPv4Network(block): told
    for block, told in {
        "0.0.0.0/8": "this network, RFC 791",
        "127.0.0.0/8": "loopback, RFC 1122",
        "169.254.0.0/16": "link-local, RFC 3927",
        "224.0.0.0/4": "multicast, RFC 5771",
        "240.0.0.0/4": "reserved, RFC 1112",
    }.items()
}
# What hosts of a private network cannot use: those, and what is somebody else's.
RESERVED: Mapping[IPv4Network, str] = dict(NOBODYS) | {
    IPv4Network(block): told
    for block, told in {
        "192.0.0.0/24": "protocol assignments, RFC 6890",
        "192.0.2.0/24": "documentation, RFC 5737",
        "192.88.99.0/24": "6to4 relays, RFC 7526",
        "198.18.0.0/15": "benchmarks, RFC 2544",
        "198.51.100.0/24": "documentation, RFC 5737",
        "203.0.113.0/24": "documentation, RFC 5737",
    }.items()
}
PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
CARRIER = IPv4Network("100.64.0.0/10")
DOCKER = IPv4Network("172.17.0.0/16")
DEFAULT_VPC = IPv4Network("172.31.0.0/16")


@dataclass(frozen=True, slots=True)
class Claim:
    """A block that the file names, and where; `exact` when the place has all of it, as the supernet has not."""

    key: str
    noun: str
    block: IPv4Network
    exact: bool = True

    def meets(self, other: IPv4Network) -> bool:
        """Tell whether the place would have addresses of the other block, whatever is allotted in it."""
        return self.block.overlaps(other) if self.exact else self.block.subnet_of(other)

    def __str__(self) -> str:
        return f"{self.noun} ({self.block})"


def claims(fleet: Fleet) -> Iterator[Claim]:
    """Yield every block that the file names."""
    yield Claim("network.supernet", "the supernet", fleet.network.supernet, exact=False)
    for name, region in fleet.regions.items():
        if region.block is not None:
            yield Claim(f"regions.{name}.block", name, region.block)
    for name, site in fleet.sites.items():
        yield Claim(f"sites.{name}.lan", name, site.lan)
