"""The role `vpnagent`: the gateway agent `bedplate-vpn`, and the timer that writes its Prometheus metrics."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyinfra.operations import files, systemd

import bedplate.programs.gateway
from roles.base import Changes, ManagedFile, Role, changed, file_text, put_files
from roles.system import install_packages

FOLDER = "/usr/local/lib/bedplate"
PROGRAM = "/usr/local/sbin/bedplate-vpn"
# The folder of prometheus-node-exporter's textfile collector on Debian.
METRICS = "/var/lib/prometheus/node-exporter"
TIMER = "bedplate-vpn-metrics.timer"
_UNITS = "/etc/systemd/system"


@dataclass(frozen=True, slots=True)
class VpnAgent(Role):
    """The agent of a gateway for laptops or tunnels."""

    name: ClassVar[str] = "vpnagent"

    def install(self) -> None:
        """Install the programs that the agent runs."""
        install_packages("Install packages of the gateway agent", ("openssl", "python3"))

    def configure(self) -> Changes:
        """Write the agent and its units."""
        files.directory(name="Create the folder of VPN metrics", path=METRICS, user="root", group="root", mode="755")
        return put_files(*agent_files())

    def activate(self, changes: Changes) -> None:
        """Start the timer."""
        systemd.daemon_reload(name="Reload systemd for the gateway agent", _if=changed(changes))
        systemd.service(name="Start the timer of VPN metrics", service=TIMER, running=True, enabled=True)


def agent_files() -> Iterator[ManagedFile]:
    """Yield the agent and its units."""
    yield ManagedFile(f"Write {PROGRAM}", PROGRAM, file_text("vpnagent/bedplate-vpn"), "755")
    for file in sorted(Path(bedplate.programs.gateway.__file__).parent.glob("*.py")):
        yield ManagedFile(
            f"Write the gateway agent: {file.stem}", f"{FOLDER}/vpnagent/{file.name}", file.read_text(encoding="utf-8")
        )
    for unit in (TIMER, TIMER.replace(".timer", ".service")):
        yield ManagedFile(f"Write {unit}", f"{_UNITS}/{unit}", file_text(f"vpnagent/{unit}"))
