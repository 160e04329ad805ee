"""A control group of its own for each machine: systemd knows by it which processes are a service's.

Containers that one process starts would else share theirs: whatever two of them call alike would be one service, whose
processes neither can end.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

# How long a group is waited for that does not get empty.
_SECONDS = 5.0
_HIERARCHY = re.compile(r"\S+ \S+ \S+ \S+ (?P<at>\S+) .* - (?:cgroup2 \S+ .*|cgroup \S+ .*name=systemd.*)")
# Puts itself there, and becomes the program.
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'


def in_group(name: str, *command: str) -> tuple[str, ...]:
    """Return the command that runs another in a group of this name, in each hierarchy that systemd uses."""
    groups = tuple(place / name for place in _places())
    for group in groups:
        group.mkdir(exist_ok=True)
    return ("sh", "-ec", _JOIN, "sh", *map(str, groups), "--", *command)


def remove_group(name: str) -> None:
    """Remove the groups of this name, whose processes are ending."""
    for place in _places():
        _remove(place / name)


def groups() -> list[str]:
    """Return the names of the groups that there are beside this process's own."""
    return sorted({entry.name for place in _places() for entry in place.iterdir() if entry.is_dir()})


def _remove(group: Path) -> None:
    """Remove a group and those below it, the lowest first; a process that has ended is there a moment longer."""
    end = monotonic() + _SECONDS
    while group.exists() and monotonic() < end:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        if group.exists():
            sleep(0.05)


def _places() -> Iterator[Path]:
    """Yield this process's own place in each hierarchy that systemd uses."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if found := _HIERARCHY.fullmatch(line):
            path = own.get("name=systemd" if " - cgroup " in line else "", "/")
            place = Path(found["at"]) / path.lstrip("/")
            if place.is_dir():  # a container may see its groups elsewhere: its machines share them
                yield place
