"""Blocks for what the lock does not know yet, drawn from the free space in the order of the file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.fault import PlanFault
from bedplate.plan.paths import is_nested
from bedplate.plan.place import DEFAULT_VPC, DOCKER, TUNNELS, place
from bedplate.plan.record import Record
from bedplate.plan.space import ADDRESS_BITS, Space, block_size, span_of
from bedplate.plan.want import TUNNEL_PREFIX, Kind, Want


@dataclass(frozen=True, slots=True)
class Draw:
    """What every want got, and the faults of those that got nothing."""

    blocks: dict[str, IPv4Network]
    faults: tuple[PlanFault, ...]


def draw(asked: tuple[Want, ...], record: Record, supernet: IPv4Network) -> Draw:
    """Return recorded and declared blocks as they are, and for every other want the first that is free."""
    given = {want.path: record.blocks.get(want.path) or want.declared for want in asked}
    blocks = {path: block for path, block in given.items() if block is not None}
    missing = {want.path: want for want in asked if want.path not in blocks}
    spaces = _spaces(record, blocks.values())
    before = spaces[-1].free(span_of(supernet))
    for want in missing.values():
        block = place(want, supernet, spaces)
        if block is not None:
            blocks[want.path] = block
            _take(spaces, block)
    return Draw(blocks, tuple(_shortages(tuple(missing.values()), blocks, supernet, before)))


def _spaces(record: Record, given: Iterable[IPv4Network]) -> tuple[Space, ...]:
    held = (block for path, block in record.blocks.items() if not is_nested(path))
    taken = (*held, *given, DOCKER)
    return Space((*taken, DEFAULT_VPC)), Space(taken)


def _take(spaces: tuple[Space, ...], block: IPv4Network) -> None:
    for space in spaces:
        space.take(block)


def _shortages(
    missing: tuple[Want, ...], blocks: dict[str, IPv4Network], supernet: IPv4Network, before: int
) -> Iterator[PlanFault]:
    unmet = [want for want in missing if want.path not in blocks]
    tunnels = [want for want in unmet if want.kind is Kind.TUNNEL]
    wide = [want for want in unmet if want.kind is not Kind.TUNNEL]
    if wide:
        need = sum(block_size(want.prefix) for want in missing if want.kind is not Kind.TUNNEL)
        yield _exhausted(wide, supernet, need=need, have=before)
    if tunnels:
        yield _out_of_tunnels(tunnels)


def _exhausted(unmet: list[Want], supernet: IPv4Network, *, need: int, have: int) -> PlanFault:
    more = f" and {len(unmet) - 1} more" if len(unmet) > 1 else ""
    # Held and needed together, rounded up to a power of two: below this no arrangement fits.
    wanted = ADDRESS_BITS - (supernet.num_addresses - have + need - 1).bit_length()
    widest = min(max(wanted, 0), supernet.prefixlen - 1)
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
