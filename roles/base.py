"""The base class of roles, and the order in which their stages run.

`install` needs no running systemd, so an image build runs the same code as a node; `activate` needs it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pyinfra.api.operation import OperationMeta
from pyinfra.context import host
from pyinfra.operations import server
from pyinfra.operations.util import any_changed

Changes = Mapping[str, OperationMeta]
"""The operations that write files, by path."""
NO_CHANGES: Changes = {}


def changed(changes: Changes, *paths: str) -> Callable[[], bool]:
    """Return the `_if` condition that one of these files has changed; any file, if no path is given."""
    # Without `configure` nothing has changed.
    return any_changed(*(changes[path] for path in paths or changes) if changes else ())


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Disk space in MiB: `programs` below /usr, `state` below /var, `temporary` below /tmp."""

    programs: int = 0
    state: int = 0
    temporary: int = 0


class Disruption(StrEnum):
    """What a change of a role disturbs: nothing, a service, all work on the node, or the node itself."""

    NONE = "none"
    SERVICE = "service"
    DRAIN = "drain"
    REBOOT = "reboot"


class Role(ABC):
    """A service on a node. Subclasses are frozen dataclasses of the plan's values for it."""

    name: ClassVar[str]
    space: ClassVar[DiskSpace] = DiskSpace()
    """The most space that `install` needs: installed sizes and archives of apt on Debian 12, plus a third."""
    disruption: ClassVar[Disruption] = Disruption.SERVICE
    """On a node that is ready, the configuration run makes changes that disturb nothing or a service."""

    @abstractmethod
    def install(self) -> None:
        """Install packages; needs no systemd, and reads no disk, kernel or address: an image is built elsewhere."""

    @abstractmethod
    def configure(self) -> Changes:
        """Write the files of this node's services; return the changes that `activate` needs."""

    @abstractmethod
    def activate(self, changes: Changes) -> None:
        """Start services, and restart or reload those whose files have changed."""


STAGES = ("install", "configure", "activate")


def deploy(
    roles: tuple[Role, ...], only: Collection[str] | None = None, stages: Collection[str] | None = None
) -> tuple[tuple[Role, frozenset[str]], ...]:
    """Declare the operations of the selected roles and stages to pyinfra; None selects all.

    Each stage runs for all roles before the next stage begins. Return each role with the keys of the operations that
    its `install` declared.
    """
    selected = [role for role in roles if only is None or role.name in only]
    selected_stages = STAGES if stages is None else stages
    installs: list[tuple[Role, frozenset[str]]] = []
    if "install" in selected_stages:
        for role in selected:
            before = frozenset(host.op_hash_order)
            role.install()
            installs.append((role, frozenset(host.op_hash_order) - before))
    changes: dict[str, Changes] = {}
    if "configure" in selected_stages:
        changes = {role.name: role.configure() for role in selected}
    if "activate" in selected_stages:
        for role in selected:
            role.activate(changes.get(role.name, NO_CHANGES))
    return tuple(installs)


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change to make: the operation's name, and its commands."""

    name: str
    commands: tuple[str, ...]


def run_changes(changes: Iterable[PendingChange]) -> None:
    """Declare one operation for each change."""
    for change in changes:
        server.shell(name=change.name, commands=list(change.commands))
