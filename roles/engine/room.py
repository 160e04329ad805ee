"""Whether a node has room for what an apply is about to put there: a full disk would end it in the middle.

Decides from what `df` says; what takes the room, and what is to go, is the operator's matter.
"""

from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass

from bedplate.nodes.event import Kind, Trouble

FOLDERS = ("/usr", "/var", "/tmp", "/run")  # noqa: S108  where programs put what they forget
# By these it is told whether a node has had its packages, from an apply or from its image: one of every node, one of a
# workbench.
_OF_ALL, _OF_WORKBENCH = "auditd", "cmake"
ASK = (
    f"df --portability --block-size=1M {' '.join(FOLDERS)}; "
    f"dpkg-query --show --showformat='${{db:Status-Status}} ${{Package}}\\n' {_OF_ALL} {_OF_WORKBENCH} || true"
)


@dataclass(frozen=True, slots=True)
class Need:
    """Room in megabytes (2^20): for programs, for what apt fetches and the system remembers, for what it forgets.

    `running` is systemd's own: it reads units anew only where 16 MB of /run are free, and packages have it do so.
    Source: systemd 252, RELOAD_DISK_SPACE_MIN.
    """

    programs: int
    state: int
    passing: int = 8
    running: int = 16


# What there must be for a single setting: files are written beside the one that they replace.
LEAST = Need(8, 8)
# What packages take on a node that has none of them yet, with a third more. Read on 2026-11-22 from apt on Debian 12:
# those of a workbench 552 MB and 134 MB to fetch, those of every other role together 172 and 38; lists of packages 84;
# AWS's command line with its Python, uv and micromamba some 330. pip lays the first, and uv, into /tmp meanwhile: 21 MB
# each.
WORKBENCH, OTHERS = Need(1400, 350, 32), Need(250, 180, 32)


def lack(told: str, roles: Collection[str]) -> Trouble | None:
    """Return why there is too little room for these roles, from what `ASK` told; what cannot be read hinders nobody."""
    lines = [line.split() for line in told.splitlines()]
    rows = [line for line in lines[1:] if len(line) > len(("status", "package"))]
    packages = {line[-1] for line in lines if line[:1] == ["installed"]}
    if len(rows) != len(FOLDERS):
        return None
    free = {row[5]: int(row[3]) for row in rows}
    wanted: dict[str, int] = {}
    for row, amount in zip(rows, astuple(_needed(roles, packages)), strict=True):
        wanted[row[5]] = wanted.get(row[5], 0) + amount
    return _told({place: (free[place], amount) for place, amount in wanted.items() if free[place] < amount})


def _needed(roles: Collection[str], packages: Collection[str]) -> Need:
    if "workbench" in roles and _OF_WORKBENCH not in packages:
        return WORKBENCH
    return LEAST if _OF_ALL in packages else OTHERS


def _told(short: Mapping[str, tuple[int, int]]) -> Trouble | None:
    if not short:
        return None
    words = "; ".join(
        f"{place} has {free:,} MB free, and {amount:,} are needed" for place, (free, amount) in short.items()
    )
    asked = " ".join(short)
    fix = f"make room (`sudo du -xm {asked} | sort -n | tail`) or give it more, then apply again"
    return Trouble(Kind.REFUSED, f"its disk has no room, and nothing was changed: {words}", fix)
