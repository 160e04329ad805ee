"""A test oracle for address plans in plain integers: it shares no code with the planner, not even `ipaddress`."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

Range = tuple[int, int]
NEVER = {"docker": "172.17.0.0/16"}
TUNNELS = "169.254.64.0/18"


def faults(
    blocks: Mapping[str, str], record: Mapping[str, str], supernet: str, declared: Iterable[str] = ()
) -> list[str]:
    """Return all faults of a plan's blocks, given the record before it.

    `declared` are the paths with a block in the file, which may be outside the supernet.
    """
    all_blocks = {**record, **blocks}
    flat = {path: _range(text) for path, text in all_blocks.items() if "/zone/" not in path}
    nested = {path: _range(text) for path, text in all_blocks.items() if "/zone/" in path}
    outside = {path for path in blocks if path.startswith("site/")} | set(declared)
    return [
        *(f"{path} moved" for path, text in record.items() if blocks.get(path, text) != text),
        *_overlaps({**flat, **{name: _range(text) for name, text in NEVER.items()}}),
        *_overlaps(nested),
        *_outside(blocks, supernet, outside),
    ]


def _overlaps(ranges: Mapping[str, Range]) -> Iterator[str]:
    for (path, (first, last)), (other, (start, stop)) in combinations(ranges.items(), 2):
        if first <= stop and start <= last:
            yield f"{path} overlaps {other}"


def _outside(blocks: Mapping[str, str], supernet: str, allowed: set[str]) -> Iterator[str]:
    for path, text in blocks.items():
        first, last = _range(text)
        if path.startswith("tunnel/"):
            around = _range(TUNNELS)
        elif "/zone/" in path:
            around = _range(blocks[path.split("/zone/")[0]])
        else:
            around = _range(supernet)
        if path not in allowed and not around[0] <= first <= last <= around[1]:
            yield f"{path} lies outside"


def _range(text: str) -> Range:
    address, prefix = text.split("/")
    byte_1, byte_2, byte_3, byte_4 = (int(part) for part in address.split("."))
    first = ((byte_1 * 256 + byte_2) * 256 + byte_3) * 256 + byte_4
    size = 2 ** (32 - int(prefix))
    if first % size:
        raise AssertionError(f"{text} has host bits set")
    return first, first + size - 1
