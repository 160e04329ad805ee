"""Address allocation: which blocks the fleet file requests, and where each new one goes.

Also here: the tunnels between sites, and the release of recorded blocks. Recorded blocks never move.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv4Network
from types import MappingProxyType

from bedplate.errors import InputError
from bedplate.plan import space
from bedplate.plan.faults import (
    OUTSIDE_SUPERNET,
    RENUMBERS_BLOCK,
    SUPERNET_EXHAUSTED,
    TOUCHES_RECORDED_BLOCK,
    TUNNELS_EXHAUSTED,
    PlanFaults,
)
from bedplate.plan.record import Record
from bedplate.plan.space import ADDRESS_BITS, Space, Span, block_size, is_nested, is_under, leads_to, span_of, subnets
from bedplate.rules import Fault, fault
from bedplate.spec import Fleet
from bedplate.spec.fleet import Kubernetes


def joined_sites(fleet: Fleet) -> tuple[tuple[str, str], ...]:
    """Return each pair of sites that have a tunnel, sorted; either site may name the other.

    Unknown sites and a site that names itself are left out: the checks report them.
    """
    pairs = ((name, other) for name, site in fleet.sites.items() for other in site.gateway.joins)
    sorted_pairs = {(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1] and pair[1] in fleet.sites}
    return tuple(sorted(sorted_pairs))


def initiating_site(fleet: Fleet, pair: tuple[str, str]) -> str:
    """Return the site that initiates the tunnel of a pair: one behind NAT, else the first by name."""
    return min(pair, key=lambda name: (not fleet.sites[name].gateway.behind_nat, name))


TUNNEL_PREFIX = 30
TUNNEL_NUMBERS = (1, 2)  # AWS builds every connection as two tunnels, in two zones
PODS_WIDEST, PODS_NARROWEST = 13, 18


class BlockKind(Enum):
    """The purpose of a block; it decides which addresses are searched."""

    REGION = auto()
    SITE = auto()
    PODS = auto()
    SERVICES = auto()
    LAPTOPS = auto()
    TUNNEL = auto()


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """One block that the file requests; `key` is the key of the file that requests it.

    `declared` is the block if the file names it. `sized` says that the file sets the size: a recorded block of another
    size is then a conflict, not an older default.
    """

    kind: BlockKind
    path: str
    key: str
    prefix: int
    declared: IPv4Network | None = None
    sized: bool = False

    def contradicts(self, recorded: IPv4Network) -> bool:
        """Return whether the file requests another block or size than the lock records."""
        if self.declared is not None:
            return self.declared != recorded
        return self.sized and self.prefix != recorded.prefixlen


def block_requests(fleet: Fleet) -> tuple[BlockRequest, ...]:
    """Return every block that the file requests, except subnets."""
    large = (*_regions(fleet), *_sites(fleet), *_kubernetes(fleet), *_laptops(fleet))
    return (*large, *_tunnels(fleet), *_site_tunnels(fleet))


def _regions(fleet: Fleet) -> Iterator[BlockRequest]:
    for name, region in fleet.regions.items():
        path = space.region_path(name)
        if region.block is None:
            yield BlockRequest(BlockKind.REGION, path, "network.region_size", fleet.network.region_size)
        else:
            yield BlockRequest(BlockKind.REGION, path, f"regions.{name}.block", region.block.prefixlen, region.block)


def _sites(fleet: Fleet) -> Iterator[BlockRequest]:
    for name, site in fleet.sites.items():
        networks = space.site_networks(name, site)
        for key, (network, lan) in zip(site.networks, networks.items(), strict=True):
            path = space.site_path(network)
            yield BlockRequest(BlockKind.SITE, path, f"sites.{name}.{key}", lan.prefixlen, lan)


def pods_size(fleet: Fleet, cluster: Kubernetes) -> int:
    """Return the prefix length of a new block for pods: the file's, else an eighth of the supernet, from /13 to /18."""
    default_prefix = min(max(fleet.network.supernet.prefixlen + 3, PODS_WIDEST), PODS_NARROWEST)
    return default_prefix if cluster.pods is None else cluster.pods


def _kubernetes(fleet: Fleet) -> Iterator[BlockRequest]:
    cluster = fleet.kubernetes
    if cluster is None:
        return
    sized = "services" in cluster.model_fields_set
    pods = pods_size(fleet, cluster)
    yield BlockRequest(BlockKind.PODS, space.PODS, "kubernetes.pods", pods, sized=cluster.pods is not None)
    yield BlockRequest(BlockKind.SERVICES, space.SERVICES, "kubernetes.services", cluster.services, sized=sized)


