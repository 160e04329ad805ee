"""How a virtual machine is told what to run: one SSH connection as root, which stays, for making one takes seconds."""

import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

import jinja2
import markupsafe

from roles.guard.role import BGP_PACKAGES, PACKAGES
from tests.testlab.machines.container import CommandError, call, mounted
from tests.testlab.machines.desk import Desk
from tests.testlab.machines.layers import APT_INSTALL, bare, forget_identity, inside, kept
from tests.testlab.network.netlab import LabHost, LabProgram, until
from tests.testlab.run import clock_pace


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


# The kernel, the first program's tools, and what the role `storage` installs: in a virtual machine that takes minutes.
_PACKAGES = ("linux-image-cloud-amd64", "busybox-static", "nfs-common", "nfs-kernel-server", "psmisc")
# What starts by itself once it is installed, and is for the role to start.
_KERNEL_IDLE = ("nfs-server.service", "rpcbind.service", "rpcbind.socket")
_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "ext4")
_FIRST = Path(__file__).with_name("first")


def kernel() -> Path:
    """Return the folder of `vmlinuz` and `initrd`; makes it where it is missing (a minute or two)."""
    below = bare()
    recipe = repr((below, _PACKAGES, _KERNEL_IDLE, _MODULES, _FIRST.read_text()))
    return kept("kernel", recipe, lambda folder: _make(folder, below))


def with_kernel() -> tuple[Path, ...]:
    """Return the layers of a fresh machine that may move to a kernel of its own, the uppermost first."""
    return (kernel() / "root", *bare())


def emulated(disk: Path, host: LabHost, address: IPv4Address, line: Line) -> VirtualMachine:
    """Return a machine with this kernel."""
    return VirtualMachine(kernel(), disk, host, address, line)


def _make(folder: Path, below: tuple[Path, ...]) -> None:
    scratch = folder.with_suffix(".scratch")
    with mounted(below, scratch) as root:
        inside(root, *APT_INSTALL, *_PACKAGES)
        inside(root, "systemctl", "disable", "--quiet", *_KERNEL_IDLE)
        forget_identity(root)
        (image,) = (root / "boot").glob("vmlinuz-*")
        shutil.copy(image, folder / "vmlinuz")
        _pack(folder / "initrd", root, image.name.removeprefix("vmlinuz-"))
    (scratch / "upper").rename(folder / "root")
    shutil.rmtree(scratch)


def _pack(archive: Path, root: Path, version: str) -> None:
    """Pack the first program with the modules that it needs to see its disk and its network, in their order."""
    content = archive.with_suffix(".content")
    (content / "modules").mkdir(parents=True)
    for module in (ordered := _modules(root, version)):
        shutil.copy(root / module.lstrip("/"), content / "modules")
    (content / "modules/order").write_text("".join(f"{Path(module).name}\n" for module in ordered))
    shutil.copy(root / "bin/busybox", content / "busybox")
    shutil.copy(_FIRST, content / "init")
    (content / "init").chmod(0o755)
    names = "".join(f"{path.relative_to(content)}\n" for path in sorted(content.rglob("*")))
    with archive.open("wb") as packed:
        command = (str(content / "busybox"), "cpio", "-o", "-H", "newc")
        subprocess.run(command, input=names.encode(), stdout=packed, cwd=content, timeout=60, check=True)
    shutil.rmtree(content)


def _modules(root: Path, version: str) -> tuple[str, ...]:
    asked = ("modprobe", "--set-version", version, "--show-depends", "--all", *_MODULES)
    lines = call("chroot", str(root), *asked).splitlines()
    return tuple(dict.fromkeys(line.split()[1] for line in lines if line.startswith("insmod")))


_ROOT = Path(__file__).parents[3]
_WANTED = ("vpn", "tests/testlab", "bedplate/errors.py", "bedplate/tunnel_key.py", "bedplate/__init__.py")


def bring_code(folder: Path) -> None:
    """Put it into a folder of the machine."""
    left_out = shutil.ignore_patterns("__pycache__")
    for package in _WANTED:
        whole = _ROOT / package
        (folder / package).parent.mkdir(parents=True, exist_ok=True)
        if whole.is_dir():
            shutil.copytree(whole, folder / package, ignore=left_out)
        else:
            shutil.copy(whole, folder / package)
    for module in (jinja2, markupsafe):
        shutil.copytree(Path(str(module.__file__)).parent, folder / module.__name__, ignore=left_out)


# What the laboratory measures with, and what bounds its daemons.
_TOOLS = ("tcpdump", "apparmor")
# What a boot would start that no tunnel needs, and that takes seconds each. BGP starts with the tunnels; bounds are for
# whoever tries them to read, for a stand-in's daemons have their files elsewhere.
STOPPED = ("frr.service", "bedplate-vpn-metrics.timer", "apparmor.service")
MASKED = (
    *("systemd-logind.service", "systemd-user-sessions.service", "systemd-update-utmp.service"),
    *("systemd-modules-load.service", "systemd-sysusers.service", "systemd-journal-flush.service"),
    *("systemd-random-seed.service", "remote-fs.target", "nfs-client.target"),
    *(f"modprobe@{module}.service" for module in ("dm_mod", "configfs", "drm", "efi_pstore", "fuse", "loop")),
    *("sys-kernel-tracing.mount", "sys-kernel-debug.mount", "dev-hugepages.mount", "dev-mqueue.mount"),
    *("run-rpc_pipefs.mount", "rpc-statd-notify.service", "nfs-idmapd.service"),
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer"),
)


def with_tunnels() -> tuple[Path, ...]:
    """Return the layers, the uppermost first; makes what is missing (a minute)."""
    below = with_kernel()
    packages = (*PACKAGES, *BGP_PACKAGES, *_TOOLS)
    return (kept("gateway", repr((below, packages)), lambda root: _gateway_make(root, below, packages)), *below)


def _gateway_make(root: Path, below: tuple[Path, ...], packages: tuple[str, ...]) -> None:
    scratch = root.with_suffix(".scratch")
    with mounted(below, scratch) as whole:
        inside(whole, *APT_INSTALL, *packages)
        inside(whole, "systemctl", "disable", "--quiet", "strongswan", "frr")
        forget_identity(whole)
    root.rmdir()
    (scratch / "upper").rename(root)
    shutil.rmtree(scratch)
