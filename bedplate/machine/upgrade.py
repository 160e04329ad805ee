"""`python3 -m bedplate.machine.upgrade wait|now|end`: drain this machine, apply all roles, and reboot it if required.

`wait` lets people and pods finish, `now` ends them, and `end` continues after the reboot. Events are lines of JSON on
stdout, as in an apply. End of file on stdin means that the operator's command has ended: nothing more is begun.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from bedplate.errors import BedplateError
from bedplate.machine.calls import apply_roles, check_machine, find_stale_services, gate_sentence, reboot, run_step
from bedplate.machine.state import State, Status
from bedplate.nodes.apply import Event, NodeError, NodeErrorKind, NodeResult, Step, error_event
from bedplate.nodes.upgrade import NO_LOGIN, REBOOTING
from bedplate.plan.fleet import Accounts
from bedplate.plan.nodes import NodePlan, NodeRole
from bedplate.programs.program import ProgramError
from bedplate.programs.worker.leaving import Shutdown, drain, uncordon_self
from bedplate.programs.worker.machine import node_name
from roles.base import Disruption
from roles.catalog import roles_of

# Source: Debian policy of update-notifier and unattended-upgrades.
_REBOOT_REQUIRED = Path("/run/reboot-required")
_WAIT, _PAUSE, _GRACE = 3600.0, 5.0, 30.0
_MESSAGE = "bedplate upgrades this machine, and may reboot it. Save your work and log out.\n"
_AGAIN = "run `bedplate node upgrade` again"


@dataclass(slots=True)
class Operator:
    """The operator's command: `has_gone` is set when it ends; `uid` is their account, whose processes do not count."""

    has_gone: Flag = field(default_factory=Flag)
    uid: int | None = None

    def report(self, event: Event) -> None:
        """Write an event."""
        with suppress(OSError):
            sys.stdout.write(f"{event.line()}\n")
            sys.stdout.flush()

    def watch(self) -> None:
        """Notice when the command ends."""

        def read() -> None:
            sys.stdin.read()
            self.has_gone.set()

        Thread(target=read, daemon=True).start()


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The upgrade of this machine."""

    state: State
    node: NodePlan
    operator: Operator
    processes: Callable[[], Iterator[int]]

    def run(self, mode: str) -> Status | None:
        """Upgrade this machine; return its status, None before a reboot. Raises NodeError."""
        if mode == "end":
            return self._checked(self._apply())
        needs_reboot = self._requires_reboot() or bool(self._waiting(Disruption.REBOOT))
        if not needs_reboot and not self._waiting(Disruption.DRAIN):
            return self._checked(self._apply())
        with no_logins(), self._without_pods(is_patient=mode != "now"):
            self._drain(ends_sessions=mode == "now")
            status = self._checked(self._apply())
            if needs_reboot or self._requires_reboot():
                self._check_operator()
                # After the boot the worker agent uncordons the node.
                return None
        if self._is_worker:
            uncordon_self(node_name())
        return status

    @property
    def _is_worker(self) -> bool:
        return NodeRole.WORKER in self.node.roles

    @contextmanager
    def _without_pods(self, *, is_patient: bool) -> Iterator[None]:
        """Evict the pods of a worker; after a failure the node is uncordoned."""
        if not self._is_worker:
            yield
            return
        try:
            name = node_name()
            try:
                self._evict(name, is_patient=is_patient)
                yield
            except NodeError:
                uncordon_self(name)
                raise
        except ProgramError as error:
            raise NodeError(NodeErrorKind.FAILED, str(error), _AGAIN) from None

    def _evict(self, name: str, *, is_patient: bool) -> None:
        """Evict pods as their disruption budgets permit; without patience the remaining ones end with the reboot."""
        self._note("evicts its pods")
        deadline = time.monotonic() + (_WAIT if is_patient else _GRACE)
        while not drain(name, Shutdown("bedplate upgrades this machine", _GRACE), self._note):
            self._check_operator()
            if time.monotonic() > deadline and is_patient:
                raise NodeError(NodeErrorKind.REFUSED, "disruption budgets keep its pods", f"{_AGAIN}, or pass --now")
            if time.monotonic() > deadline:
                return

    def _waiting(self, disruption: Disruption) -> tuple[str, ...]:
        """Return the changes of roles that wait for a drain, or for a reboot."""
        names = frozenset(role.name for role in roles_of(self.node) if role.disruption is disruption)
        return tuple(_completed(apply_roles(self.node, names, check=True, report=_ignore)).changed) if names else ()

    def _drain(self, *, ends_sessions: bool) -> None:
        """Wait until nobody works on this machine."""
        deadline, former = time.monotonic() + _WAIT, ""
        if self._people():
            _tell_people()
        if ends_sessions and self._people():
            self._note(f"ends the sessions of {self._people()} in {_GRACE:.0f} s")
            self.operator.has_gone.wait(_GRACE)
        while people := self._people():
            self._check_operator()
            if time.monotonic() > deadline:
                raise NodeError(NodeErrorKind.REFUSED, f"still in use by {people}", f"{_AGAIN}, or pass --now")
            if ends_sessions:
                _end_processes(self.node.accounts, people.split(", "))
            if people != former:
                self._note(f"waits for {people} to log out")
                former = people
            time.sleep(_PAUSE)

    def _people(self) -> str:
        names = {uid: name for name, uid in self.node.accounts.uids.items() if uid != self.operator.uid}
        return ", ".join(sorted({names[uid] for uid in self.processes() if uid in names}))

    def _apply(self) -> NodeResult:
        self.state.audited.unlink(missing_ok=True)
        return _completed(apply_roles(self.node, None, report=self._progress))

    def _progress(self, event: Event) -> None:
        """Report an event of the apply, whose end is not that of the upgrade."""
        if event.step in {Step.BEGINS, Step.OPERATION, Step.NOTE}:
            self.operator.report(event)

    def _checked(self, result: NodeResult) -> Status:
        """Run the gate; return the status."""
        self._note("runs the health gate")
        verdict = check_machine(self.state, self.node, is_new=True)
        changed = tuple(result.changed)
        if verdict and not verdict["ok"]:
            return Status(ok=False, sentence=gate_sentence(verdict), changed=changed)
        return Status(
            ok=True, sentence=f"upgraded, {len(changed)} changed" if changed else "up to date", changed=changed
        )

    def _requires_reboot(self) -> bool:
        """Return whether a package, a service with a replaced program, or the gate's last verdict requires a reboot."""
        if services := find_stale_services():
            self._note(f"runs replaced programs: {', '.join(services)}")
            return True
        return _REBOOT_REQUIRED.exists() or self.state.read_status("gate").get("action") == "reboot"

    def _check_operator(self) -> None:
        if self.operator.has_gone.is_set():
            raise NodeError(NodeErrorKind.STOPPED, "interrupted", _AGAIN)

    def _note(self, words: str) -> None:
        self.operator.report(Event(self.node.name, Step.NOTE, words=words))


