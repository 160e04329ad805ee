"""The role `capacity`: the controller of capacity runs on each member of the control plane, and one of them acts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.operations import systemd

from bedplate.plan.capacity import CapacityPlan, capacity_document
from roles.base import Changes, ManagedFile, Role, changed, file_text, put_files
from roles.system import Joined, start_units

UNIT = "bedplate-capacity.service"
PLAN, RIGHTS = "/etc/bedplate/capacity.json", "/etc/bedplate/capacity-rights.yaml"
METRICS = "/var/lib/prometheus/node-exporter/bedplate-capacity.prom"
_PROGRAM = "/usr/local/lib/bedplate/capacity"


@dataclass(frozen=True, slots=True)
class Capacity(Role):
    """A member with the controller."""

    plan: CapacityPlan
    name: ClassVar[str] = "capacity"

    def install(self) -> None:
        """Install nothing: the controller is part of the node bundle."""

    def configure(self) -> Changes:
        """Write the plan, the rights in the cluster, and the unit."""
        return put_files(*capacity_files(self.plan))

    def activate(self, changes: Changes) -> None:
        """Start the controller once the cluster exists, and restart it after a change."""
        systemd.daemon_reload(name="Reload systemd for the controller of capacity", _if=changed(changes))
        start_units({"Start the controller of capacity": UNIT}, runs=host.get_fact(Joined))
        systemd.service(name="Restart the controller of capacity", service=UNIT, restarted=True, _if=changed(changes))


def capacity_files(plan: CapacityPlan) -> Iterator[ManagedFile]:
    """Yield every file of the controller; none holds a secret."""
    yield ManagedFile("Write the plan of capacity", PLAN, capacity_document(plan))
    yield ManagedFile("Write the controller's rights in the cluster", RIGHTS, file_text("capacity/rights.yaml"))
    yield ManagedFile(f"Write {_PROGRAM}", _PROGRAM, file_text("capacity/run"), "755")
    yield ManagedFile(f"Write {UNIT}", f"/etc/systemd/system/{UNIT}", file_text(f"capacity/{UNIT}"))
