"""The tunnels that this gateway's own files tell of, each with what its daemon says: nothing, where it is silent.

A tunnel whose daemon does not answer is told as one that is down; nobody is to take silence for health.
"""

import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from .tunnels import Tunnel, carried

SWANCTL = Path("/usr/sbin/swanctl")
# Where each charon takes its orders.
SOCKETS = Path("/run/bedplate-ipsec")
_SECONDS = 5


@dataclass(frozen=True)
class Answers:
    """Whether each daemon of tunnels answers, by its name; `tunnels` is None where there is no such daemon."""

    charons: dict[str, bool]
    tunnels: tuple[Tunnel, ...] | None


def answers(files: Path, sockets: Path = SOCKETS) -> Answers:
    """Ask the charon of every folder in `files`, and any other that listens, all at once."""
    wanted = {table.parent.name: _names(table.read_text()) for table in files.glob("*/table")}
    names = sorted({*wanted, *(socket.stem for socket in sockets.glob("*.vici"))})
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        told = dict(zip(names, pool.map(lambda name: _told(sockets / f"{name}.vici"), names), strict=True))
    # What is silent and has no files is a socket that a daemon left behind when it went.
    here = {name: each for name, each in told.items() if name in wanted or each is not None}
    found = tuple(one for name, each in here.items() for one in _whole(name, each or (), wanted.get(name, ())))
    return Answers({name: each is not None for name, each in here.items()}, found if here else None)


def _names(table: str) -> tuple[str, ...]:
    """Return the first word of each line: the tunnels of a charon's table."""
    return tuple(line.split()[0] for line in table.splitlines() if line.strip())


def _whole(charon: str, told: Iterable[Tunnel], wanted: Iterable[str]) -> tuple[Tunnel, ...]:
    known = tuple(replace(each, charon=charon) for each in told)
    missing = (name for name in wanted if name not in {each.name for each in known})
    return (*known, *(Tunnel(name, None, 0, 0, None, charon) for name in missing))


def _told(socket: Path) -> tuple[Tunnel, ...] | None:
    known = _list("--list-conns", socket)
    standing = None if known is None else _list("--list-sas", socket)
    return None if known is None or standing is None else carried(known, standing)


def _list(what: str, socket: Path) -> str | None:
    command = [str(SWANCTL), what, "--raw", "--uri", f"unix://{socket}"]
    try:
        done = subprocess.run(command, capture_output=True, errors="replace", check=False, timeout=_SECONDS)  # noqa: S603
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout
