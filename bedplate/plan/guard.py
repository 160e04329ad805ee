"""What a file may not ask, given its lock: nothing recorded moves, and nothing new stands on it."""

from bisect import bisect_right
from collections.abc import Iterator
from ipaddress import IPv4Network

from bedplate.plan.fault import PlanFault
from bedplate.plan.paths import is_nested
from bedplate.plan.record import Record
from bedplate.plan.want import Kind, Want


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
