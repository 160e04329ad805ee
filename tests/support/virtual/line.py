"""How a virtual machine is told what to run: one SSH connection as root, which stays, for making one takes seconds."""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.stand.command import CommandError
from tests.support.stand.desk import Desk


@dataclass(frozen=True)
class Line:
    """The way to a machine by its name in an OpenSSH config; `folder` keeps the connection's socket."""

    desk: Desk
    ssh_config: Path
    name: str
    folder: Path

    def run(self, script: str, seconds: float) -> str:
        """Run a shell script there as root, and return what it said. Raises CommandError."""
        try:
            done = self.desk.run(*self._shell(), told=script, seconds=seconds)
        except subprocess.TimeoutExpired:
            raise CommandError(f"{self.name}: {script}: not within {seconds} s") from None
        if done.returncode:
            raise CommandError(f"{self.name}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout

    def console(self) -> tuple[str, ...]:
        """Return the command that, at the desk, runs a shell script there."""
        return ("sh", "-ec", f'printf %s "$0" | {shlex.join(self._shell())}')

    def hang_up(self) -> None:
        """End the connection, whatever became of the machine."""
        self.desk.run(*self._ssh(), "-O", "exit", "-l", "root", self.name)

    def _shell(self) -> tuple[str, ...]:
        way = ("-o", "ControlMaster=auto", "-o", "ControlPersist=600", "-l", "root", self.name, "sh", "-e")
        return (*self._ssh(), *way)

    def _ssh(self) -> tuple[str, ...]:
        return ("ssh", "-F", str(self.ssh_config), "-o", f"ControlPath={self.folder}/line")
