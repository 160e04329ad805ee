"""The role `monitoring`: the Prometheus node exporter, on the private address."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.operations import files, systemd

from bedplate.plan.nodes import EXPORTER_PORT
from roles.base import Changes, DiskSpace, ManagedFile, Role, changed, file_text, put_files, render
from roles.system import install_packages, start_units

LOOPBACK = IPv4Address("127.0.0.1")


class PrivateAddress(FactBase[IPv4Address]):
    """The source address of the node's default route; loopback without a route, never the wildcard address."""

    @staticmethod
    def default() -> IPv4Address:
        """Return loopback."""
        return LOOPBACK

    def command(self) -> str:
        """Ask for the route to an address of TEST-NET-1 (RFC 5737); no packet is sent."""
        return "ip -4 -oneline route get 192.0.2.1 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> IPv4Address:
        """Return the word after `src`."""
        words = " ".join(output).split()
        return IPv4Address(words[words.index("src") + 1]) if "src" in words else LOOPBACK


SERVICE = "prometheus-node-exporter"
# Other programs write metrics here as `NAME.prom`, atomically and as root.
TEXTFILES = "/var/lib/prometheus/node-exporter"
_DROP_IN = f"/etc/systemd/system/{SERVICE}.service.d/60-bedplate.conf"


@dataclass(frozen=True, slots=True)
class Monitoring(Role):
    """A node with an exporter; `address` is None if AWS assigns it."""

    address: IPv4Address | None
    name: ClassVar[str] = "monitoring"
    space: ClassVar[DiskSpace] = DiskSpace(programs=20, state=8)

    def install(self) -> None:
        """Install the exporter, which starts at once: it listens on loopback until `configure` sets the address."""
        if SERVICE not in host.get_fact(DebPackages):
            put_files(ManagedFile("Bind the exporter to loopback", f"/etc/default/{SERVICE}", _settings(LOOPBACK)))
        install_packages("Install the node exporter", (SERVICE,))

    def configure(self) -> Changes:
        """Write the configuration, and create the folder for metrics of other programs."""
        files.directory(name="Create the folder for metrics", path=TEXTFILES, user="root", group="root", mode="755")
        settings = _settings(self.address or host.get_fact(PrivateAddress))
        return put_files(
            ManagedFile("Configure the exporter", f"/etc/default/{SERVICE}", settings),
            ManagedFile("Write a systemd drop-in for the exporter", _DROP_IN, _UNIT),
        )

    def activate(self, changes: Changes) -> None:
        """Start the exporter, and restart it after a change."""
        start_units({"Start the exporter": f"{SERVICE}.service"})
        systemd.service(name="Restart the exporter", service=SERVICE, restarted=True, _if=changed(changes))


def _settings(address: IPv4Address) -> str:
    return render("monitoring/exporter.conf.j2", address=address, port=EXPORTER_PORT, folder=TEXTFILES)


_UNIT = file_text("monitoring/exporter.service")
