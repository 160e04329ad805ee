"""Address space: free blocks, the paths of blocks in the lock, and the subnets of a region's zones.

The search works on interval bounds, not on single addresses, so a /0 costs no more than a /28.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.faults import SUBNETS_DO_NOT_FIT, ZONE_SLOTS_EXHAUSTED
from bedplate.plan.record import Record
from bedplate.rules import Fault, fault
from bedplate.spec import Fleet
from bedplate.spec.sites import Site

ADDRESS_BITS = 32


@dataclass(frozen=True, slots=True)
class Span:
    """The addresses from `first` up to, but not including, `end`."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """The number of addresses."""
        return max(0, self.end - self.first)


def span_of(block: IPv4Network) -> Span:
    """Return the addresses of a block."""
    first = int(block.network_address)
    return Span(first, first + block.num_addresses)


def block_size(prefix: int) -> int:
    """Return the number of addresses in a block of that prefix length."""
    return 1 << (ADDRESS_BITS - prefix)


class Space:
    """The taken addresses, as sorted intervals that neither overlap nor touch; only `take` changes it."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self, taken: Iterable[IPv4Network] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for block in taken:
            self.take(block)

    def take(self, block: IPv4Network) -> None:
        """Mark a block as taken; idempotent."""
        span = span_of(block)
        low = bisect_left(self._ends, span.first)
        high = bisect_right(self._firsts, span.end)
        first, end = span.first, span.end
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def gaps(self, within: Span) -> Iterator[Span]:
        """Yield the free ranges inside a span, lowest first."""
        cursor = within.first
        for index in range(bisect_right(self._ends, within.first), len(self._firsts)):
            if self._firsts[index] >= within.end:
                break
            if cursor < self._firsts[index]:
                yield Span(cursor, self._firsts[index])
            cursor = self._ends[index]
        if cursor < within.end:
            yield Span(cursor, within.end)

    def free(self, within: Span) -> int:
        """Return the number of free addresses in a span."""
        return sum(gap.size for gap in self.gaps(within))

    def lowest(self, prefix: int, within: Span) -> IPv4Network | None:
        """Return the lowest free aligned block, or None when none fits."""
        size = block_size(prefix)
        for gap in self.gaps(within):
            first = -(-gap.first // size) * size
            if first + size <= gap.end:
                return IPv4Network((first, prefix))
        return None

    def highest(self, prefix: int, within: Span) -> IPv4Network | None:
        """Return the highest free aligned block, or None when none fits."""
        size = block_size(prefix)
        for gap in reversed(tuple(self.gaps(within))):
            first = (gap.end - size) // size * size
            if first >= gap.first:
                return IPv4Network((first, prefix))
        return None


PODS = "pods"
SERVICES = "services"


def region_path(region: str) -> str:
    """Return the path of a region's VPC block."""
    return f"region/{region}"


def edge_path(region: str, zone: str) -> str:
    """Return the path of a zone's edge subnet."""
    return f"region/{region}/zone/{zone}/edge"


def nodes_path(region: str, zone: str) -> str:
    """Return the path of a zone's node subnet."""
    return f"region/{region}/zone/{zone}/nodes"


def site_networks(name: str, site: Site) -> Mapping[str, IPv4Network]:
    """Return the networks of a site by name: the first has that of the site, others are told apart by their address."""
    blocks = enumerate(site.networks.values())
    return {f"{name}-{lan.network_address}".replace(".", "-") if number else name: lan for number, lan in blocks}


def site_path(site: str) -> str:
    """Return the path of a site's LAN."""
    return f"site/{site}"


def pool_path(place: str) -> str:
    """Return the path of the laptop pool of a region or site."""
    return f"pool/{place}"


def tunnel_path(site: str, region: str, number: int) -> str:
    """Return the path of the inside /30 of one tunnel between a site and a region."""
    return f"tunnel/{site}/{region}/{number}"


def direct_path(site: str, other: str) -> str:
    """Return the path of the inside /30 of the tunnel between two sites, given in sorted order."""
    return f"tunnel/{site}/{other}"


def is_nested(path: str) -> bool:
    """Return whether a path is that of a subnet, whose block is inside its region's block."""
    return "/zone/" in path


def is_under(path: str, root: str) -> bool:
    """Return whether a path is the root or below it."""
    return path == root or path.startswith(f"{root}/")


def leads_to(path: str, region: str) -> bool:
    """Return whether a path is that of a tunnel to the region of a path, or of its laptop pool."""
    kind, *names = path.split("/")
    ends = {"tunnel": names[1:2], "pool": names}.get(kind, [])
    return region in map(region_path, ends)


SLOTS = 7
NODES_BITS, EDGE_BITS = 3, 8  # added to the prefix length of the region's block
# A VPC is /16 to /28, and so is a subnet: https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html
VPC_WIDEST, SUBNET_NARROWEST = 16, 28
REGION_WIDEST, REGION_NARROWEST = VPC_WIDEST, SUBNET_NARROWEST - EDGE_BITS


@dataclass(frozen=True, slots=True)
class Slot:
    """A zone's two subnets."""

    edge: IPv4Network
    nodes: IPv4Network


def fits(region: IPv4Network) -> bool:
    """Return whether a region's block can be split into subnets of sizes that AWS accepts."""
    return REGION_WIDEST <= region.prefixlen <= REGION_NARROWEST


def slot(region: IPv4Network, number: int) -> Slot:
    """Return the subnets of one of a region's seven zone slots, counted from 0."""
    first = int(region.network_address)
    edge, nodes = region.prefixlen + EDGE_BITS, region.prefixlen + NODES_BITS
    return Slot(
        edge=IPv4Network((first + number * block_size(edge), edge)),
        nodes=IPv4Network((first + (number + 1) * block_size(nodes), nodes)),
    )


def nodes_space(region: IPv4Network) -> tuple[IPv4Network, ...]:
    """Return the part of a region's block for nodes, for any zones: all but the first eighth, which is for edges."""
    edges = next(region.subnets(prefixlen_diff=NODES_BITS))
    return tuple(sorted(region.address_exclude(edges)))


def free_slots(region: IPv4Network, recorded: tuple[IPv4Network, ...]) -> Iterator[Slot]:
    """Yield the slots that overlap no subnet ever recorded in this region, lowest first."""
    space = Space(recorded)
    for number in range(SLOTS):
        candidate = slot(region, number)
        if _is_free(space, candidate.edge) and _is_free(space, candidate.nodes):
            yield candidate


def zone_blocks(
    name: str, region: IPv4Network, zones: tuple[str, ...], recorded: Mapping[str, IPv4Network]
) -> dict[str, IPv4Network] | None:
    """Return the subnets of a region's zones by path, or None if no slot is left for a new zone.

    `recorded` are the region's subnets in the lock; they never move.
    """
    free = free_slots(region, tuple(recorded.values()))
    blocks: dict[str, IPv4Network] = {}
    for zone in dict.fromkeys(zones):
        edge, nodes = edge_path(name, zone), nodes_path(name, zone)
        if edge in recorded and nodes in recorded:
            blocks |= {edge: recorded[edge], nodes: recorded[nodes]}
            continue
        free_slot = next(free, None)
        if free_slot is None:
            return None
        blocks |= {edge: recorded.get(edge, free_slot.edge), nodes: recorded.get(nodes, free_slot.nodes)}
    return blocks


def _is_free(space: Space, block: IPv4Network) -> bool:
    span = span_of(block)
    return space.free(span) == span.size


Blocks = Mapping[str, IPv4Network]


@dataclass(frozen=True, slots=True)
class Subnets:
    """Subnets by the path of their region, and the faults of regions without subnets."""

    of_region: dict[str, Blocks]
    faults: tuple[Fault, ...]


def subnets(fleet: Fleet, record: Record, blocks: Blocks) -> Subnets:
    """Return the subnets of each region that has a block."""
    recorded = _recorded_subnets(record)
    of_region: dict[str, Blocks] = {}
    faults: list[Fault] = []
    for name, region in fleet.regions.items():
        path = region_path(name)
        block = blocks.get(path)
        if block is None:
            continue
        zones = zone_blocks(name, block, region.zones, recorded[path]) if fits(block) else None
        if zones is None:
            faults.append(_fault(fleet, name, block))
        else:
            of_region[path] = zones
    return Subnets(of_region, tuple(faults))


def _recorded_subnets(record: Record) -> defaultdict[str, dict[str, IPv4Network]]:
    """Return the recorded subnets by the path of their region."""
    recorded: defaultdict[str, dict[str, IPv4Network]] = defaultdict(dict)
    for path, block in record.blocks.items():
        if is_nested(path):
            recorded[path.partition("/zone/")[0]][path] = block
    return recorded


def _fault(fleet: Fleet, name: str, block: IPv4Network) -> Fault:
    if fits(block):
        return _no_slot_fault(name, block)
    declared = fleet.regions[name].block is not None
    return _size_fault(f"regions.{name}.block" if declared else "network.region_size", block.prefixlen)


def _no_slot_fault(name: str, block: IPv4Network) -> Fault:
    return fault(
        ZONE_SLOTS_EXHAUSTED,
        key=f"regions.{name}.zones",
        message=f"{block} has space for {SLOTS} zones, counting the recorded ones; the file needs more",
        fix=f"use fewer zones, or release an old one: `--release {region_path(name)}/zone/...`",
    )


def _size_fault(key: str, prefix: int) -> Fault:
    if prefix < REGION_WIDEST:
        why, fix = f"the largest VPC of AWS is /{REGION_WIDEST}", f"use /{REGION_WIDEST} or smaller"
    else:
        edge = prefix + EDGE_BITS
        why = f"an edge subnet would be /{edge}, and the smallest of AWS is /{SUBNET_NARROWEST}"
        fix = f"use /{REGION_NARROWEST} or wider"
    return fault(SUBNETS_DO_NOT_FIT, key=key, message=f"a region's block cannot be /{prefix}: {why}", fix=fix)


FIXED_PREFIX = 28


def fixed_block(nodes: IPv4Network) -> IPv4Network:
    """Return the part of a node subnet for fixed addresses, clear of the first four, which AWS reserves."""
    size = 1 << (nodes.max_prefixlen - FIXED_PREFIX)
    return IPv4Network((int(nodes.network_address) + size, FIXED_PREFIX))
