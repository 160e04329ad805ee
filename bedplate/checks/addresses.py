"""The blocks that a file claims, and the ranges of the internet that nobody may claim."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.checks.context import Evidence
from bedplate.checks.diagnostics import Fault, Rule, fault
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


LARGEST_VPC, SMALLEST_VPC = 16, 28


def check_ranges(evidence: Evidence) -> Iterator[Fault]:
    """Tell blocks of ranges that are somebody else's."""
    for claim in claims(evidence.fleet):
        reserved = next((block for block in RESERVED if claim.block.overlaps(block)), None)
        if reserved:
            message = f"{claim} takes in {reserved} ({RESERVED[reserved]})"
            yield fault("E220", claim.key, message)
        elif claim.block.overlaps(CARRIER):
            yield fault("E222", claim.key, f"{claim} takes in addresses of {CARRIER} (RFC 6598)")
        elif not any(claim.block.subnet_of(block) for block in PRIVATE):
            yield fault("E221", claim.key, f"{claim} takes in public addresses")
        yield from _shared(claim)


def _shared(claim: Claim) -> Iterator[Fault]:
    """Tell private ranges that every node or account has already."""
    if claim.meets(DOCKER):
        yield fault("E224", claim.key, f"{claim} takes in {DOCKER}, docker's own on every node")
    if claim.meets(DEFAULT_VPC):
        yield fault("W223", claim.key, f"{claim} takes in {DEFAULT_VPC}, every account's default VPC")


def check_overlaps(evidence: Evidence) -> Iterator[Fault]:
    """Tell each declared block that lies in or around an earlier one; one pass over the blocks in order."""
    blocks = sorted(
        (claim for claim in claims(evidence.fleet) if claim.exact),
        key=lambda claim: (claim.block.network_address, claim.block.prefixlen),
    )
    widest: Claim | None = None
    for claim in blocks:
        if widest and claim.block.subnet_of(widest.block):
            message = f"{claim} overlaps {widest}: they share {claim.block}"
            yield fault("E226", claim.key, message)
        else:
            widest = claim


def check_sizes(evidence: Evidence) -> Iterator[Fault]:
    """Tell sizes that AWS, Kubernetes or OpenVPN would refuse, or that are no part of the supernet."""
    fleet = evidence.fleet
    for name, region in fleet.regions.items():
        if region.block is not None:
            yield from _vpc_size(f"regions.{name}.block", region.block.prefixlen)
    yield from _vpc_size("network.region_size", fleet.network.region_size)
    for key, size, low, high in _sizes(evidence):
        least = max(low, fleet.network.supernet.prefixlen + 1)
        if least > high:
            message = f"{fleet.network.supernet} has no room for it: even /{high}, the smallest, is all of it or more"
            yield fault("E227", key, message, f"a supernet of /{high - 1} or wider")
        elif not least <= size <= high:
            message = f"/{size} is out of range here: from /{least} to /{high}"
            yield fault("E227", key, message, f"write /{min(max(size, least), high)}")


def _vpc_size(key: str, size: int) -> Iterator[Fault]:
    if not LARGEST_VPC <= size <= SMALLEST_VPC:
        message = f"/{size} is no size of a VPC: AWS takes /{LARGEST_VPC} to /{SMALLEST_VPC}"
        yield fault("E225", key, message, f"write /{min(max(size, LARGEST_VPC), 20)}")


def _sizes(evidence: Evidence) -> Iterator[tuple[str, int, int, int]]:
    """Yield key, size, and the largest and smallest that its user takes.

    Kubernetes gives each node a /24 of the pods and takes at most a /12 of services; OpenVPN takes /16 to /29.
    """
    kubernetes, vpn = evidence.fleet.kubernetes, evidence.fleet.vpn
    if kubernetes:
        yield "kubernetes.services", kubernetes.services, 12, 24
        if kubernetes.pods is not None:
            yield "kubernetes.pods", kubernetes.pods, 8, 22
    if vpn and vpn.laptops:
        yield "vpn.laptops.pool", vpn.laptops.pool, 16, 29


_VPC = "Amazon VPC, VPC CIDR blocks"
_IANA = "IANA IPv4 Special-Purpose Address Registry"

ADDRESS_RULES = (
    Rule(
        "E210",
        "not-a-block",
        "A block is four numbers and a prefix length.",
        "write four numbers and a size, as in 10.64.0.0/10",
    ),
    Rule("E211", "no-prefix", "Without its size a block is one address.", "write its prefix length"),
    Rule("E212", "host-bits", "A block starts at its own first address.", "write the block's first address"),
    Rule(
        "E213",
        "not-canonical",
        "Tools read other forms differently.",
        "write four numbers and a size, as in 10.64.0.0/10",
    ),
    Rule("E214", "ipv6", "The plan of addresses is IPv4.", "write an IPv4 value"),
    Rule(
        "E215",
        "not-an-address",
        "An address is four numbers from 0 to 255.",
        "write four numbers from 0 to 255, with dots between them",
    ),
    Rule("E216", "not-a-size", "A size is a prefix length.", "write a prefix length, as in /22"),
    Rule("E220", "reserved-block", "Hosts cannot use these addresses.", "use a block of 10.0.0.0/8", _IANA),
    Rule(
        "E221",
        "public-block",
        "Traffic to these addresses' owners would stay inside.",
        "use a block of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 (RFC 1918)",
        "RFC 1918",
        allowable=True,
    ),
    Rule(
        "E222",
        "carrier-block",
        "Providers and AWS services use 100.64.0.0/10 themselves.",
        "use a block of 10.0.0.0/8",
        "RFC 6598",
        allowable=True,
    ),
    Rule(
        "W223",
        "default-vpc-block",
        "Every account's default VPC has it, so they cannot be joined.",
        "choose another",
        _VPC,
    ),
    Rule("E224", "docker-block", "Docker's bridge has 172.17.0.0/16 on every node.", "choose another block"),
    Rule(
        "E225",
        "vpc-size",
        "A VPC's block is from /16 to /28; bedplate's zones need /20.",
        "choose /16 to /20",
        _VPC,
    ),
    Rule("E226", "overlap", "An address must mean one machine.", "give one of them another block"),
    Rule(
        "E227",
        "pool-size",
        "A size must leave room for hosts, and room for the rest.",
        "write a size within the limits",
    ),
)