def _laptops(fleet: Fleet) -> Iterator[BlockRequest]:
    laptops = fleet.vpn.laptops if fleet.vpn else None
    if laptops is None:
        return
    sized = "pool" in laptops.model_fields_set
    for gateway in laptops.gateways:
        path = space.pool_path(gateway.region or gateway.site or "")
        yield BlockRequest(BlockKind.LAPTOPS, path, "vpn.laptops.pool", laptops.pool, sized=sized)


def _tunnels(fleet: Fleet) -> Iterator[BlockRequest]:
    for site in fleet.sites:
        for region in fleet.regions:
            for number in TUNNEL_NUMBERS:
                path = space.tunnel_path(site, region, number)
                yield BlockRequest(BlockKind.TUNNEL, path, f"sites.{site}", TUNNEL_PREFIX)


def _site_tunnels(fleet: Fleet) -> Iterator[BlockRequest]:
    for site, other in joined_sites(fleet):
        yield BlockRequest(BlockKind.TUNNEL, space.direct_path(site, other), f"sites.{site}.gateway", TUNNEL_PREFIX)


def conflicts(requests: tuple[BlockRequest, ...], record: Record, supernet: IPv4Network) -> Iterator[Fault]:
    """Yield a fault for every request that conflicts with the record."""
    recorded_blocks = _RecordedBlocks(requests, record)
    for request in requests:
        recorded = record.blocks.get(request.path)
        if recorded is None:
            yield from _overlap_faults(request, recorded_blocks)
        elif request.contradicts(recorded):
            yield _renumbering_fault(request, recorded)
        elif _must_lie_inside(request) and not recorded.subnet_of(supernet):
            yield _outside_fault(request, recorded, supernet)


def _must_lie_inside(request: BlockRequest) -> bool:
    return request.declared is None and request.kind is not BlockKind.TUNNEL


def _renumbering_fault(request: BlockRequest, recorded: IPv4Network) -> Fault:
    requested = str(request.declared) if request.declared else f"a /{request.prefix}"
    return fault(
        RENUMBERS_BLOCK,
        key=request.key,
        message=f"{request.path} is recorded as {recorded}; {requested} would renumber it",
        fix=f"keep {recorded}, or renumber deliberately: `bedplate plan --write --release {request.path}`",
    )


def _outside_fault(request: BlockRequest, recorded: IPv4Network, supernet: IPv4Network) -> Fault:
    declare = f", or set `block: {recorded}` in the region" if request.kind is BlockKind.REGION else ""
    return fault(
        OUTSIDE_SUPERNET,
        key="network.supernet",
        message=f"{request.path} is recorded as {recorded}, which is outside {supernet}",
        fix=f"use a supernet that contains {recorded}{declare}",
    )


def _overlap_faults(request: BlockRequest, recorded_blocks: "_RecordedBlocks") -> Iterator[Fault]:
    if request.declared is None:
        return
    for path, recorded, in_use in recorded_blocks.overlapping(request.declared):
        release_hint = "" if in_use else f", or release it first: `bedplate plan --write --release {path}`"
        yield fault(
            TOUCHES_RECORDED_BLOCK,
            key=request.key,
            message=f"{request.declared} overlaps {recorded}, which the lock records for {path}",
            fix=f"use a block that does not overlap {recorded}{release_hint}",
        )


class _RecordedBlocks:
    """The recorded blocks that a declared block must not overlap, sorted by address.

    A recorded block that today's file declares is left out: the checks compare declared blocks with each other.
    """

    def __init__(self, requests: tuple[BlockRequest, ...], record: Record) -> None:
        by_path = {request.path: request for request in requests}
        self._sorted = sorted(
            (int(block.network_address), path, block, path in by_path)
            for path, block in record.blocks.items()
            if not is_nested(path) and (path not in by_path or by_path[path].declared is None)
        )

    def overlapping(self, block: IPv4Network) -> Iterator[tuple[str, IPv4Network, bool]]:
        """Yield the path and block of each overlap, and whether the file still requests it."""
        last = bisect_right(self._sorted, int(block.broadcast_address), key=lambda entry: entry[0])
        for _, path, recorded, in_use in reversed(self._sorted[:last]):
            if recorded.broadcast_address < block.network_address:
                return
            yield path, recorded, in_use


