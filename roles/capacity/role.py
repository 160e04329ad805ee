"""The role `capacity`: the capacity controller runs on each member of the control plane, and one of them acts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bedplate.plan.capacity import CapacityPlan, capacity_document
from roles.base import Changes, ManagedFile, Role
from roles.control.role import controller_files, start_controller

UNIT, _ABOUT = "bedplate-capacity.service", "capacity controller"
PLAN = "/etc/bedplate/capacity.json"
METRICS = "/var/lib/prometheus/node-exporter/bedplate-capacity.prom"
_COMMAND = f"bedplate.machine.capacity --plan {PLAN} --etcd-cluster /var/lib/etcd/cluster --metrics {METRICS}"


@dataclass(frozen=True, slots=True)
class Capacity(Role):
    """A member with the controller."""

    plan: CapacityPlan
    name: ClassVar[str] = "capacity"

    def install(self) -> None:
        """Install nothing: the controller is part of the node bundle."""

    def files(self) -> Iterator[ManagedFile]:
        """Yield every file of the controller; none holds a secret."""
        yield ManagedFile("Write the plan of capacity", PLAN, capacity_document(self.plan))
        yield from controller_files("capacity", _ABOUT, _COMMAND, memory="1G", writes=f"-{METRICS.rpartition('/')[0]}")

    def activate(self, changes: Changes) -> None:
        """Start the controller."""
        start_controller(self.name, _ABOUT, changes)
