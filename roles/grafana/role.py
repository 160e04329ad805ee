"""The role `grafana`: Grafana on the hub, on a unix socket behind nginx, with provisioned dashboards only.

It is installed if apt knows the package, from a repository or mirror that the machine has: the distribution has none.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyinfra.context import host
from pyinfra.operations import systemd

from bedplate.plan.hub import GRAFANA_UID, PROMETHEUS_PORT
from roles.base import UNITS, Changes, DiskSpace, ManagedFile, Role, changed, file_text, put_files
from roles.system import BoolFact, create_daemon_account, install_packages, start_units

PACKAGE, SERVICE, USER = "grafana", "grafana-server.service", "grafana"
DASHBOARDS = "/etc/bedplate/grafana/dashboards"
_PROVISIONING = "/etc/grafana/provisioning"
SOURCE = "prometheus"
"""The uid of Prometheus in dashboards."""


class Available(BoolFact):
    """Whether apt has the package, installed or not."""

    def command(self) -> str:
        """Ask apt."""
        return f"apt-cache show --no-all-versions {PACKAGE} 2>/dev/null | grep '^Package: {PACKAGE}$' || true"


@dataclass(frozen=True, slots=True)
class Grafana(Role):
    """A hub with Grafana, if its package can be installed."""

    name: ClassVar[str] = "grafana"
    space: ClassVar[DiskSpace] = DiskSpace(programs=900, state=150, temporary=8)

    def install(self) -> None:
        """Install Grafana; its account has the id that the packet filter names."""
        create_daemon_account("Create the account of Grafana", USER, GRAFANA_UID)
        if host.get_fact(Available):
            put_files(*self.files())
            install_packages("Install Grafana", (PACKAGE,))
        else:
            host.log("no Grafana: apt has no package `grafana`; add its repository, then apply again")

    def files(self) -> Iterator[ManagedFile]:
        """Yield the settings, and the provisioned data source and dashboards."""
        yield ManagedFile("Configure Grafana", "/etc/grafana/grafana.ini", file_text("grafana/grafana.ini"))
        drop_in = f"{UNITS}/{SERVICE}.d/60-bedplate.conf"
        yield ManagedFile("Limit Grafana", drop_in, file_text("grafana/grafana.service"))
        for kind, key, entry in (("datasources", "datasources", _SOURCE), ("dashboards", "providers", _PROVIDER)):
            text = json.dumps({"apiVersion": 1, key: [entry]}, indent=1) + "\n"
            yield ManagedFile(f"Provision {kind}", f"{_PROVISIONING}/{kind}/bedplate.yaml", text)
        for path in sorted((Path(__file__).parent / "dashboards").glob("*.json")):
            text = path.read_text(encoding="utf-8")
            yield ManagedFile(f"Write the dashboard {path.stem}", f"{DASHBOARDS}/{path.name}", text)

    def activate(self, changes: Changes) -> None:
        """Start Grafana where it is installed, and restart it after a change."""
        if host.get_fact(Available):
            start_units({"Show dashboards": SERVICE})
            systemd.service(name="Restart Grafana", service=SERVICE, restarted=True, _if=changed(changes))


_SOURCE: dict[str, Any] = {
    "name": "Prometheus",
    "uid": SOURCE,
    "type": "prometheus",
    "access": "proxy",
    "url": f"http://127.0.0.1:{PROMETHEUS_PORT}",
    "isDefault": True,
    "editable": False,
    "jsonData": {"httpMethod": "POST", "timeInterval": "15s"},
}
_PROVIDER: dict[str, Any] = {
    "name": "bedplate",
    "type": "file",
    "disableDeletion": True,
    "allowUiUpdates": False,
    "options": {"path": DASHBOARDS},
}
