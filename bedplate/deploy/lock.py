"""The remains of a killed run of Pulumi in its backend: the lock of a stack, and damaged files."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bedplate.errors import HeldError
from bedplate.writer import is_alive

_HOLDER = re.compile(r"created by (?P<user>.*)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<since>\S+)")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that took a lock; `since` is a time in UTC."""

    user: str
    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, process {self.pid}, since {self.since}"

    @property
    def is_here(self) -> bool:
        """Whether the process ran on this machine."""
        return self.host == os.uname().nodename

    def lives_here(self) -> bool:
        """Return whether the process is alive on this machine; another program may have its number by now."""
        if not self.is_here or not is_alive(self.pid):
            return False
        command = ["ps", "-o", "comm=", "-p", str(self.pid)]
        try:
            name = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
        except OSError:
            return True
        return "pulumi" in name


class LockedError(HeldError):
    """Another run of Pulumi holds the lock of a stack; a backend such as Pulumi Cloud does not say who."""

    holders: tuple[LockHolder, ...] = ()


def lock_holders(text: str) -> tuple[LockHolder, ...]:
    """Return the holders that the error of a locked stack names."""
    return tuple(
        LockHolder(match["user"], match["host"], int(match["pid"]), match["since"]) for match in _HOLDER.finditer(text)
    )


def remove_damaged_files(backend: Path) -> tuple[str, ...]:
    """Delete each `*.attrs` of a file backend that is no JSON, and return their names.

    Pulumi writes these in place, beside each object, and cannot read an object with an incomplete one: "EOF". They have
    only metadata, and the object is readable without. Source: gocloud.dev/blob/fileblob, attrs.go.
    """
    damaged = [path for path in sorted((backend / ".pulumi").rglob("*.attrs")) if not _is_json(path)]
    for path in damaged:
        path.unlink(missing_ok=True)
    return tuple(path.name for path in damaged)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True
