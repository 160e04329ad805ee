"""Shared memory: everybody writes there, so nothing that lies there runs."""

from collections.abc import Iterable
from functools import partial

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server

from roles.texts import Edit, with_line

_LINE = "tmpfs\t/dev/shm\ttmpfs\trw,nosuid,nodev,noexec\t0\t0"  # a line of fstab
AT_BOOT = Edit("/etc/fstab", partial(with_line, instead_of=r"\S+\s+/dev/shm\s", line=_LINE))


class Remountable(FactBase[bool]):
    """Whether shared memory is mounted otherwise than fstab says."""

    default = bool

    def command(self) -> str:
        """Look for an option that is missing."""
        return "findmnt --noheadings --output OPTIONS /dev/shm | grep -vE '(^|,)noexec(,|$)' || :"

    def process(self, output: Iterable[str]) -> bool:
        """Take any line for a mount without the option."""
        return any(line.strip() for line in output)


def remount() -> None:
    """Declare that shared memory holds no programs, now as after a boot."""
    if host.get_fact(Remountable):
        server.shell(name="No programs in shared memory", commands=["mount -o remount,nosuid,nodev,noexec /dev/shm"])
