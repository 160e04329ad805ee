"""A test node as a systemd-nspawn container: boot, console, shutdown, power loss, and its overlay root.

Each container has its own control group. Without it, containers of one process would share theirs, and services with
the same name in two containers would be one service that neither systemd can stop.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from tests.testlab.machines import io_flusher
from tests.testlab.network.netlab import LabProgram, until

# Timeout until a control group is empty.
_SECONDS = 5.0
_HIERARCHY = re.compile(r"\S+ \S+ \S+ \S+ (?P<at>\S+) .* - (?:cgroup2 \S+ .*|cgroup \S+ .*name=systemd.*)")
# Joins the control groups, then executes the program.
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'


def in_cgroup(name: str, *command: str) -> tuple[str, ...]:
    """Return a command that runs another one in a control group of this name, in each hierarchy of systemd."""
    folders = tuple(parent / name for parent in _parents())
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return ("sh", "-ec", _JOIN, "sh", *map(str, folders), "--", *command)


def remove_cgroup(name: str) -> None:
    """Remove the control groups of this name, whose processes are ending."""
    for parent in _parents():
        _remove(parent / name)


def cgroups() -> list[str]:
    """Return the names of all control groups under the one of this process."""
    return sorted({entry.name for parent in _parents() for entry in parent.iterdir() if entry.is_dir()})


def _remove(group: Path) -> None:
    """Remove a control group and its children, bottom up; processes that ended stay for a moment."""
    end = monotonic() + _SECONDS
    while group.exists() and monotonic() < end:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        if group.exists():
            sleep(0.05)


def _parents() -> Iterator[Path]:
    """Yield the control group of this process in each hierarchy of systemd."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if match := _HIERARCHY.fullmatch(line):
            path = own.get("name=systemd" if " - cgroup " in line else "", "/")
            folder = Path(match["at"]) / path.lstrip("/")
            if folder.is_dir():  # inside a container the path may not exist; its test nodes share one control group
                yield folder


class CommandError(Exception):
    """A command failed; the message contains the end of its output."""


def call(*argv: str, text: str = "", seconds: float = 60, env: Mapping[str, str] | None = None) -> str:
    """Run a program with `text` on stdin; return its stdout. Raises CommandError."""
    done = subprocess.run(argv, input=text, text=True, capture_output=True, timeout=seconds, env=env, check=False)
    if done.returncode:
        raise CommandError(
            f"{' '.join(argv)}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout


# The network namespace survives a reboot, but its configuration must not.
_RESET = """
nft flush ruleset
for device in $(ls /sys/class/net); do
  case $device in
    lo | eth0) ip address flush dev "$device"; ip link set "$device" down ;;
    *) ip link delete "$device" || : ;;
  esac
done
ip route flush table all
ip nexthop flush
ip rule flush
# networkd removes rules of other protocols.
ip rule add lookup main priority 32766 protocol kernel
ip rule add lookup default priority 32767 protocol kernel
"""
# As on Ubuntu; by default a container gets the hierarchies of this machine, which may be those of version 1.
_CGROUP_2 = {**os.environ, "UNIFIED_CGROUP_HIERARCHY": "1"}
# Runs a script in a control group of the container: logind refuses requests from others.
_INSIDE = 'echo $$ > /sys/fs/cgroup/init.scope/cgroup.procs; exec sh -ec "$0"'
_BOOT_SECONDS = 180
_HALT_SECONDS = 90
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Machine:
    """A container with a root folder and a network namespace; `log` contains its console output."""

    root: Path
    namespace: str
    log: Path
    _program: LabProgram | None = field(default=None, init=False)

    @property
    def runs(self) -> bool:
        """Whether the container is running."""
        return self._program is not None and self._program.runs

    def boot(self, *, waits: bool = True) -> None:
        """Start the container, and wait until its services have started."""
        call("ip", "netns", "exec", self.namespace, "sh", "-ec", _RESET)
        command = (
            *((sys.executable, "-P", io_flusher.__file__) if io_flusher.is_needed() else ()),
            # If this process is killed, the container shuts down cleanly.
            *("setpriv", "--pdeathsig", "TERM", "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"),
            *("--directory", str(self.root), f"--network-namespace-path=/run/netns/{self.namespace}"),
            *("--capability=CAP_NET_ADMIN", "--resolv-conf=off", "--timezone=off", "--link-journal=no"),
            # nfs-ganesha needs this call to find the files that clients open.
            "--system-call-filter=open_by_handle_at",
            # systemd needs the first for automounts; the second is for file systems in place of NFS.
            *(f"--bind={device}" for device in ("/dev/autofs", "/dev/fuse") if Path(device).exists()),
            f"--machine={self.namespace}",
        )
        with self.log.open("ab") as sink:
            popen = subprocess.Popen(
                in_cgroup(self.namespace, *command), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=_CGROUP_2
            )
        self._program = LabProgram(popen, self.log)
        if waits:
            self.wait()

    def wait(self) -> None:
        """Wait until all services have started."""
        until(self._is_up, _BOOT_SECONDS, f"{self.namespace} did not boot", every=0.2)

    def run(self, script: str, seconds: float = 120) -> str:
        """Run a shell script as root on the console; return its stdout. Raises CommandError."""
        return call(*self.console(), script, seconds=seconds)

    def console(self) -> tuple[str, ...]:
        """Return the command that runs a shell script in the container; valid until the next boot."""
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd")
        clean = ("env", "-i", f"PATH={_PATH}", "LC_ALL=C.UTF-8", "HOME=/root")
        return ("nsenter", "--target", str(self.first()), *spaces, *clean, "sh", "-ec", _INSIDE)

    def halt(self) -> None:
        """Shut the container down cleanly."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """Simulate a power loss: kill the init process, and all others with it."""
        with suppress(CommandError, ProcessLookupError):
            os.kill(self.first(), signal.SIGKILL)
        self._end(signal.SIGKILL)

    def _end(self, signal_: signal.Signals) -> None:
        if self._program is None:
            return
        self._program.popen.send_signal(signal_)
        with suppress(subprocess.TimeoutExpired):
            self._program.popen.wait(_HALT_SECONDS)
        self._program.end(signal.SIGKILL)
        self._program = None
        remove_cgroup(self.namespace)

    def first(self) -> int:
        """Return the ID of the container's init process on this machine."""
        if self._program is None or not self._program.runs:
            raise CommandError(f"{self.namespace} is not running; end of its console output:\n{self._log_tail()}")
        pid = self._program.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(children) != 1:
            raise CommandError(f"{self.namespace} has not started yet")
        return int(children[0])

    def _is_up(self) -> bool:
        """Return whether each service that starts at boot has started or failed."""
        with suppress(CommandError):
            return self.run("systemctl is-system-running || true").strip() in {"running", "degraded"}
        if self._program and not self._program.runs:
            raise AssertionError(f"{self.namespace} did not boot; end of its console output:\n{self._log_tail()}")
        return False

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


@contextmanager
def mounted(layers: tuple[Path, ...], folder: Path) -> Iterator[Path]:
    """Mount layers (uppermost first) with a new writable layer on top; unmount them at the end. `folder` stays."""
    shutil.rmtree(folder, ignore_errors=True)
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    for path in (upper, work, root):
        path.mkdir(parents=True)
    lower = ":".join(str(layer) for layer in layers)
    # `volatile` ignores fsync, which dpkg calls for each file.
    options = f"volatile,lowerdir={lower},upperdir={upper},workdir={work}"
    call("mount", "-t", "overlay", "-o", options, "overlay", str(root))
    try:
        yield root
    finally:
        call("umount", "--recursive", str(root))
