"""A control group of its own for each machine: systemd knows by it which processes are a service's.

Containers that one process starts would else share theirs: whatever two of them call alike would be one service, whose
processes neither can end.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from tests.testlab.network.netlab import LabProgram, until

# How long a group is waited for that does not get empty.
_SECONDS = 5.0
_HIERARCHY = re.compile(r"\S+ \S+ \S+ \S+ (?P<at>\S+) .* - (?:cgroup2 \S+ .*|cgroup \S+ .*name=systemd.*)")
# Puts itself there, and becomes the program.
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'


def in_group(name: str, *command: str) -> tuple[str, ...]:
    """Return the command that runs another in a group of this name, in each hierarchy that systemd uses."""
    groups = tuple(place / name for place in _places())
    for group in groups:
        group.mkdir(exist_ok=True)
    return ("sh", "-ec", _JOIN, "sh", *map(str, groups), "--", *command)


def remove_group(name: str) -> None:
    """Remove the groups of this name, whose processes are ending."""
    for place in _places():
        _remove(place / name)


def groups() -> list[str]:
    """Return the names of the groups that there are beside this process's own."""
    return sorted({entry.name for place in _places() for entry in place.iterdir() if entry.is_dir()})


def _remove(group: Path) -> None:
    """Remove a group and those below it, the lowest first; a process that has ended is there a moment longer."""
    end = monotonic() + _SECONDS
    while group.exists() and monotonic() < end:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        if group.exists():
            sleep(0.05)


def _places() -> Iterator[Path]:
    """Yield this process's own place in each hierarchy that systemd uses."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if found := _HIERARCHY.fullmatch(line):
            path = own.get("name=systemd" if " - cgroup " in line else "", "/")
            place = Path(found["at"]) / path.lstrip("/")
            if place.is_dir():  # a container may see its groups elsewhere: its machines share them
                yield place


class CommandError(Exception):
    """A program that a test node needs ended badly; the message holds the last of what it said."""


def call(*argv: str, text: str = "", seconds: float = 60, env: Mapping[str, str] | None = None) -> str:
    """Run a program to its end with `text` as its input; return what it said. Raises CommandError."""
    done = subprocess.run(argv, input=text, text=True, capture_output=True, timeout=seconds, env=env, check=False)
    if done.returncode:
        raise CommandError(
            f"{' '.join(argv)}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout


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


@contextmanager
def mounted(layers: tuple[Path, ...], folder: Path) -> Iterator[Path]:
    """Mount the layers, the uppermost first, under an empty one; unmount them at the end. `folder` stays."""
    shutil.rmtree(folder, ignore_errors=True)
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    for made in (upper, work, root):
        made.mkdir(parents=True)
    lower = ":".join(str(layer) for layer in layers)
    call("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "overlay", str(root))
    try:
        yield root
    finally:
        call("umount", "--recursive", str(root))
