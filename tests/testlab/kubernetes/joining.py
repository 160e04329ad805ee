"""The approver on a real API server, with machines that a test declares instead of AWS, and a joining machine."""

import json
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import cast

from bedplate.kubernetes.approval import Inventory, KnownMachine
from bedplate.kubernetes.approver import LEASE, Approver
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.lease import Leadership
from bedplate.machine.approver import Cloud, Rounds
from bedplate.programs.worker.join import join
from bedplate.programs.worker.machine import Settings
from roles.base import file_text
from tests.testlab.kubernetes.control_plane import Api, wait_until

REGIONS = frozenset({"us-west-2", "us-east-1"})
_USER = "bedplate:approver"
# As the bootstrap script: the machine publishes its key, and reads the token.
BOOTSTRAP_DOUBLE = """#!/bin/sh
case $1 in
  put_status) cp {root}/var/lib/bedplate/status/join.json {root}/published.json ;;
  print_join_token) cat {root}/token ;;
  report_drained) touch {root}/drained ;;
esac
"""


@dataclass
class Approvers:
    """Approvers that run as threads; `machines` are those that AWS and the plan would report."""

    plane: Api
    machines: dict[str, KnownMachine] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    folder: dict[str, Path] = field(default_factory=dict)
    """The root of each joining machine, in which its published key is read."""
    active: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.plane.kubectl("apply", "--server-side", "-f", "-", text=file_text("approver/rights.yaml"))
        self.approver = Approver(ClusterClient(self.plane.client(_USER)), self.log.append)
        self.ahead = 0.0
        self.missing: set[str] = set()

    def inventory(self, _now: float = 0.0, _requested: Collection[str] = ()) -> Inventory:
        """Return the machines, with the keys that they have published."""
        machines = {}
        for name, machine in self.machines.items():
            published = self.folder.get(name, Path()) / "published.json"
            key = json.loads(published.read_text())["key"] if machine.instance and published.exists() else None
            machines[name] = replace(machine, key=machine.key or key)
        return Inventory(machines, REGIONS)

    @contextmanager
    def running(self, *identities: str) -> Iterator[None]:
        """Run an approver for each identity; one of them acts."""
        done = threading.Event()
        threads = [threading.Thread(target=self._run, args=(name, done), daemon=True) for name in identities]
        for thread in threads:
            thread.start()
        try:
            # On a busy machine the first one takes longer than a machine waits in tests.
            assert wait_until(lambda: self.active, 60), self.log
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join()

    def _run(self, identity: str, done: threading.Event) -> None:
        client = ClusterClient(self.plane.client(_USER))
        approver, leadership = Approver(client, self.log.append), Leadership(client, identity, name=LEASE)
        approver.start()
        # The tests make the tokens themselves.
        rounds = Rounds(approver, cast("Cloud", self), leadership, _token_due=inf)
        while not done.wait(0.1):
            rounds.run(monotonic() + self.ahead)
            if leadership.holder == identity:
                self.active.add(identity)
                self.missing |= set(approver.absences)
        leadership.release()
        approver.stop()


@dataclass
class JoiningMachine:
    """A machine with the agent's settings and kubelet's name, in a folder."""

    root: Path
    plane: Api
    name: str
    cloud: bool = True

    def __post_init__(self) -> None:
        for folder in ("run/bedplate", "etc/kubernetes/pki", "etc/bedplate"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "run/bedplate/kubelet.env").write_text(f"KUBELET_ARGS=--hostname-override={self.name} --x=y\n")
        (self.root / "etc/kubernetes/pki/ca.crt").write_bytes(self.plane.authority.certificate.read_bytes())
        script = self.root / "bootstrap"
        script.write_text(BOOTSTRAP_DOUBLE.format(root=self.root))
        script.chmod(0o755)

    @property
    def settings(self) -> Settings:
        """The settings that the role would write."""
        return Settings(self.plane.server, self.cloud, 30, str(self.root / "bootstrap"))

    def join(self, token: str) -> bool:
        """Join with a token; ProgramError if the cluster refuses."""
        (self.root / "token").write_text(f"{token}\n")
        return join(self.settings, "" if self.cloud else token, self.root)
