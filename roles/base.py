"""What every role is: three stages, each of which runs for all roles of a node before the next begins.

Install needs no running systemd, so the bake of an image runs the same code as a live node; activate needs it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.api.operation import OperationMeta

Changes = Sequence[OperationMeta]
NO_CHANGES: Changes = ()


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Disk space in MiB: `programs` below /usr, `state` below /var, `temporary` below /tmp."""

    programs: int = 0
    state: int = 0
    temporary: int = 0


class Role(ABC):
    """One service on a node; subclasses are frozen dataclasses of what the plan says about it."""

    name: ClassVar[str]
    space: ClassVar[DiskSpace] = DiskSpace()
    """What `install` needs at most: installed sizes and archives of apt on Debian 12, with a third more."""

    @abstractmethod
    def install(self) -> None:
        """Put packages on the node; needs no systemd and knows nothing of this one node."""

    @abstractmethod
    def configure(self) -> Changes:
        """Write what this node's services read; return the operations whose change activate answers."""

    @abstractmethod
    def activate(self, changes: Changes) -> None:
        """Start what is to run, and restart what reads what has changed."""
