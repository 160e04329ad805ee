"""A container that is a whole machine: systemd as its first process, and a root, a network and a name of its own.

What the kernel keeps once for all (the settings of `kernel`, `vm` and `fs`) is a copy in each, which nothing obeys.
"""

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.netlab_program import LabProgram, until
from tests.support.stand.cgroup import in_group, remove_group
from tests.support.stand.command import CommandError, call

_BOOT_SECONDS = 180
_HALT_SECONDS = 90
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Machine:
    """A root that boots in a network namespace; `log` is what its console says."""

    root: Path
    namespace: str
    log: Path
    _program: LabProgram | None = field(default=None, init=False)

    @property
    def runs(self) -> bool:
        """Whether it has power."""
        return self._program is not None and self._program.runs

    def boot(self) -> None:
        """Start it, and wait until its services have started."""
        # Its network outlives it, and the packet filter of a machine does not.
        call("ip", "netns", "exec", self.namespace, "nft", "flush", "ruleset")
        command = (
            # Were this process killed, the machine would be shut down in order.
            *("setpriv", "--pdeathsig", "TERM", "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"),
            *("--directory", str(self.root), f"--network-namespace-path=/run/netns/{self.namespace}"),
            *("--capability=CAP_NET_ADMIN", "--resolv-conf=off", "--timezone=off", "--link-journal=no"),
            # By it a file server that is a program finds what a client asks for: it serves nothing otherwise.
            "--system-call-filter=open_by_handle_at",
            # By it systemd mounts at the first use.
            *(("--bind=/dev/autofs",) if Path("/dev/autofs").exists() else ()),
            f"--machine={self.namespace}",
        )
        with self.log.open("ab") as sink:
            popen = subprocess.Popen(
                in_group(self.namespace, *command), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
            )
        self._program = LabProgram(popen, self.log)
        self.wait()

    def wait(self) -> None:
        """Wait until its services have started."""
        until(self._is_up, _BOOT_SECONDS, f"{self.namespace} boots", every=0.2)

    def run(self, script: str, seconds: float = 120) -> str:
        """Run a shell script at the console, as root, and return what it said. Raises CommandError."""
        return call(*self.console(), script, seconds=seconds)

    def console(self) -> tuple[str, ...]:
        """Return the command that runs a shell script there until the next boot."""
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd")
        clean = ("env", "-i", f"PATH={_PATH}", "LC_ALL=C.UTF-8", "HOME=/root")
        return ("nsenter", "--target", str(self._first()), *spaces, *clean, "sh", "-ec")

    def halt(self) -> None:
        """Shut it down in order."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """Take its power away: its first process goes, and with it all others."""
        with suppress(CommandError, ProcessLookupError):
            os.kill(self._first(), signal.SIGKILL)
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._program is None:
            return
        self._program.popen.send_signal(how)
        with suppress(subprocess.TimeoutExpired):
            self._program.popen.wait(_HALT_SECONDS)
        self._program.end(signal.SIGKILL)
        self._program = None
        remove_group(self.namespace)

    def _first(self) -> int:
        """Return the number that its first process has on this machine."""
        if self._program is None or not self._program.runs:
            raise CommandError(f"{self.namespace} does not run; its console's last words:\n{self._last_words()}")
        pid = self._program.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(found) != 1:
            raise CommandError(f"{self.namespace} has not started yet")
        return int(found[0])

    def _is_up(self) -> bool:
        """Tell whether every service that starts at boot has started, or has failed."""
        with suppress(CommandError):
            return self.run("systemctl is-system-running || true").strip() in {"running", "degraded"}
        return self._ended()

    def _ended(self) -> bool:
        if self._program and not self._program.runs:
            raise AssertionError(f"{self.namespace} did not boot; its console's last words:\n{self._last_words()}")
        return False

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
