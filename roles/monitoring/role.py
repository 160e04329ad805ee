"""The role `monitoring`: the Prometheus node exporter, on the private address, and the collectors of its text metrics.

In a fleet with a hub, the exporter serves over TLS with a key that the machine makes itself.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.operations import files, systemd

from bedplate.plan.firewall import EXPORTER_PORT
from roles.base import (
    LIBRARY,
    UNITS,
    Changes,
    DiskSpace,
    ManagedFile,
    Role,
    changed,
    command_file,
    program_files,
    put_files,
    render,
)
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
_DROP_IN = f"{UNITS}/{SERVICE}.service.d/60-bedplate.conf"
KEYS = "/var/lib/bedplate/metrics"
MAKE_KEY = f"{LIBRARY}/metrics-key"
WEB = "/etc/bedplate/metrics.json"
"""The exporters' settings of TLS. Source: exporter-toolkit, docs/web-configuration.md."""
PROGRAM, UNIT = "/usr/local/sbin/bedplate-metrics", "bedplate-metrics.service"
_TLS: Mapping[str, str] = {
    "cert_file": f"{KEYS}/tls.crt",
    "key_file": f"{KEYS}/tls.key",
    "min_version": "TLS13",
}


@dataclass(frozen=True, slots=True)
class Monitoring(Role):
    """A node with an exporter; `address` is None if AWS assigns it.

    `is_observed`: the fleet's hub reads its metrics. `mounts` are asked whether they answer.
    """

    address: IPv4Address | None
    is_observed: bool = False
    has_gpus: bool = False
    mounts: tuple[str, ...] = ()
    name: ClassVar[str] = "monitoring"
    space: ClassVar[DiskSpace] = DiskSpace(programs=20, state=8)

    def install(self) -> None:
        """Install the exporter, which starts at once: it listens on loopback until `configure` sets the address."""
        if SERVICE not in host.get_fact(DebPackages):
            put_files(ManagedFile("Bind the exporter to loopback", f"/etc/default/{SERVICE}", _settings(LOOPBACK)))
        install_packages("Install the node exporter", (SERVICE, "openssl", "python3"))

    def configure(self) -> Changes:
        """Write the configuration, and create the folder for metrics of other programs."""
        files.directory(name="Create the folder for metrics", path=TEXTFILES, user="root", group="root", mode="755")
        settings = _settings(self.address or host.get_fact(PrivateAddress), WEB if self.is_observed else "")
        drop_in = render("monitoring/exporter.service.j2", make_key=MAKE_KEY if self.is_observed else "")
        return put_files(
            *(self._observed_files() if self.is_observed else ()),
            ManagedFile("Configure the exporter", f"/etc/default/{SERVICE}", settings),
            ManagedFile("Write a systemd drop-in for the exporter", _DROP_IN, drop_in),
        )

    def _observed_files(self) -> Iterator[ManagedFile]:
        yield command_file(MAKE_KEY, "monitoring/metrics-key")
        yield ManagedFile("Write the exporters' settings of TLS", WEB, json.dumps({"tls_server_config": _TLS}) + "\n")
        yield from program_files("metrics", PROGRAM)
        values = {"program": PROGRAM, "has_gpus": self.has_gpus, "mounts": self.mounts, "folder": TEXTFILES}
        unit = render("monitoring/bedplate-metrics.service.j2", **values)
        yield ManagedFile(f"Write {UNIT}", f"{UNITS}/{UNIT}", unit)

    def activate(self, changes: Changes) -> None:
        """Start the exporter and the collectors, and restart them after a change."""
        own = (f"/etc/default/{SERVICE}", _DROP_IN, *((WEB,) if self.is_observed else ()))
        start_units({"Start the exporter": f"{SERVICE}.service"})
        systemd.service(name="Restart the exporter", service=SERVICE, restarted=True, _if=changed(changes, *own))
        if self.is_observed:
            collectors = [path for path in changes if path not in own]
            start_units({"Start the collectors of metrics": UNIT})
            restart = changed(changes, *collectors)
            systemd.service(name="Restart the collectors of metrics", service=UNIT, restarted=True, _if=restart)


def _settings(address: IPv4Address, web: str = "") -> str:
    values = {"address": address, "port": EXPORTER_PORT, "folder": TEXTFILES, "web": web}
    return render("monitoring/exporter.conf.j2", **values)