def release(record: Record, path: str, fleet: Fleet) -> Record:
    """Return the record without a path and all below it; for a region also without its tunnels and its laptop pool.

    A path can be released if the file no longer requests it, or requests another block or size there: that is how an
    operator renumbers deliberately. Tunnels and pools that the file still requests unchanged stay. Raises InputError
    for a path in use.
    """
    released = {recorded for recorded in record.blocks if is_under(recorded, path)}
    if not released:
        raise _unknown_path(path, record, fleet)
    in_use = set(_paths_in_use(record, fleet))
    if released & in_use:
        raise InputError(
            f"{min(released & in_use)} cannot be released: the fleet file uses it",
            where=path,
            fix="remove it from the fleet file first",
        )
    released.update(recorded for recorded in record.blocks if leads_to(recorded, path) and recorded not in in_use)
    return record.without(released)


def _paths_in_use(record: Record, fleet: Fleet) -> Iterator[str]:
    """Yield the paths that the file requests exactly as recorded."""
    unchanged = {
        request.path
        for request in block_requests(fleet)
        if request.path in record.blocks and not request.contradicts(record.blocks[request.path])
    }
    yield from unchanged
    for name, region in fleet.regions.items():
        if space.region_path(name) in unchanged:
            for zone in region.zones:
                yield from (space.edge_path(name, zone), space.nodes_path(name, zone))


def _unknown_path(path: str, record: Record, fleet: Fleet) -> InputError:
    in_use = set(_paths_in_use(record, fleet))
    releasable = sorted(recorded for recorded in record.blocks if recorded not in in_use and not is_nested(recorded))
    used = next((name for name in record.blocks if name in in_use and name.endswith(f"/{path}")), None)
    fix = f"one of: {', '.join(releasable)}" if releasable else "no block in the lock can be released"
    if used:
        fix = f"{used} is in use: remove it from the fleet file first"
    return InputError(f"fleet.lock has no block {path}", fix=fix)


# Clear of AWS's reserved ranges: 169.254.0-5.0/30 and 169.254.169.252/30 are not allowed as inside blocks
# (https://docs.aws.amazon.com/vpn/latest/s2svpn/VPNTunnels.html), and 169.254.169.0/24 and 169.254.170.0/23
# hold instance metadata, DNS, time and the credentials of ECS and EKS
# (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html).
TUNNELS = IPv4Network("169.254.64.0/18")
# Docker's default bridge: a node with containers never routes to such a block.
DOCKER = IPv4Network("172.17.0.0/16")
# The default VPC of every region: a legal block, but it prevents peering with a default VPC.
DEFAULT_VPC = IPv4Network("172.31.0.0/16")


@dataclass(frozen=True, slots=True)
class Window:
    """A range of addresses to search, and the end to start from."""

    span: Span
    from_top: bool = False

    def find(self, space: Space, prefix: int) -> IPv4Network | None:
        """Return the first free block in the range, or None."""
        return (space.highest if self.from_top else space.lowest)(prefix, self.span)