def _completed(result: NodeResult) -> NodeResult:
    """Return a complete result. Raises NodeError for another."""
    error = result.error
    if not result.is_done:
        kind = error.kind if error and error.kind else NodeErrorKind.FAILED
        raise NodeError(kind, error.words if error else "stopped", error.fix if error else _AGAIN)
    return result


def _ignore(_event: Event) -> None:
    """Report nothing."""


@contextmanager
def no_logins() -> Iterator[None]:
    """Refuse logins of all accounts but root."""
    NO_LOGIN.write_text(_MESSAGE, encoding="utf-8")
    try:
        yield
    finally:
        NO_LOGIN.unlink(missing_ok=True)


def running_uids() -> Iterator[int]:
    """Yield the user of each process."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield folder.stat().st_uid


def _tell_people() -> None:
    subprocess.run(("wall",), input=_MESSAGE, text=True, check=False)  # noqa: S607  on the path of root


def _end_processes(accounts: Accounts, names: list[str]) -> None:
    for signal in ("TERM", "KILL"):
        for name in names:
            command = ("pkill", f"--signal={signal}", "--uid", str(accounts.uids[name]))
            subprocess.run(command, check=False)  # noqa: S603  numbers of the plan
        time.sleep(_PAUSE)


def main(mode: str, state: State, operator: Operator) -> int:
    """Upgrade this machine; the last event is its result. Return the exit status."""
    started, name = time.monotonic(), "this machine"
    try:
        node = state.node()
        name = node.name
        status = Upgrade(state, node, operator, running_uids).run(mode)
    except BedplateError as error:
        failure = error if isinstance(error, NodeError) else NodeError(NodeErrorKind.REFUSED, error.what, error.fix)
        operator.report(error_event(name, failure))
        return 0
    seconds = round(time.monotonic() - started, 1)
    if status is None:
        REBOOTING.touch()
        operator.report(Event(name, Step.REBOOT, words="reboots"))
        reboot()
        return 0
    state.write_run(replace(status, seconds=seconds), time.time(), is_ready=True)
    run_step("put_status")
    if status.ok:
        operator.report(Event(name, Step.DONE, words=status.sentence, changed=len(status.changed), seconds=seconds))
    else:
        fix = "repair or replace the machine; `bedplate node logs NAME` shows the gate"
        operator.report(error_event(name, NodeError(NodeErrorKind.FAILED, status.sentence, fix)))
    return 0


if __name__ == "__main__":
    _operator = Operator(uid=int(os.environ.get("SUDO_UID") or -1))
    _operator.watch()
    sys.exit(main(sys.argv[1], State(), _operator))
