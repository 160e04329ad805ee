"""The role `monitoring`."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.operations import files, systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.nodes import EXPORTER_PORT
from roles.base import Changes, DiskSpace, Role
from roles.files import Shipped, rendered, ship, text_of
from roles.system import install, keep_running

NOBODY = IPv4Address("127.0.0.1")


class PrivateAddress(FactBase[IPv4Address]):
    """The address from which the node reaches others; loopback where it reaches nobody, never every address."""

    @staticmethod
    def default() -> IPv4Address:
        """Return loopback."""
        return NOBODY

    def command(self) -> str:
        """Ask for the way to an address of TEST-NET-1 (RFC 5737), which is nobody's: no packet is sent."""
        return "ip -4 -oneline route get 192.0.2.1 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> IPv4Address:
        """Take the word after `src`."""
        words = " ".join(output).split()
        return IPv4Address(words[words.index("src") + 1]) if "src" in words else NOBODY


SERVICE = "prometheus-node-exporter"
# Whoever has figures of his own writes a file `NAME.prom` here, whole, and root alone may.
TEXTFILES = "/var/lib/prometheus/node-exporter"


@dataclass(frozen=True, slots=True)
class Monitoring(Role):
    """A node that can be watched; `address` is None where AWS decides it."""

    address: IPv4Address | None
    name: ClassVar[str] = "monitoring"
    space: ClassVar[DiskSpace] = DiskSpace(programs=20, state=8)

    def install(self) -> None:
        """Install the exporter, which starts by itself: until its address is known it listens to its own machine."""
        if SERVICE not in host.get_fact(DebPackages):
            ship(Shipped("Exporter waits for its address", f"/etc/default/{SERVICE}", _settings(NOBODY)))
        install("Node exporter", (SERVICE,))

    def configure(self) -> Changes:
        """Write where it listens, and make the folder for others' figures."""
        files.directory(name="Folder for figures", path=TEXTFILES, user="root", group="root", mode="755")
        settings = _settings(self.address or host.get_fact(PrivateAddress))
        return ship(
            Shipped("Where the exporter listens", f"/etc/default/{SERVICE}", settings),
            Shipped("How the exporter runs", f"/etc/systemd/system/{SERVICE}.service.d/60-bedplate.conf", _UNIT),
        )

    def activate(self, changes: Changes) -> None:
        """Start it, and start it anew with other settings."""
        systemd.daemon_reload(name="Read how the exporter runs", _if=any_changed(*changes[1:]))
        keep_running({"Exporter runs": f"{SERVICE}.service"})
        systemd.service(name="Exporter reads its settings", service=SERVICE, restarted=True, _if=any_changed(*changes))


def _settings(address: IPv4Address) -> str:
    return rendered("monitoring/exporter.conf.j2", address=address, port=EXPORTER_PORT, folder=TEXTFILES)


_UNIT = text_of("monitoring/exporter.service")
