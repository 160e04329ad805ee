"""What every role is: three stages, each of which runs for all roles of a node before the next begins.

Install needs no running systemd, so the bake of an image runs the same code as a live node; activate needs it.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.api.operation import OperationMeta
from pyinfra.context import host
from pyinfra.operations import server

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


STAGES = ("install", "configure", "activate")


def deploy(
    roles: tuple[Role, ...], only: Collection[str] | None = None, stages: Collection[str] | None = None
) -> tuple[tuple[Role, frozenset[str]], ...]:
    """Declare to pyinfra the operations of the wanted roles, stage by stage; None wants all.

    Return each role with the keys of the operations that its install declared.
    """
    wanted = [role for role in roles if only is None or role.name in only]
    chosen = STAGES if stages is None else stages
    installs: list[tuple[Role, frozenset[str]]] = []
    if "install" in chosen:
        for role in wanted:
            before = frozenset(host.op_hash_order)
            role.install()
            installs.append((role, frozenset(host.op_hash_order) - before))
    changes: dict[str, Changes] = {}
    if "configure" in chosen:
        changes = {role.name: role.configure() for role in wanted}
    if "activate" in chosen:
        for role in wanted:
            role.activate(changes.get(role.name, NO_CHANGES))
    return tuple(installs)


@dataclass(frozen=True, slots=True)
class Due:
    """One thing to do: the name that an operator reads, and the commands that do it."""

    name: str
    commands: tuple[str, ...]


def carry_out(dues: Iterable[Due]) -> list[OperationMeta]:
    """Declare one operation for each."""
    return [server.shell(name=due.name, commands=list(due.commands)) for due in dues]
