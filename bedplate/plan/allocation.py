"""Sites whose gateways have a tunnel of their own: which, and who of the two dials.

Reads the fleet file alone, and makes no tunnel. What the checks refuse is left out: an unknown site, a site and itself.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv4Network
from types import MappingProxyType

from bedplate.errors import InputError
from bedplate.plan import space
from bedplate.plan.record import PlanFault, PlanFaults, Record
from bedplate.plan.space import (
    ADDRESS_BITS,
    Space,
    Span,
    block_size,
    edge_path,
    is_nested,
    is_under,
    leads_to,
    nodes_path,
    region_path,
    span_of,
    subnets,
)
from bedplate.spec import Fleet


def joined_sites(fleet: Fleet) -> tuple[tuple[str, str], ...]:
    """Return each two sites that are joined, once, in the order of the alphabet, whichever of the two says so."""
    said = ((name, other) for name, site in fleet.sites.items() for other in site.gateway.joins)
    known = (tuple(sorted(two)) for two in said if two[0] != two[1] and two[1] in fleet.sites)
    return tuple(sorted({(one, other) for one, other in known}))


def dialler(fleet: Fleet, pair: tuple[str, str]) -> str:
    """Return which of two sites dials: the one that cannot be dialled, else the first in the alphabet."""
    return min(pair, key=lambda name: (not fleet.sites[name].gateway.behind_nat, name))


TUNNEL_PREFIX = 30
TUNNEL_NUMBERS = (1, 2)  # AWS builds every connection as two tunnels, in two zones
PODS_WIDEST, PODS_NARROWEST = 13, 18


class Kind(Enum):
    """What a block is for, which decides where it is looked for."""

    REGION = auto()
    SITE = auto()
    PODS = auto()
    SERVICES = auto()
    LAPTOPS = auto()
    TUNNEL = auto()


@dataclass(frozen=True, slots=True)
class Want:
    """One block that the file asks for; `key` is where it says so.

    `declared` is the block itself where the file names it; `sized` tells that the file names the size, so
    that another size in the lock is a contradiction, not an older default.
    """

    kind: Kind
    path: str
    key: str
    prefix: int
    declared: IPv4Network | None = None
    sized: bool = False

    def contradicts(self, recorded: IPv4Network) -> bool:
        """Tell whether the file asks for another block or size than the lock holds."""
        if self.declared is not None:
            return self.declared != recorded
        return self.sized and self.prefix != recorded.prefixlen


def wants(fleet: Fleet) -> tuple[Want, ...]:
    """Return every block that the file asks for, subnets left out."""
    ours = (*_regions(fleet), *_sites(fleet), *_kubernetes(fleet), *_laptops(fleet))
    return (*ours, *_tunnels(fleet), *_directs(fleet))


def _regions(fleet: Fleet) -> Iterator[Want]:
    for name, region in fleet.regions.items():
        path = space.region_path(name)
        if region.block is None:
            yield Want(Kind.REGION, path, "network.region_size", fleet.network.region_size)
        else:
            yield Want(Kind.REGION, path, f"regions.{name}.block", region.block.prefixlen, region.block)


def _sites(fleet: Fleet) -> Iterator[Want]:
    for name, site in fleet.sites.items():
        yield Want(Kind.SITE, space.site_path(name), f"sites.{name}.lan", site.lan.prefixlen, site.lan)


def _kubernetes(fleet: Fleet) -> Iterator[Want]:
    cluster = fleet.kubernetes
    if cluster is None:
        return
    eighth = min(max(fleet.network.supernet.prefixlen + 3, PODS_WIDEST), PODS_NARROWEST)
    pods = eighth if cluster.pods is None else cluster.pods
    given = cluster.model_fields_set
    yield Want(Kind.PODS, space.PODS, "kubernetes.pods", pods, sized=cluster.pods is not None)
    yield Want(Kind.SERVICES, space.SERVICES, "kubernetes.services", cluster.services, sized="services" in given)


def _laptops(fleet: Fleet) -> Iterator[Want]:
    laptops = fleet.vpn.laptops if fleet.vpn else None
    if laptops is None:
        return
    sized = "pool" in laptops.model_fields_set
    for gateway in laptops.gateways:
        path = space.pool_path(gateway.region or gateway.site or "")
        yield Want(Kind.LAPTOPS, path, "vpn.laptops.pool", laptops.pool, sized=sized)


def _tunnels(fleet: Fleet) -> Iterator[Want]:
    for site in fleet.sites:
        for region in fleet.regions:
            for number in TUNNEL_NUMBERS:
                path = space.tunnel_path(site, region, number)
                yield Want(Kind.TUNNEL, path, f"sites.{site}", TUNNEL_PREFIX)


def _directs(fleet: Fleet) -> Iterator[Want]:
    for one, other in joined_sites(fleet):
        yield Want(Kind.TUNNEL, space.direct_path(one, other), f"sites.{one}.gateway", TUNNEL_PREFIX)


def refusals(asked: tuple[Want, ...], record: Record, supernet: IPv4Network) -> Iterator[PlanFault]:
    """Yield every want that the record contradicts."""
    neighbours = _Neighbours(asked, record)
    for want in asked:
        recorded = record.blocks.get(want.path)
        if recorded is None:
            yield from _touching(want, neighbours)
        elif want.contradicts(recorded):
            yield _renumbers(want, recorded)
        elif _must_lie_inside(want) and not recorded.subnet_of(supernet):
            yield _outside(want, recorded, supernet)


def _must_lie_inside(want: Want) -> bool:
    return want.declared is None and want.kind is not Kind.TUNNEL


def _renumbers(want: Want, recorded: IPv4Network) -> PlanFault:
    asked = str(want.declared) if want.declared else f"a /{want.prefix}"
    return PlanFault(
        code="E231",
        key=want.key,
        message=f"{want.path} is recorded as {recorded}; {asked} would renumber it",
        fix=f"keep {recorded}, or renumber it on purpose: `bedplate plan --write --release {want.path}`",
    )


def _outside(want: Want, recorded: IPv4Network, supernet: IPv4Network) -> PlanFault:
    declared = f", or `block: {recorded}` in the region" if want.kind is Kind.REGION else ""
    return PlanFault(
        code="E233",
        key="network.supernet",
        message=f"{want.path} is recorded as {recorded}, which does not lie in {supernet}",
        fix=f"a supernet that holds {recorded}{declared}",
    )


def _touching(want: Want, neighbours: "_Neighbours") -> Iterator[PlanFault]:
    if want.declared is None:
        return
    for path, recorded, live in neighbours.of(want.declared):
        retired = "" if live else f", or release it first: `bedplate plan --write --release {path}`"
        yield PlanFault(
            code="E232",
            key=want.key,
            message=f"{want.declared} touches {recorded}, which the lock holds for {path}",
            fix=f"a block apart from {recorded}{retired}",
        )


class _Neighbours:
    """The recorded blocks that a declared block may not touch, sorted for look-up by address.

    What is recorded and declared today as well is left out: two declared blocks are compared by the checks.
    """

    def __init__(self, asked: tuple[Want, ...], record: Record) -> None:
        live = {want.path: want for want in asked}
        self._sorted = sorted(
            (int(block.network_address), path, block, path in live)
            for path, block in record.blocks.items()
            if not is_nested(path) and (path not in live or live[path].declared is None)
        )

    def of(self, block: IPv4Network) -> Iterator[tuple[str, IPv4Network, bool]]:
        """Yield path, block and whether the file still asks for it, of all that overlap."""
        last = bisect_right(self._sorted, int(block.broadcast_address), key=lambda entry: entry[0])
        for _, path, recorded, live in reversed(self._sorted[:last]):
            if recorded.broadcast_address < block.network_address:
                return
            yield path, recorded, live


def release(record: Record, path: str, fleet: Fleet) -> Record:
    """Return the record without a path and all below it; a region takes its tunnels and its laptop pool along.

    A path may be released when the file no longer asks for it, or asks for another block or size there: then
    the release is how an operator renumbers on purpose, and what leads to a region that stays is kept. Raises
    InputError for any other.
    """
    gone = {known for known in record.blocks if is_under(known, path)}
    if not gone:
        raise _unknown(path, record, fleet)
    used = set(_in_use(record, fleet))
    if gone & used:
        raise InputError(
            f"{min(gone & used)} cannot be released: the file asks for it, as it is recorded",
            where=path,
            fix="take it out of the file first; a block in use is never given to another",
        )
    gone.update(known for known in record.blocks if leads_to(known, path) and known not in used)
    return record.without(gone)


def _in_use(record: Record, fleet: Fleet) -> Iterator[str]:
    """Yield what the file asks for just as it is recorded."""
    agreed = {
        want.path
        for want in wants(fleet)
        if want.path in record.blocks and not want.contradicts(record.blocks[want.path])
    }
    yield from agreed
    for name, region in fleet.regions.items():
        if region_path(name) in agreed:
            for zone in region.zones:
                yield from (edge_path(name, zone), nodes_path(name, zone))


def _unknown(path: str, record: Record, fleet: Fleet) -> InputError:
    in_use = set(_in_use(record, fleet))
    free = sorted(known for known in record.blocks if known not in in_use and not is_nested(known))
    return InputError(
        f"the lock holds no {path}",
        where=path,
        fix=f"one of: {', '.join(free)}" if free else "nothing: no block in the lock can be released",
    )


# Clear of what AWS keeps for itself: 169.254.0-5.0/30 and 169.254.169.252/30 are refused as inside blocks
# (https://docs.aws.amazon.com/vpn/latest/s2svpn/VPNTunnels.html), and 169.254.169.0/24 and 169.254.170.0/23
# hold instance metadata, DNS, time and the credentials of ECS and EKS
# (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html).
TUNNELS = IPv4Network("169.254.64.0/18")
# Docker's own default bridge: a route to such a block never leaves a node that runs containers.
DOCKER = IPv4Network("172.17.0.0/16")
# The default VPC of every region: legal, but in the way of whoever peers with one.
DEFAULT_VPC = IPv4Network("172.31.0.0/16")


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of addresses to look in, and from which end."""

    span: Span
    from_top: bool = False

    def find(self, space: Space, prefix: int) -> IPv4Network | None:
        """Return the first free block in it, or None."""
        return (space.highest if self.from_top else space.lowest)(prefix, self.span)


