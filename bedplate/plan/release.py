"""Giving a recorded block back, so that it may be allotted anew: only when the operator says so by name."""

from collections.abc import Iterator

from bedplate.errors import InputError
from bedplate.plan.paths import edge_path, is_nested, is_under, leads_to, nodes_path, region_path
from bedplate.plan.record import Record
from bedplate.plan.want import wants
from bedplate.spec import Fleet


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
