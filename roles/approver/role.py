"""The role `approver`: the approver of nodes runs on each member of the control plane, and one of them acts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.operations import systemd

from roles.base import Changes, ManagedFile, Role, changed, file_text, put_files
from roles.system import Joined, start_units

UNIT = "bedplate-approver.service"
RIGHTS = "/etc/bedplate/approver-rights.yaml"
_PROGRAM = "/usr/local/lib/bedplate/approver"


@dataclass(frozen=True, slots=True)
class Approver(Role):
    """A member with the approver."""

    name: ClassVar[str] = "approver"

    def install(self) -> None:
        """Install nothing: the approver is part of the node bundle."""

    def configure(self) -> Changes:
        """Write the rights in the cluster, and the unit."""
        return put_files(*approver_files())

    def activate(self, changes: Changes) -> None:
        """Start the approver once the cluster exists, and restart it after a change."""
        systemd.daemon_reload(name="Reload systemd for the approver", _if=changed(changes))
        start_units({"Start the approver of nodes": UNIT}, runs=host.get_fact(Joined))
        systemd.service(name="Restart the approver of nodes", service=UNIT, restarted=True, _if=changed(changes))


def approver_files() -> Iterator[ManagedFile]:
    """Yield every file of the approver; none holds a secret."""
    yield ManagedFile("Write the rights of nodes and their approver", RIGHTS, file_text("approver/rights.yaml"))
    yield ManagedFile(f"Write {_PROGRAM}", _PROGRAM, file_text("approver/run"), "755")
    yield ManagedFile(f"Write {UNIT}", f"/etc/systemd/system/{UNIT}", file_text(f"approver/{UNIT}"))
