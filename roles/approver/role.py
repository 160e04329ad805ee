"""The role `approver`: the approver of nodes runs on each member of the control plane, and one of them acts."""

from dataclasses import dataclass
from typing import ClassVar

from roles.base import Changes, ManagedFile, Role
from roles.control.role import controller_files, start_controller

_ABOUT = "approver of nodes"


@dataclass(frozen=True, slots=True)
class Approver(Role):
    """A member with the approver."""

    name: ClassVar[str] = "approver"

    def install(self) -> None:
        """Install nothing: the approver is part of the node bundle."""

    def files(self) -> tuple[ManagedFile, ...]:
        """Return every file of the approver; none holds a secret."""
        return controller_files("approver", _ABOUT, "bedplate.machine.approver", memory="512M")

    def activate(self, changes: Changes) -> None:
        """Start the approver."""
        start_controller(self.name, _ABOUT, changes)
