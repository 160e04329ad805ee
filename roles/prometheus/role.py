"""The role `prometheus`: Prometheus and Alertmanager on the hub, on loopback, with their data on its volume.

The packet filter admits to their ports nginx, Grafana, each other and root only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.operations import files, systemd

from bedplate.monitoring import alerts, layer
from bedplate.monitoring.settings import alertmanager_settings, prometheus_settings, rules_text
from bedplate.monitoring.targets import TARGETS, watch_files
from bedplate.plan.hub import ALERTMANAGER_PORT, HUB_FOLDER, METRICS_UID, PROMETHEUS_PORT, HubPlan
from roles.base import UNITS, Changes, DiskSpace, ManagedFile, Role, changed, put_files, render
from roles.system import create_daemon_account, install_packages, start_units

PROMETHEUS, ALERTMANAGER = "prometheus", "prometheus-alertmanager"
FOLDER, DATA, USER = "/etc/bedplate/prometheus", f"{HUB_FOLDER}/metrics", "bedplate-metrics"
TOKEN = f"{HUB_FOLDER}/keys/remote-write"
# The share of the hub's disk for metrics, and their GB where the plan does not know the disk.
_SHARE, _GB_AT_SITES = 0.2, 20
# A query of a person has at most these samples, of 16 bytes, and ends after this time.
QUERY_LIMITS = ("--query.max-samples=20000000", "--query.timeout=30s", "--query.max-concurrency=8")


@dataclass(frozen=True, slots=True)
class Prometheus(Role):
    """The metrics and alerts of a fleet, on the machine of this hub."""

    fleet: str
    hub: HubPlan
    name: ClassVar[str] = "prometheus"
    space: ClassVar[DiskSpace] = DiskSpace(programs=290, state=2, temporary=8)

    def install(self) -> None:
        """Install both daemons, which the packages start at once: on loopback, as settings that exist say."""
        create_daemon_account("Create the account of metrics", USER, METRICS_UID)
        if PROMETHEUS not in host.get_fact(DebPackages):
            put_files(*self._arguments())
        install_packages("Install Prometheus and Alertmanager", (PROMETHEUS, ALERTMANAGER))

    def _arguments(self) -> Iterator[ManagedFile]:
        gigabytes = max(1, round(self.hub.disk * _SHARE * 1.073741824)) if self.hub.disk else _GB_AT_SITES
        words = {
            PROMETHEUS: (
                f"--config.file={FOLDER}/prometheus.json",
                f"--storage.tsdb.path={DATA}/prometheus",
                f"--storage.tsdb.retention.time={self.hub.keep}",
                f"--storage.tsdb.retention.size={gigabytes}GB",
                f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}",
                *QUERY_LIMITS,
            ),
            ALERTMANAGER: (
                f"--config.file={FOLDER}/alertmanager.json",
                f"--storage.path={DATA}/alertmanager",
                f"--web.listen-address=127.0.0.1:{ALERTMANAGER_PORT}",
                # One machine: no gossip, and no port for it.
                "--cluster.listen-address=",
            ),
        }
        for service, arguments in words.items():
            text = f'# Written by bedplate; changes by hand are reverted.\nARGS="{" ".join(arguments)}"\n'
            yield ManagedFile(f"Write the arguments of {service}", f"/etc/default/{service}", text)

    def files(self) -> Iterator[ManagedFile]:
        """Yield arguments, settings, limits, and at a site the targets, which a program writes in a region."""
        yield from self._arguments()
        remote_write = self.hub.remote_write
        settings = prometheus_settings(self.fleet, self.hub.node, FOLDER, TARGETS, remote_write)
        yield ManagedFile("Configure Prometheus", f"{FOLDER}/prometheus.json", settings)
        for name, groups in (("layer", layer.groups()), ("alerts", alerts.groups())):
            yield ManagedFile(f"Write rules: {name}", f"{FOLDER}/rules/{name}.json", rules_text(groups))
        yield ManagedFile("Configure Alertmanager", f"{FOLDER}/alertmanager.json", alertmanager_settings())
        for service, memory, credential in (
            (PROMETHEUS, "70%", TOKEN if remote_write else ""),
            (ALERTMANAGER, "10%", ""),
        ):
            limits = render("prometheus/daemon.conf.j2", user=USER, folder=DATA, memory=memory, credential=credential)
            yield ManagedFile(f"Limit {service}", f"{UNITS}/{service}.service.d/60-bedplate.conf", limits)
        if not self.hub.region:
            for path, text in watch_files(self.hub.published, self.hub.watched).items():
                yield ManagedFile(f"Write {path}", path, text)

    def configure(self) -> Changes:
        """Write the files, and create the folder of targets."""
        files.directory(name="Create the folder of targets", path=TARGETS, user="root", group="root", mode="755")
        return put_files(*self.files())

    def activate(self, changes: Changes) -> None:
        """Start both, restart one whose arguments or limits have changed, and let it read changed settings."""
        start_units({"Keep metrics": f"{PROMETHEUS}.service", "Send alerts": f"{ALERTMANAGER}.service"})
        for service in (PROMETHEUS, ALERTMANAGER):
            own = (f"/etc/default/{service}", f"{UNITS}/{service}.service.d/60-bedplate.conf")
            restarts = changed(changes, *own)
            systemd.service(name=f"Restart {service}", service=service, restarted=True, _if=restarts)
            reads = changed(changes, *(path for path in changes if path.startswith(FOLDER)))
            # The signal ends a daemon that has just started, and has read its settings.
            conditions = [reads, _negated(restarts)]
            systemd.service(name=f"Reload {service}", service=service, reloaded=True, _if=conditions)


def _negated(condition: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: not condition()
