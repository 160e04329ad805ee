"""Addresses: syntax, ranges that a fleet cannot use, overlaps, sizes, and the capacity of the supernet."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import islice

from bedplate.checks.diagnostics import Context
from bedplate.rules import Fault, Rule, fault
from bedplate.spec import Fleet

# Ranges without hosts, each with its purpose and source.
HOSTLESS: Mapping[IPv4Network, str] = {
    IPv4Network(block): purpose
    for block, purpose in {
        "0.0.0.0/8": "this network, RFC 791",
        "127.0.0.0/8": "loopback, RFC 1122",
        "169.254.0.0/16": "link-local, RFC 3927",
        "224.0.0.0/4": "multicast, RFC 5771",
        "240.0.0.0/4": "reserved, RFC 1112",
    }.items()
}
# Ranges that hosts of a private network cannot use.
RESERVED: Mapping[IPv4Network, str] = dict(HOSTLESS) | {
    IPv4Network(block): purpose
    for block, purpose in {
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
# The networks that Docker makes after its bridge. It takes 192.168.0.0/16 too, but only when these are in use. Source:
# https://docs.docker.com/engine/network/#subnet-allocation, read 2026-11.
DOCKER_POOLS = tuple(map(IPv4Network, ("172.18.0.0/15", "172.20.0.0/14", "172.24.0.0/13")))
# Factory settings of routers: TP-Link and D-Link, Netgear and Linksys, Fritz!Box, Apple and Xfinity.
HOME_NETWORKS = tuple(
    map(IPv4Network, ("192.168.0.0/24", "192.168.1.0/24", "192.168.178.0/24", "10.0.0.0/24", "10.0.1.0/24"))
)


@dataclass(frozen=True, slots=True)
class DeclaredBlock:
    """A block in the file, with its key and owner; `exact` if the owner uses all of it, unlike the supernet."""

    key: str
    owner: str
    block: IPv4Network
    exact: bool = True

    def uses(self, other: IPv4Network) -> bool:
        """Return whether the owner uses addresses of another block, whatever bedplate allocates in it."""
        return self.block.overlaps(other) if self.exact else self.block.subnet_of(other)

    def __str__(self) -> str:
        return f"{self.owner} ({self.block})"


def declared_blocks(fleet: Fleet) -> Iterator[DeclaredBlock]:
    """Yield every block that the file declares."""
    yield DeclaredBlock("network.supernet", "the supernet", fleet.network.supernet, exact=False)
    for name, region in fleet.regions.items():
        if region.block is not None:
            yield DeclaredBlock(f"regions.{name}.block", name, region.block)
    for name, site in fleet.sites.items():
        yield from (DeclaredBlock(f"sites.{name}.{key}", name, block) for key, block in site.networks.items())


# Supernets to propose.
_SUPERNETS = tuple(map(IPv4Network, ("10.64.0.0/10", "172.20.0.0/14")))
LARGEST_VPC, SMALLEST_VPC = 16, 28
# The widest block that a fix proposes, and how many it tries.
SMALLEST_SUPERNET, _MOST_TRIED = 12, 300


def check_ranges(context: Context) -> Iterator[Fault]:
    """Yield faults of blocks in reserved, public or commonly used ranges."""
    for declared in declared_blocks(context.fleet):
        for rule, message in _range_violations(declared):
            yield fault(rule, declared.key, message, _another_block(context.fleet, declared))


def _range_violations(declared: DeclaredBlock) -> Iterator[tuple[Rule, str]]:
    """Yield the rule and message of each range that a block must not overlap."""
    reserved = next((block for block in RESERVED if declared.block.overlaps(block)), None)
    if reserved:
        yield RESERVED_BLOCK, f"{declared} overlaps {reserved} ({RESERVED[reserved]})"
    elif declared.block.overlaps(CARRIER):
        yield CARRIER_BLOCK, f"{declared} overlaps {CARRIER} (RFC 6598)"
    elif not is_private(declared.block):
        yield PUBLIC_BLOCK, f"{declared} contains public addresses"
    if declared.uses(DOCKER):
        yield DOCKER_BLOCK, f"{declared} overlaps {DOCKER}, Docker's bridge on every node"
    if declared.uses(DEFAULT_VPC):
        yield DEFAULT_VPC_BLOCK, f"{declared} overlaps {DEFAULT_VPC}, the default VPC of every account"


def check_other_networks(context: Context) -> Iterator[Fault]:
    """Yield warnings of blocks that Docker takes on machines, or that people have at home."""
    fleet = context.fleet
    machines = (machine for site in fleet.sites.values() for machine in site.machines.values())
    uses = [*(group.use for group in fleet.groups.values()), *(machine.use for machine in machines)]
    has_logins = any(use.is_ssh for use in uses if use)
    for declared in declared_blocks(fleet):
        pool = next((pool for pool in DOCKER_POOLS if declared.block.overlaps(pool)), None)
        if has_logins and pool and is_private(declared.block):
            message = f"{declared} overlaps {pool}, which Docker takes for networks of containers"
            yield fault(DOCKER_POOL, declared.key, message, _another_block(fleet, declared))
        home = next((home for home in HOME_NETWORKS if declared.uses(home)), None)
        if fleet.vpn and fleet.vpn.laptops and home:
            message = f"{declared} overlaps {home}, the network of many homes: laptops there do not reach all of it"
            yield fault(HOME_BLOCK, declared.key, message, _another_block(fleet, declared))


def _another_block(fleet: Fleet, declared: DeclaredBlock) -> str:
    """Return the fix for a block in an unusable range: no block for a region, another one of that size for others."""
    if declared.key.startswith("regions."):
        return f"delete block: bedplate then allocates a block in {fleet.network.supernet}"
    size = max(declared.block.prefixlen, SMALLEST_SUPERNET)
    used = [other.block for other in declared_blocks(fleet)] + [DOCKER, DEFAULT_VPC, *DOCKER_POOLS, *HOME_NETWORKS]
    blocks = (block for private in PRIVATE if private.prefixlen <= size for block in private.subnets(new_prefix=size))
    free = next(
        (block for block in islice(blocks, _MOST_TRIED) if not any(block.overlaps(other) for other in used)), None
    )
    block = f"another block, such as {free}" if free else "another block of 10.0.0.0/8"
    if not declared.key.startswith("sites."):
        return f"write {block}"
    addresses = [machine.address for machine in fleet.sites[declared.owner].machines.values()]
    if addresses and not any(address in declared.block for address in addresses):
        return f"write {smallest_lan(addresses)}, which has the machines' addresses"
    return f"renumber the LAN to {block}; if the site owns these addresses, allow E221 with that reason"


def smallest_lan(addresses: Iterable[IPv4Address]) -> IPv4Network:
    """Return the smallest block of at most /24 with all addresses."""
    first, *others = addresses
    lan = IPv4Network(f"{first}/24", strict=False)
    while not all(address in lan for address in others):
        lan = lan.supernet()
    return lan


def is_private(block: IPv4Network) -> bool:
    """Return whether a block is part of a private range (RFC 1918)."""
    return any(block.subnet_of(private) for private in PRIVATE)


def check_overlaps(context: Context) -> Iterator[Fault]:
    """Yield a fault for each declared block that overlaps an earlier one in address order."""
    blocks = sorted(
        (declared for declared in declared_blocks(context.fleet) if declared.exact),
        key=lambda declared: (declared.block.network_address, declared.block.prefixlen),
    )
    supernet = context.fleet.network.supernet
    widest: DeclaredBlock | None = None
    for declared in blocks:
        if declared.key.startswith("sites.") and supernet.subnet_of(declared.block):
            message = f"{declared} contains the supernet {supernet}"
            yield fault(OVERLAP, declared.key, message, _apart(context.fleet, declared))
        elif widest and declared.block.subnet_of(widest.block):
            message = f"{declared} overlaps {widest}: both contain {declared.block}"
            others = [other for other in (declared, widest) if other.key.startswith("regions.")]
            fix = f"delete {others[0].key}: bedplate then allocates a block" if others else ""
            yield fault(OVERLAP, declared.key, message, fix)
        else:
            widest = declared


def _apart(fleet: Fleet, declared: DeclaredBlock) -> str:
    """Return the fix for a LAN that contains the supernet."""
    used = [other.block for other in declared_blocks(fleet) if other.exact]
    free = (block for block in _SUPERNETS if not any(block.overlaps(other) for other in used))
    own = f"write only the block that the machines of {declared.owner} use"
    return f"{own}, or network.supernet: {next(free, 'a block outside')}"


def check_sizes(context: Context) -> Iterator[Fault]:
    """Yield faults of sizes that AWS, Kubernetes or OpenVPN reject, or that the supernet cannot hold."""
    fleet = context.fleet
    for name, region in fleet.regions.items():
        if region.block is not None:
            start = str(region.block.network_address)
            yield from _check_vpc_size(f"regions.{name}.block", region.block.prefixlen, start)
    yield from _check_vpc_size("network.region_size", fleet.network.region_size)
    for key, size, low, high in _sizes(context):
        least = max(low, fleet.network.supernet.prefixlen + 1)
        if least > high:
            message = f"the supernet {fleet.network.supernet} is too small: the block needs at least a /{high}"
            yield fault(POOL_SIZE, key, message, f"write a supernet of /{high - 1} or larger")
        elif not least <= size <= high:
            message = f"/{size} is out of range: it must be /{least} to /{high}"
            yield fault(POOL_SIZE, key, message, f"write /{min(max(size, least), high)}")


def check_remaining_space(context: Context) -> Iterator[Fault]:
    """Yield a warning if the only region uses the whole supernet."""
    fleet, supernet = context.fleet, context.fleet.network.supernet
    allocated = [name for name, region in fleet.regions.items() if region.block is None]
    has_other_blocks = fleet.kubernetes or (fleet.vpn and fleet.vpn.laptops)
    if len(allocated) == 1 and not has_other_blocks and fleet.network.region_size == supernet.prefixlen:
        message = f"{allocated[0]} uses all of {supernet}: no space for another region, a VPN or a cluster"
        wider = supernet.supernet(new_prefix=max(supernet.prefixlen - 4, 8))
        yield fault(
            SUPERNET_FULL, "network.supernet", message, f"write {wider}, or region_size: /{supernet.prefixlen + 4}"
        )


def _check_vpc_size(key: str, size: int, start: str = "") -> Iterator[Fault]:
    if not LARGEST_VPC <= size <= SMALLEST_VPC:
        message = f"a VPC cannot have /{size}: AWS allows /{LARGEST_VPC} to /{SMALLEST_VPC}"
        yield fault(VPC_SIZE, key, message, f"write {start}/{min(max(size, LARGEST_VPC), 20)}")


def _sizes(context: Context) -> Iterator[tuple[str, int, int, int]]:
    """Yield key, size, and the largest and smallest allowed size.

    Kubernetes gives each node a /24 of the pod block, and allows at most a /12 of services; OpenVPN allows /16 to /29.
    """
    kubernetes, vpn = context.fleet.kubernetes, context.fleet.vpn
    if kubernetes:
        yield "kubernetes.services", kubernetes.services, 12, 24
        if kubernetes.pods is not None:
            yield "kubernetes.pods", kubernetes.pods, 8, 22
    if vpn and vpn.laptops:
        yield "vpn.laptops.pool", vpn.laptops.pool, 16, 29


_VPC = "Amazon VPC, VPC CIDR blocks"
_IANA = "IANA IPv4 Special-Purpose Address Registry"

CHECKS = (check_ranges, check_other_networks, check_overlaps, check_sizes, check_remaining_space)
RESERVED_BLOCK = Rule("E220", "Hosts cannot use these addresses.", "write a block of 10.0.0.0/8", _IANA)
PUBLIC_BLOCK = Rule(
    "E221",
    "Traffic to the owners of these addresses would stay in the fleet.",
    "write a block of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 (RFC 1918)",
    "RFC 1918",
    allowable=True,
)
CARRIER_BLOCK = Rule(
    "E222",
    "Internet providers and AWS services use 100.64.0.0/10.",
    "write a block of 10.0.0.0/8",
    "RFC 6598",
    allowable=True,
)
DEFAULT_VPC_BLOCK = Rule(
    "W223", "The default VPC of every account has this block, so it cannot be peered.", "write another block", _VPC
)
DOCKER_BLOCK = Rule("E224", "Docker's bridge uses 172.17.0.0/16 on every node.", "write another block")
VPC_SIZE = Rule("E225", "A VPC has /16 to /28, and the zones of a region need /20.", "write /16 to /20", _VPC)
OVERLAP = Rule("E226", "An address must belong to one machine.", "write another block for one of the two")
POOL_SIZE = Rule("E227", "A block must hold its hosts and fit into the supernet.", "write a size within the limits")
DOCKER_POOL = Rule(
    "W238",
    "Docker, which people use on SSH machines, takes these blocks, and then hides the fleet's machines there.",
    "write another block, or set default-address-pools of Docker on these machines",
    "Docker manuals, subnet allocation",
    allowable=True,
)
HOME_BLOCK = Rule(
    "W239",
    "A laptop at home sends packets for its own network to the home's router, not to the VPN.",
    "write another block",
    allowable=True,
)
SUPERNET_FULL = Rule(
    "W237",
    "Recorded blocks never move, so a later part of the fleet needs a wider supernet.",
    "write a wider supernet, or a smaller region_size",
)
