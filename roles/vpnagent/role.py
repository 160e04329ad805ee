"""The role `vpnagent`: the gateway agent `bedplate-vpn`, and the timer that writes its Prometheus metrics."""

from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import files, systemd

from roles.base import Changes, ManagedFile, Role, minute_timer, program_files, put_files, unit_files
from roles.system import install_packages

PROGRAM = "/usr/local/sbin/bedplate-vpn"
# The folder of prometheus-node-exporter's textfile collector on Debian.
METRICS = "/var/lib/prometheus/node-exporter"
METER = "bedplate-vpn-metrics"
TIMER = f"{METER}.timer"
SERVING = "bedplate-vpn-serving.service"


@dataclass(frozen=True, slots=True)
class VpnAgent(Role):
    """The agent of a gateway for laptops or tunnels; in the cloud it reports to the gateway's alarm."""

    in_cloud: bool = False
    name: ClassVar[str] = "vpnagent"

    def install(self) -> None:
        """Install the programs that the agent runs."""
        install_packages("Install packages of the gateway agent", ("openssl", "python3"))

    def configure(self) -> Changes:
        """Write the agent and its units."""
        files.directory(name="Create the folder of VPN metrics", path=METRICS, user="root", group="root", mode="755")
        return put_files(*agent_files(in_cloud=self.in_cloud))

    def activate(self, changes: Changes) -> None:
        """Start the timer."""
        del changes
        if self.in_cloud:
            systemd.service(name="Report to the gateway's alarm", service=SERVING, running=None, enabled=True)
        systemd.service(name="Start the timer of VPN metrics", service=TIMER, running=True, enabled=True)


def agent_files(*, in_cloud: bool) -> tuple[ManagedFile, ...]:
    """Return the agent and its units."""
    units = unit_files("vpnagent", f"{METER}.service", *((SERVING,) if in_cloud else ()))
    return (*program_files("gateway", PROGRAM), minute_timer(METER, "write VPN metrics for Prometheus"), *units)
