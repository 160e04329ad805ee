"""The role `worker`: the worker agent, and its units. A machine of a site joins by `bedplate kube join`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyinfra.operations import systemd

import bedplate.programs.worker
from bedplate.nodes.bootstrap import PROGRAM as BOOTSTRAP
from bedplate.plan.cluster import ClusterNode
from roles.base import Changes, ManagedFile, Role, changed, file_text, put_files
from roles.system import install_packages, start_units

AGENT = "/usr/local/sbin/bedplate-worker"
SETTINGS = "/etc/bedplate/worker.json"
JOIN, WATCH = "bedplate-join.service", "bedplate-worker.service"
_FOLDER = "/usr/local/lib/bedplate/worker"


@dataclass(frozen=True, slots=True)
class Worker(Role):
    """A worker of the cluster; `cloud`: it joins by its instance role."""

    node: ClusterNode
    cloud: bool
    name: ClassVar[str] = "worker"

    def install(self) -> None:
        """Install the programs that the agent runs."""
        install_packages("Install packages of the worker agent", ("openssl", "python3"))

    def configure(self) -> Changes:
        """Write the agent, its units and its settings."""
        return put_files(*worker_files(self.node, cloud=self.cloud))

    def activate(self, changes: Changes) -> None:
        """Join in the background, and start the agent anew after a change."""
        systemd.daemon_reload(name="Reload systemd for the worker agent", _if=changed(changes))
        if self.cloud:
            start_units({"Join the cluster": JOIN})
        systemd.service(name="Enable the worker agent at boot", service=WATCH, running=None, enabled=True)
        systemd.service(name="Restart the worker agent", service=WATCH, restarted=True, _if=changed(changes))


def worker_files(node: ClusterNode, *, cloud: bool) -> Iterator[ManagedFile]:
    """Yield every file of the agent; none holds a secret."""
    yield ManagedFile(f"Write {AGENT}", AGENT, file_text("worker/bedplate-worker"), "755")
    for file in sorted(Path(bedplate.programs.worker.__file__).parent.glob("*.py")):
        yield ManagedFile(
            f"Write the worker agent: {file.stem}", f"{_FOLDER}/{file.name}", file.read_text(encoding="utf-8")
        )
    settings = {
        "server": f"https://{node.cluster.endpoint}",
        "cloud": cloud,
        "drain": node.drain,
        "bootstrap": BOOTSTRAP,
    }
    yield ManagedFile("Write the settings of the worker agent", SETTINGS, json.dumps(settings, indent=1) + "\n")
    for unit in (JOIN, WATCH) if cloud else (WATCH,):
        yield ManagedFile(f"Write {unit}", f"/etc/systemd/system/{unit}", file_text(f"worker/{unit}"))
