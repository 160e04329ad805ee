"""The programs that a configuration run calls on its machine: steps of the bootstrap, the gate, roles and audit."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from time import monotonic, sleep
from typing import Any

from bedplate.machine.state import State
from bedplate.nodes.apply import ApplyRequest, Event, NodeResult, Target, run_apply
from bedplate.nodes.audit import AuditRequest, run_audit
from bedplate.nodes.bootstrap import OWN_RUN, PROGRAM
from bedplate.plan.nodes import NodePlan
from bedplate.programs.program import run
from bedplate.report.compliance import compliance_document
from bedplate.report.nodes import event_line
from roles.baseline.apt import stale_services
from roles.catalog import roles_of
from roles.gate.role import PROGRAM as GATE
from roles.gate.role import Gate

# Programs that roles start must not find the packages of the bundle.
_SHELL = ("env", "--unset=PYTHONPATH", "sh", "-c")
_PROBE = (sys.executable, "-m", "bedplate.programs.probe")
_HEARTBEAT = 60.0
# An operator's apply may install packages.
_LOCK_SECONDS, _LOCK_PAUSE = 1800.0, 15.0
# A clock takes a moment to synchronise.
_GATE_ATTEMPTS, _GATE_PAUSE = 6, 10.0
# Each program of the gate has its own limit, DCGM five minutes; nvidia-smi may hang in two checks, and twice in each.
_GATE_SECONDS = 900.0


def run_step(name: str, **environment: str) -> bool:
    """Run a step of the bootstrap, such as `report_ready`; return whether it succeeded."""
    return subprocess.run((PROGRAM, name), env={**os.environ, **environment}, check=False).returncode == 0  # noqa: S603


def reboot() -> None:
    """Reboot this machine; its timer continues after the boot."""
    subprocess.run(("systemctl", "reboot"), check=False)  # noqa: S607  on the path of root


def reboot_and_run() -> None:
    """Reboot this machine; its service starts with the boot: the timer would wait for minutes."""
    subprocess.run(("systemctl", "enable", "--quiet", "bedplate-node.service"), check=False)  # noqa: S607
    reboot()


def find_stale_services() -> tuple[str, ...]:
    """Return the services that run a program or library that an upgrade has replaced."""
    try:
        done = subprocess.run(("needrestart", "-b", "-l"), capture_output=True, text=True, check=False)  # noqa: S607
    except FileNotFoundError:
        return ()
    return stale_services(done.stdout)


@contextmanager
def heartbeats() -> Iterator[None]:
    """Keep the lifecycle hook waiting while the block runs."""
    done = Flag()

    def beat() -> None:
        while not done.wait(_HEARTBEAT):
            run_step("heartbeat")

    Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def print_line(event: Event) -> None:
    """Print the progress line of an event."""
    if line := event_line(event):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def apply_roles(
    node: NodePlan,
    only: frozenset[str] | None,
    *,
    check: bool = False,
    stages: frozenset[str] | None = None,
    report: Callable[[Event], None] = print_line,
) -> NodeResult:
    """Apply roles to this machine, or only look for changes. Waits while an operator applies."""
    request = ApplyRequest((Target(node, _SHELL, _PROBE),), OWN_RUN, check=check, only=only, stages=stages)
    deadline = monotonic() + _LOCK_SECONDS
    while (result := _apply(request, report)).is_held and monotonic() < deadline:
        sleep(_LOCK_PAUSE)
    return result


def _apply(request: ApplyRequest, report: Callable[[Event], None]) -> NodeResult:
    result = NodeResult(request.targets[0].node.name)
    with run_apply(request) as process:
        for event in process.events():
            result.take(event)
            report(event)
    return result


def check_machine(state: State, node: NodePlan, *, is_new: bool) -> Mapping[str, Any] | None:
    """Run the gate on a machine that has one, and write its verdict; return the verdict."""
    if not any(isinstance(role, Gate) for role in roles_of(node)):
        return None
    verdict = run_gate(is_new=is_new)
    state.write_status("gate", verdict)
    return verdict


_WORDS = {"hardware": "broken hardware", "software": "broken software"}


def gate_sentence(verdict: Mapping[str, Any]) -> str:
    """Return what a failed gate says: broken hardware, broken software, or that it cannot tell; and the checks."""
    failed = [f"{finding['check']}: {finding['text']}" for finding in verdict["findings"] if not finding["ok"]]
    return f"gate failed, {_WORDS.get(verdict['verdict'], 'cannot tell why')}: {'; '.join(failed)}"


def run_gate(*, is_new: bool) -> Mapping[str, Any]:
    """Return the verdict of the health gate. A new machine is checked again if time may repair it."""
    for attempt in range(_GATE_ATTEMPTS if is_new else 1):
        if attempt:
            sleep(_GATE_PAUSE)
        result = run(GATE, "--json", seconds=_GATE_SECONDS)
        try:
            verdict: Mapping[str, Any] = json.loads(result.out)
        except ValueError:
            text = result.error or "no output"
            findings = [{"check": "gate", "text": text, "ok": False}]
            verdict = {"ok": False, "verdict": "unknown", "action": "repair", "findings": findings}
        if verdict["action"] != "repair":
            break
    return verdict


def audit(state: State, node: NodePlan, marker: str = "") -> Mapping[str, Any]:
    """Check this machine against its document, by all rules or those with a marker; return the findings."""
    request = AuditRequest(document=state.document, marker=marker)
    findings = tuple(run_audit(request, [node.name], lambda _event: None))
    return compliance_document(findings)