def preferred_windows(kind: BlockKind, supernet: IPv4Network) -> tuple[Window, ...]:
    """Return where a kind of block goes while space allows: pods, services and laptops at the top of the supernet."""
    whole = span_of(supernet)
    eighth = whole.end - whole.size // 8
    preferred = {
        BlockKind.PODS: Window(Span(whole.first, eighth), from_top=True),
        BlockKind.SERVICES: Window(Span(eighth, whole.end)),
        BlockKind.LAPTOPS: Window(Span(eighth + whole.size // 64, whole.end)),
    }
    return (*((preferred[kind],) if kind in preferred else ()), *all_windows(kind, supernet))


def all_windows(kind: BlockKind, supernet: IPv4Network) -> tuple[Window, ...]:
    """Return the whole range that a kind of block may use."""
    return (Window(span_of(TUNNELS if kind is BlockKind.TUNNEL else supernet)),)


Blocks = dict[str, IPv4Network]
Windows = Callable[[BlockKind], tuple[Window, ...]]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The block of each request by path, and the faults of those without one."""

    blocks: Blocks
    faults: tuple[Fault, ...]


def assign_blocks(requests: tuple[BlockRequest, ...], record: Record, supernet: IPv4Network) -> Allocation:
    """Return recorded and declared blocks unchanged, and a free block for each other request.

    A request fails only if no arrangement of the new blocks fits.
    """
    fixed = {request.path: record.blocks.get(request.path) or request.declared for request in requests}
    blocks = {path: block for path, block in fixed.items() if block is not None}
    missing = tuple({request.path: request for request in requests if request.path not in blocks}.values())
    recorded = (block for path, block in record.blocks.items() if not is_nested(path))
    taken = (*recorded, *blocks.values(), DOCKER)
    blocks |= _assign_preferred(missing, taken, supernet) or _assign_tightly(missing, taken, supernet)
    free = Space(taken).free(span_of(supernet))
    return Allocation(blocks, tuple(_shortages(missing, blocks, supernet, free)))


def _assign_preferred(
    missing: tuple[BlockRequest, ...], taken: tuple[IPv4Network, ...], supernet: IPv4Network
) -> Blocks | None:
    """Return blocks at the preferred, memorable addresses; None if one request has none left."""
    spaces = (Space((*taken, DEFAULT_VPC)), Space(taken))
    blocks = _first_fit(missing, spaces, lambda kind: preferred_windows(kind, supernet))
    return blocks if len(blocks) == len(missing) else None


def _assign_tightly(missing: tuple[BlockRequest, ...], taken: tuple[IPv4Network, ...], supernet: IPv4Network) -> Blocks:
    """Return as many blocks as fit.

    Aligned blocks whose sizes are powers of two waste nothing when the largest come first.
    """
    largest_first = sorted(missing, key=lambda request: request.prefix)
    return _first_fit(largest_first, (Space(taken),), lambda kind: all_windows(kind, supernet))


def _first_fit(missing: Iterable[BlockRequest], spaces: tuple[Space, ...], windows: Windows) -> Blocks:
    """Return the first free block of each request that has one; the spaces are searched in order."""
    blocks: Blocks = {}
    for request in missing:
        candidates = (window.find(space, request.prefix) for space in spaces for window in windows(request.kind))
        block = next((block for block in candidates if block is not None), None)
        if block is not None:
            blocks[request.path] = block
            for space in spaces:
                space.take(block)
    return blocks


def _shortages(missing: tuple[BlockRequest, ...], blocks: Blocks, supernet: IPv4Network, free: int) -> Iterator[Fault]:
    unmet = [request for request in missing if request.path not in blocks]
    tunnels = [request for request in unmet if request.kind is BlockKind.TUNNEL]
    others = [request for request in unmet if request.kind is not BlockKind.TUNNEL]
    if others:
        needed = sum(block_size(request.prefix) for request in missing if request.kind is not BlockKind.TUNNEL)
        yield _exhausted(others, supernet, needed=needed, free=free)
    if tunnels:
        yield _out_of_tunnels(tunnels)


def _exhausted(unmet: list[BlockRequest], supernet: IPv4Network, *, needed: int, free: int) -> Fault:
    more = f" and {len(unmet) - 1} more" if len(unmet) > 1 else ""
    # Used and needed addresses, rounded up to a power of two: no arrangement fits in less.
    enough = ADDRESS_BITS - (supernet.num_addresses - free + needed - 1).bit_length()
    prefix = max(min(enough, supernet.prefixlen - 1), 0)
    return fault(
        SUPERNET_EXHAUSTED,
        key="network.supernet",
        message=f"{supernet} has no space for {unmet[0].path} (/{unmet[0].prefix}){more}: "
        f"new blocks need {needed:,} addresses, {free:,} are free",
        fix=f"use a supernet of /{prefix} or wider, or smaller blocks where the file sets the size",
    )


def _out_of_tunnels(unmet: list[BlockRequest]) -> Fault:
    capacity = TUNNELS.num_addresses // block_size(TUNNEL_PREFIX)
    return fault(
        TUNNELS_EXHAUSTED,
        key=unmet[0].key,
        message=f"{TUNNELS} has no inside addresses left for {len(unmet)} tunnels: its capacity is {capacity:,}",
        fix="use fewer sites or regions, or release tunnels that the file no longer has",
    )


def allocate_blocks(fleet: Fleet, record: Record) -> Mapping[str, IPv4Network]:
    """Return the block of every path that the file requests, in the order of the file.

    Ignores groups, storage and people, so it works for a file that still has errors there. Raises PlanFaults with all
    faults; nothing is allocated then.
    """
    requests, supernet = block_requests(fleet), fleet.network.supernet
    allocation = assign_blocks(requests, record, supernet)
    zones = subnets(fleet, record, allocation.blocks)
    faults = (*conflicts(requests, record, supernet), *allocation.faults, *zones.faults)
    if faults:
        raise PlanFaults(faults)
    blocks: dict[str, IPv4Network] = {}
    for request in requests:
        blocks[request.path] = allocation.blocks[request.path]
        blocks |= zones.of_region.get(request.path, {})
    return MappingProxyType(blocks)
