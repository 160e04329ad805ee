"""`bedplate-worker join|watch|stop`: the worker agent.

join: request a certificate; the token of a machine of a site is the first line of stdin.
watch: report the gate, and leave when AWS announces the end of the machine.
stop: leave, if the system is shutting down.
"""

import json
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..program import ProgramError, output
from .gate import PENDING, Gate, read_gate
from .join import join
from .leaving import Shutdown, answer_hook, cordon, decide, drain, read_notices, uncordon_self
from .machine import ROOT, Metadata, Settings, kubectl, node_name, read_settings

_GATE = "bedplate/gate"
_APPLY_STATUS = (
    *("apply", "--server-side", "--force-conflicts", "--field-manager=bedplate-gate", "--subresource=status"),
    *("--validate=false", "--filename=-"),
)
PAUSE, _RETRY = 0.5, 5.0
_UNITS = ("kubelet.service", "bedplate-worker.service")


def log(line: str) -> None:
    """Write a line to the journal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass
class Agent:
    """The agent of a machine; it repeats what failed."""

    settings: Settings
    node: str
    root: Path = ROOT
    has_returned: bool = False
    # Kubernetes deletes the pods of a missing Node after 40 s: two looks and a start of kubelet take less.
    period: float = 15.0
    """Seconds between two looks at the Node, if the gate has not changed."""
    gate: Gate | None = None
    """The gate at the last look."""
    shutdown: Shutdown | None = None
    has_answered: bool = False
    _retry: float = 0.0
    _next_look: float = 0.0
    _is_missing: bool = False
    _metadata: Metadata | None = field(default=None)

    def __post_init__(self) -> None:
        self._metadata = Metadata(self.settings.metadata) if self.settings.cloud else None
        self.kubectl = partial(kubectl, root=self.root)

    def step(self) -> None:
        """Look once, and do what is due."""
        if self._metadata and not self.has_answered:
            self._leave(decide(read_notices(self._metadata), self.settings.drain, time.time()))
        if time.monotonic() >= self._retry:
            try:
                self._report()
            except ProgramError as error:
                self._retry = time.monotonic() + _RETRY
                log(str(error))

    def _leave(self, shutdown: Shutdown | None) -> None:
        if shutdown is None or shutdown == self.shutdown:
            return
        log(shutdown.reason)
        if shutdown.seconds is None:
            try:
                cordon(self.node, shutdown.reason, self.kubectl)
                self.shutdown = shutdown
            except ProgramError as error:
                log(str(error))
            return
        is_empty = drain(self.node, shutdown, log, self.kubectl)
        log("drained" if is_empty else "the time is over: kubelet ends the remaining pods")
        try:
            answer_hook(self.settings)
        except ProgramError as error:
            log(str(error))
        else:
            self.has_answered = True

    def _report(self) -> None:
        """Write the gate of this boot to the Node, and register a machine whose Node was deleted. Raises ProgramError.

        The Node is read, never remembered: a person or an older snapshot of the cluster may have changed it.
        """
        gate = read_gate(self.root)
        if gate == self.gate and time.monotonic() < self._next_look:
            return
        text = self.kubectl("get", "node", self.node, "--ignore-not-found", "--output=json")
        has_changed = gate != self.gate
        self.gate, self._next_look = gate, time.monotonic() + self.period
        if not text.strip():
            self._register()
            return
        self._is_missing = False
        annotations = json.loads(text)["metadata"].get("annotations", {})
        if annotations.get(_GATE) != gate.report or has_changed:
            # A node may write its status by `apply`: for `patch` kubectl reads it first, which nodes may not.
            self.kubectl(*_APPLY_STATUS, text=json.dumps(gate.status(self.node, time.time())))
            self.kubectl("annotate", "node", self.node, f"{_GATE}={gate.report}", "--overwrite")
            log(f"gate {gate.report}")
        # Until the gate of this boot has ended, the node takes no pods.
        if not self.has_returned and gate.report != PENDING:
            if uncordon_self(self.node, self.kubectl):
                log("uncordoned")
            self.has_returned = True

    def _register(self) -> None:
        """Restart kubelet if the Node is missing at two looks: kubelet registers at its start only."""
        if self._is_missing and not self.has_answered:
            log("the cluster has no Node of this machine: restart kubelet, which registers it")
            output("systemctl", "restart", "kubelet.service")
        self._is_missing = not self._is_missing


def watch(settings: Settings) -> None:
    """Run until the machine ends."""
    agent = Agent(settings, node_name())
    while True:
        agent.step()
        time.sleep(PAUSE)


def stop(settings: Settings) -> None:
    """Leave if the system is shutting down: kubelet ends the pods at the same time, in their grace period."""
    try:
        output("systemctl", "is-system-running")
    except ProgramError as error:
        if str(error).endswith("stopping"):
            drain(node_name(), Shutdown("this machine shuts down", settings.drain), log)


def main(command: str) -> int:
    """Run a command; return the exit status."""
    try:
        settings = read_settings()
        if command == "watch":
            watch(settings)
        elif command == "stop":
            stop(settings)
        else:
            is_new = join(settings, "" if settings.cloud else sys.stdin.readline().strip())
            log("joined the cluster" if is_new else "is in the cluster already")
            if is_new:
                output("systemctl", "restart", "--no-block", *_UNITS)
    except ProgramError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["join"], ["watch"], ["stop"]):
        sys.exit("usage: bedplate-worker join|watch|stop")
    sys.exit(main(sys.argv[1]))
