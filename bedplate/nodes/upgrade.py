"""The upgrade of a machine over SSH: runs its upgrade program, waits for its reboot, and continues after it.

The program runs in a unit of its own: it survives a lost connection, and ends the refusal of logins however it ends.
"""

import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from typing import IO

from bedplate.errors import BedplateError
from bedplate.nodes.apply import Event, NodeError, NodeErrorKind, Step, Target, error_event, parse_event
from bedplate.nodes.bootstrap import PROGRAM
from bedplate.nodes.remote import last_lines, run

UNIT = "bedplate-upgrade"
# Source: pam_nologin(8). The folder is cleared at boot, and the unit of the upgrade removes the file.
NO_LOGIN = Path("/run/nologin")
REBOOTING = Path("/run/bedplate-reboots")
"""Exists from the reboot to the next boot."""
# A server with much memory takes minutes until it starts its operating system.
_BOOT_SECONDS, _PAUSE = 1200.0, 5.0
_ENDS = frozenset({Step.DONE, Step.ERROR, Step.REBOOT})
Report = Callable[[Event], None]


def upgrade_command(mode: str, script: str = PROGRAM, *steps: str) -> str:
    """Return the shell command that upgrades a machine: `mode` is `wait`, `now`, or `end` after the reboot.

    `script` is its bootstrap; `steps` come before the upgrade.
    """
    unit = ("--quiet", "--collect", "--wait", "--pipe", f"--unit={UNIT}", "--setenv=SUDO_UID")
    clean = f"--property=ExecStopPost=-/bin/rm --force {NO_LOGIN}"
    return shlex.join(("sudo", "-n", "systemd-run", *unit, clean, "bash", script, *steps, f"upgrade_{mode}"))


@dataclass
class Upgrades:
    """The running upgrades. `report` gets each event; several threads may use it."""

    report: Report
    _stopped: Flag = field(default_factory=Flag)
    _running: "set[subprocess.Popen[str]]" = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def stop(self) -> None:
        """End all upgrades before their next step: machines in use are not drained, and none is rebooted."""
        self._stopped.set()
        with self._lock:
            for process in self._running:
                with suppress(OSError):
                    process.stdin and process.stdin.close()

    def upgrade(self, target: Target, mode: str, script: str, *steps: str) -> bool:
        """Upgrade a machine; return whether it is upgraded and has passed its gate."""
        event = self._run(target, upgrade_command(mode, script, *steps))
        if event.step is Step.REBOOT:
            try:
                self._wait_for_boot(target)
                # Without `fetch`: it continues with the same bundle.
                event = self._run(target, upgrade_command("end", script))
            except NodeError as error:
                event = error_event(target.node.name, error)
                self.report(event)
        return event.step is Step.DONE

    def _run(self, target: Target, command: str) -> Event:
        """Run the program; report its events, and return the last one."""
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            last: Event | None = None
            for event in self._events(target, command, errors):
                last = replace(event, node=target.node.name)
                self.report(last)
            if last is not None and last.step in _ENDS:
                return last
            errors.seek(0)
            error = error_event(target.node.name, _error(errors.read()))
        self.report(error)
        return error

    def _events(self, target: Target, command: str, errors: IO[str]) -> Iterator[Event]:
        # Ctrl-C in the terminal must reach only this process.
        with subprocess.Popen(  # noqa: S603  the command of an operator's ssh
            (*target.argv, command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            with self._lock:
                self._running.add(process)
            if self._stopped.is_set():
                self.stop()
            for line in process.stdout or ():
                with suppress(ValueError, KeyError, TypeError):
                    yield parse_event(line)
            with self._lock:
                self._running.discard(process)

    def _wait_for_boot(self, target: Target) -> None:
        """Wait until a machine has booted again. Raises NodeError."""
        deadline = time.monotonic() + _BOOT_SECONDS
        self.report(Event(target.node.name, Step.NOTE, words="waits for its boot"))
        while not _succeeds(target, "test", "!", "-e", str(REBOOTING)):
            is_stopped = self._stopped.is_set()
            if is_stopped or time.monotonic() > deadline:
                what = "interrupted during its reboot" if is_stopped else "did not come back from its reboot"
                fix = f"`bedplate node upgrade {target.node.name}` checks it again when it answers"
                raise NodeError(NodeErrorKind.CUT, what, fix)
            time.sleep(_PAUSE)


def _succeeds(target: Target, *command: str) -> bool:
    """Return whether a machine answers, and a command on it succeeds."""
    try:
        run(target, *command)
    except BedplateError:
        return False
    return True


def _error(output: str) -> NodeError:
    """Return why the program did not begin, from stderr."""
    words = last_lines(output) or "the connection was lost"
    if f"{UNIT}.service" in words:
        return NodeError(NodeErrorKind.HELD, "another upgrade of it runs", "wait until it has ended")
    if "has no bundle" in words or PROGRAM in words:
        fix = "`bedplate bundle push` and `promote` deliver one; a machine of a site gets it from this command"
        return NodeError(NodeErrorKind.REFUSED, "this machine has no node bundle", fix)
    return NodeError(NodeErrorKind.CUT, words, "`bedplate node logs NAME` shows its journal; run the command again")
