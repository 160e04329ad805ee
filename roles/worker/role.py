"""The role `worker`: the worker agent, and its units. A machine of a site joins by `bedplate kube join`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import systemd

from bedplate.nodes.bootstrap import PROGRAM as BOOTSTRAP
from bedplate.plan.cluster import ClusterNode
from roles.base import Changes, ManagedFile, Role, changed, program_files, unit_files
from roles.system import install_packages, start_units

AGENT = "/usr/local/sbin/bedplate-worker"
SETTINGS = "/etc/bedplate/worker.json"
JOIN, WATCH = "bedplate-join.service", "bedplate-worker.service"


@dataclass(frozen=True, slots=True)
class Worker(Role):
    """A worker of the cluster; `cloud`: it joins by its instance role."""

    node: ClusterNode
    cloud: bool
    name: ClassVar[str] = "worker"

    def install(self) -> None:
        """Install the programs that the agent runs."""
        install_packages("Install packages of the worker agent", ("openssl", "python3"))

    def files(self) -> Iterator[ManagedFile]:
        """Yield every file of the agent; none holds a secret."""
        yield from program_files("worker", AGENT)
        settings = {
            "server": f"https://{self.node.cluster.endpoint}",
            "cloud": self.cloud,
            "drain": self.node.drain,
            "bootstrap": BOOTSTRAP,
        }
        yield ManagedFile("Write the settings of the worker agent", SETTINGS, json.dumps(settings, indent=1) + "\n")
        yield from unit_files("worker", *((JOIN, WATCH) if self.cloud else (WATCH,)))

    def activate(self, changes: Changes) -> None:
        """Join in the background, and start the agent anew after a change."""
        if self.cloud:
            start_units({"Join the cluster": JOIN})
        systemd.service(name="Enable the worker agent at boot", service=WATCH, running=None, enabled=True)
        systemd.service(name="Restart the worker agent", service=WATCH, restarted=True, _if=changed(changes))
