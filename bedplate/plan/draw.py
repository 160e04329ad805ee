"""Blocks for what the lock does not know yet, drawn from the free space: tidily where there is room, else tightly."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.fault import PlanFault
from bedplate.plan.paths import is_nested
from bedplate.plan.place import DEFAULT_VPC, DOCKER, TUNNELS, Window, anywhere, favourite
from bedplate.plan.record import Record
from bedplate.plan.space import ADDRESS_BITS, Space, block_size, span_of
from bedplate.plan.want import TUNNEL_PREFIX, Kind, Want

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