def favourite(kind: Kind, supernet: IPv4Network) -> tuple[Window, ...]:
    """Return where a kind is looked for as long as there is room."""
    whole = span_of(supernet)
    eighth = whole.end - whole.size // 8
    corners = {
        Kind.PODS: Window(Span(whole.first, eighth), from_top=True),
        Kind.SERVICES: Window(Span(eighth, whole.end)),
        Kind.LAPTOPS: Window(Span(eighth + whole.size // 64, whole.end)),
    }
    corner = (corners[kind],) if kind in corners else ()
    return (*corner, *anywhere(kind, supernet))


def anywhere(kind: Kind, supernet: IPv4Network) -> tuple[Window, ...]:
    """Return all the room that a kind may have."""
    return (Window(span_of(TUNNELS if kind is Kind.TUNNEL else supernet)),)


Blocks = dict[str, IPv4Network]
Windows = Callable[[Kind], tuple[Window, ...]]


@dataclass(frozen=True, slots=True)
class Draw:
    """What every want got, and the faults of those that got nothing."""

    blocks: Blocks
    faults: tuple[PlanFault, ...]


def draw(asked: tuple[Want, ...], record: Record, supernet: IPv4Network) -> Draw:
    """Return recorded and declared blocks as they are, and one that is free for every other want.

    A want is refused only when no arrangement of what is new has room for all of it.
    """
    given = {want.path: record.blocks.get(want.path) or want.declared for want in asked}
    blocks = {path: block for path, block in given.items() if block is not None}
    missing = tuple({want.path: want for want in asked if want.path not in blocks}.values())
    held = (block for path, block in record.blocks.items() if not is_nested(path))
    taken = (*held, *blocks.values(), DOCKER)
    blocks |= _tidy(missing, taken, supernet) or _tight(missing, taken, supernet)
    have = Space(taken).free(span_of(supernet))
    return Draw(blocks, tuple(_shortages(missing, blocks, supernet, have)))


def _tidy(missing: tuple[Want, ...], taken: tuple[IPv4Network, ...], supernet: IPv4Network) -> Blocks | None:
    """Return blocks at places that an operator remembers, or None when one has none."""
    spaces = (Space((*taken, DEFAULT_VPC)), Space(taken))
    blocks = _placed(missing, spaces, lambda kind: favourite(kind, supernet))
    return blocks if len(blocks) == len(missing) else None


def _tight(missing: tuple[Want, ...], taken: tuple[IPv4Network, ...], supernet: IPv4Network) -> Blocks:
    """Return as many blocks as there is room for.

    Aligned blocks whose sizes are powers of two waste nothing when the largest come first.
    """
    largest_first = sorted(missing, key=lambda want: want.prefix)
    return _placed(largest_first, (Space(taken),), lambda kind: anywhere(kind, supernet))


def _placed(missing: Iterable[Want], spaces: tuple[Space, ...], windows: Windows) -> Blocks:
    """Return the first free block of every want that has one; the spaces are tried in turn."""
    blocks: Blocks = {}
    for want in missing:
        found = (window.find(space, want.prefix) for space in spaces for window in windows(want.kind))
        block = next((block for block in found if block is not None), None)
        if block is not None:
            blocks[want.path] = block
            for space in spaces:
                space.take(block)
    return blocks


def _shortages(missing: tuple[Want, ...], blocks: Blocks, supernet: IPv4Network, have: int) -> Iterator[PlanFault]:
    unmet = [want for want in missing if want.path not in blocks]
    tunnels = [want for want in unmet if want.kind is Kind.TUNNEL]
    wide = [want for want in unmet if want.kind is not Kind.TUNNEL]
    if wide:
        need = sum(block_size(want.prefix) for want in missing if want.kind is not Kind.TUNNEL)
        yield _exhausted(wide, supernet, need=need, have=have)
    if tunnels:
        yield _out_of_tunnels(tunnels)


def _exhausted(unmet: list[Want], supernet: IPv4Network, *, need: int, have: int) -> PlanFault:
    more = f" and {len(unmet) - 1} more" if len(unmet) > 1 else ""
    # Held and needed together, rounded up to a power of two: below this no arrangement fits.
    wanted = ADDRESS_BITS - (supernet.num_addresses - have + need - 1).bit_length()
    widest = max(min(wanted, supernet.prefixlen - 1), 0)
    return PlanFault(
        code="E230",
        key="network.supernet",
        message=f"{supernet} has no room for {unmet[0].path} (/{unmet[0].prefix}){more}: "
        f"new blocks need {need:,} addresses, {have:,} are free",
        fix=f"a supernet of /{widest} or wider, or a smaller size where the file may choose one",
    )


def _out_of_tunnels(unmet: list[Want]) -> PlanFault:
    room = TUNNELS.num_addresses // block_size(TUNNEL_PREFIX)
    return PlanFault(
        code="E236",
        key=unmet[0].key,
        message=f"{TUNNELS} has no inside addresses left for {len(unmet)} tunnels: it holds {room:,} in all",
        fix="fewer sites or regions, or the release of tunnels that are gone from the file",
    )


def allot(fleet: Fleet, record: Record) -> Mapping[str, IPv4Network]:
    """Return the block of every path that the file asks for, in the order of the file.

    Asks nothing of groups, storage or people, so it answers for a file that is still wrong there.
    Raises PlanFaults with all that is wrong; then nothing is allotted.
    """
    asked, supernet = wants(fleet), fleet.network.supernet
    drawn = draw(asked, record, supernet)
    cut = subnets(fleet, record, drawn.blocks)
    faults = (*refusals(asked, record, supernet), *drawn.faults, *cut.faults)
    if faults:
        raise PlanFaults(faults)
    blocks: dict[str, IPv4Network] = {}
    for want in asked:
        blocks[want.path] = drawn.blocks[want.path]
        blocks |= cut.of_region.get(want.path, {})
    return MappingProxyType(blocks)
