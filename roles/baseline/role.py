"""The role `baseline`."""

from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.facts.server import Hostname, LinuxName
from pyinfra.operations import server, systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.node import Duty, NodePlan
from roles.base import Changes, DiskSpace, Role
from roles.baseline.clock import clock_file, keep_time
from roles.baseline.first_boot import keep_names
from roles.baseline.greeting import greeting
from roles.baseline.hosts import hosts
from roles.baseline.kernel import AT_WORK, EVERYWHERE, Setting, kernel_file, set_kernel
from roles.baseline.limits import JOURNAL, JOURNALD, LIMITS, MANAGER
from roles.baseline.locale import speak
from roles.baseline.network import NETWORKD, restart_networkd
from roles.baseline.sources import sign_sources
from roles.baseline.swap import swap_off, without_swap_at_boot
from roles.baseline.upgrades import upgrades
from roles.packages import install
from roles.shipped import Shipped, ship

PACKAGES = ("ca-certificates", "chrony", "locales", "needrestart", "unattended-upgrades")


@dataclass(frozen=True, slots=True)
class Baseline(Role):
    """The ground of every node."""

    node: NodePlan
    name: ClassVar[str] = "baseline"
    space: ClassVar[DiskSpace] = DiskSpace(programs=130, state=140)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The kernel's settings: more where people's work runs."""
        works = self.node.duties & {Duty.WORKBENCH, Duty.WORKER}
        return (*EVERYWHERE, *AT_WORK) if works else EVERYWHERE

    @property
    def _own_name(self) -> str:
        """The host name: what EC2 gave to a worker, once it has it, is longer than the plan's."""
        told: str = host.get_fact(Hostname) if self.node.is_named_by_ec2 else ""
        return told if told.startswith(f"{self.node.host}.") else self.node.host

    def install(self) -> None:
        """Install what keeps time and upgrades; whom packages are taken from, and who restarts, is settled before."""
        sign_sources()
        ship(*upgrades())
        install("Packages of every node", PACKAGES)

    def configure(self) -> Changes:
        """Write what the node is called, its clock, its limits; return the settings that daemons have read before."""
        speak()
        keep_names()
        without_swap_at_boot()
        ship(hosts(self.node, self._own_name), *greeting(self.node), LIMITS)
        if not self.node.is_named_by_ec2:
            ship(Shipped("Host name of the next boot", "/etc/hostname", f"{self.node.host}\n"))
        clock = clock_file(self.node.ground, host.get_fact(LinuxName))
        return ship(clock, JOURNAL, kernel_file(self.settings), MANAGER, NETWORKD)

    def activate(self, changes: Changes) -> None:
        """Take the name at once, and let daemons read what has changed."""
        if not self.node.is_named_by_ec2:
            server.hostname(name="Host name", hostname=self.node.host)
        clock, journal, settings, manager, network = (changes[at : at + 1] for at in range(5))
        keep_time(clock)
        systemd.service(name="Journal takes its limits", service=JOURNALD, restarted=True, _if=any_changed(*journal))
        set_kernel(self.settings, settings)
        systemd.daemon_reload(name="Services take their limits", _if=any_changed(*manager))
        restart_networkd(network)
        swap_off()
