"""The check before an apply: a node must have the disk space that its roles declare for their install stage."""

from collections.abc import Iterable, Mapping

from bedplate.nodes.event import Kind, Trouble
from roles.base import DiskSpace

_FOLDERS = ("/usr", "/var", "/tmp", "/run")  # noqa: S108  where programs write
ASK = f"df --portability --block-size=1M {' '.join(_FOLDERS)}"
# Any change: files are written beside those that they replace. systemd reads units only while 16 MiB of /run are free.
# Source: systemd 252, RELOAD_DISK_SPACE_MIN.
_LEAST, _RUNTIME = DiskSpace(8, 8, 8), 16


def lack_of_space(told: str, needs: Iterable[DiskSpace]) -> Trouble | None:
    """Return why the node has too little space, from the output of `ASK`; None if it has enough or df is unreadable."""
    rows = [line.split() for line in told.splitlines()[1:]]
    if [len(row) for row in rows] != [6] * len(_FOLDERS):
        return None
    needs = (_LEAST, *needs)
    amounts = (
        sum(need.programs for need in needs),
        sum(need.state for need in needs),
        sum(need.temporary for need in needs),
        _RUNTIME,
    )
    free = {row[5]: int(row[3]) for row in rows}
    needed: dict[str, int] = {}
    for row, amount in zip(rows, amounts, strict=True):
        needed[row[5]] = needed.get(row[5], 0) + amount
    return _trouble({mount: (free[mount], amount) for mount, amount in needed.items() if free[mount] < amount})


def _trouble(short: Mapping[str, tuple[int, int]]) -> Trouble | None:
    if not short:
        return None
    words = "; ".join(
        f"{mount} has {free:,} MiB free, {amount:,} MiB required" for mount, (free, amount) in short.items()
    )
    fix = f"free disk space (`sudo du -xm {' '.join(short)} | sort -n | tail`) or enlarge the disk, then apply again"
    return Trouble(Kind.REFUSED, f"not enough disk space, nothing was changed: {words}", fix)
