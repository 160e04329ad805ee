"""A machine with a kernel of its own, in QEMU: for what the kernel of this machine lacks, as NFS.

Its processor is computed, never lent (no KVM): it is some twenty times slower than this machine; user_mode.py has a
faster one. What it is told comes by SSH, over one connection that stays. Its files are its own.
"""

import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

from tests.support.netlab import LabHost
from tests.support.netlab_program import LabProgram, until
from tests.support.pace import clock_pace
from tests.support.stand.command import CommandError, call
from tests.support.virtual.line import Line

_BOOT_SECONDS = 300
_HALT_SECONDS = 180
_DISK_SECONDS = 300
# Sparse: it takes what is written.
_SIZE = "3G"
# Nothing is plugged into it, and nobody sits before it: what looks after that takes half of a boot.
_IDLE = ("systemd-udevd", "systemd-udev-trigger", "e2scrub_reap", "serial-getty@ttyS0", "getty@tty1", "nfs-blkmap")
MASKS = (
    *(f"systemd.mask={name}.service" for name in _IDLE),
    *("systemd.mask=systemd-udevd-control.socket", "systemd.mask=systemd-udevd-kernel.socket"),
)
_WORDS = ("console=ttyS0", "net.ifnames=0", "mitigations=off", "panic=-1", "quiet", "systemd.show_status=0", *MASKS)
# Its clock goes by what it has computed, 1 ns an instruction, and by the world's where it waits: how busy this machine
# is makes nothing late there.
_CLOCK = ("-icount", "shift=0")
# Where the first account's keys may lie: the role `storage` moves its home.
_KEYS = ("home/ubuntu/.ssh/authorized_keys", "var/lib/bedplate/home/ubuntu/.ssh/authorized_keys")
# What machines have that share a kernel.
_LENT = ("etc/systemd/system/own-kernel.service", "etc/systemd/system/sysinit.target.wants/own-kernel.service")


@dataclass
class VirtualMachine:
    """A machine that boots a kernel (kernel.py) with a disk; its network is its host's wire."""

    kernel: Path
    disk: Path
    host: LabHost
    address: IPv4Address
    line: Line
    _program: LabProgram | None = field(default=None, init=False)

    @property
    def root(self) -> Path:
        """Nowhere: raises CommandError."""
        raise CommandError("the files of a virtual machine are reached by what is run on it")

    @property
    def runs(self) -> bool:
        """Whether it has power."""
        return self._program is not None and self._program.runs

    def start(self) -> None:
        """Start it, and do not wait."""
        self._program = self.host.start(*self._command(), log="console.log")

    def boot(self) -> None:
        """Start it, and wait until its services have started."""
        self.start()
        self.wait()

    def wait(self) -> None:
        """Wait until its services have started; longer on a machine that has much else to do."""
        until(self._is_up, _BOOT_SECONDS * clock_pace(), f"{self.host.name} boots", every=0.3)

    def run(self, script: str, seconds: float = 120) -> str:
        """Run a shell script as root, and return what it said. Raises CommandError."""
        return self.line.run(script, seconds)

    def console(self) -> tuple[str, ...]:
        """Return the command that, at the desk, runs a shell script there."""
        return self.line.console()

    def halt(self) -> None:
        """Shut it down in order."""
        with suppress(CommandError):
            self.run("systemctl poweroff --no-block")
        if self._program:
            with suppress(subprocess.TimeoutExpired):
                self._program.popen.wait(_HALT_SECONDS)
        self.crash()

    def crash(self) -> None:
        """Take its power away."""
        self.line.hang_up()
        if self._program:
            self._program.end(signal.SIGKILL)
            self._program = None

    def _command(self) -> tuple[str, ...]:
        disk = ("-drive", f"file={self.disk},if=virtio,format=raw,cache=unsafe")
        words = " ".join((*_WORDS, f"at={self.address}", f"desk={self.line.desk.address}"))
        return (
            *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg", *_CLOCK, "-m", "512"),
            *("-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-device", "virtio-rng-pci"),
            *("-kernel", f"{self.kernel}/vmlinuz", "-initrd", f"{self.kernel}/initrd", "-append", words, *disk),
            *("-netdev", "tap,id=wire,ifname=tap0,script=no,downscript=no", "-device", "virtio-net-pci,netdev=wire"),
        )

    def _is_up(self) -> bool:
        if self._program and not self._program.runs:
            raise AssertionError(f"{self.host.name} ended; its console's last words:\n{self._program.told[-2000:]}")
        with suppress(CommandError):
            return self.run("systemctl is-system-running || true", 30).strip() in {"running", "degraded"}
        return False


def plug(host: LabHost) -> None:
    """Lead a host's wire to the device of a virtual machine."""
    for words in (
        *("address flush dev eth0", "link add wall type bridge", "tuntap add tap0 mode tap"),
        *("link set eth0 master wall", "link set tap0 master wall"),
        *(f"link set {device} up" for device in ("wall", "tap0")),
    ):
        host.run("ip", *words.split())


def make_disk(image: Path, root: Path) -> None:
    """Make a disk of the root of a machine that is down; the key of its first account lets in as root, too."""
    for name in _LENT:
        (root / name).unlink()
    keys = root / "root/.ssh/authorized_keys"
    keys.parent.mkdir(mode=0o700, exist_ok=True)
    keys.write_text(next(root / name for name in _KEYS if (root / name).exists()).read_text())
    call("mke2fs", "-q", "-t", "ext4", "-m", "0", "-d", str(root), str(image), _SIZE, seconds=_DISK_SECONDS)
