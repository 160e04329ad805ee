"""Test nodes as QEMU virtual machines with Debian's kernel, which has ESP and NFS.

Commands use one persistent SSH connection, because a login takes seconds on an emulated processor.
"""

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
from tests.testlab.machines.layers import APT_INSTALL, bare, cached_layer, forget_identity, run_in_root
from tests.testlab.machines.workstation import Workstation
from tests.testlab.network.netlab import LabHost, LabProgram, until
from tests.testlab.run import clock_pace


@dataclass(frozen=True)
class SshConnection:
    """A persistent SSH connection as root to a name in an OpenSSH config; its socket is in `folder`."""

    workstation: Workstation
    ssh_config: Path
    name: str
    folder: Path

    def run(self, script: str, seconds: float) -> str:
        """Run a shell script as root; return its stdout. Raises CommandError."""
        try:
            done = self.workstation.run(*self._shell(), stdin=script, seconds=seconds)
        except subprocess.TimeoutExpired:
            raise CommandError(f"{self.name}: {script}: timed out after {seconds} s") from None
        if done.returncode:
            raise CommandError(f"{self.name}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout

    def console(self) -> tuple[str, ...]:
        """Return the command that runs a shell script on the node, from the workstation."""
        return ("sh", "-ec", f'printf %s "$0" | {shlex.join(self._shell())}')

    def close(self) -> None:
        """End the connection."""
        self.workstation.run(*self._ssh(), "-O", "exit", "-l", "root", self.name)

    def _shell(self) -> tuple[str, ...]:
        options = ("-o", "ControlMaster=auto", "-o", "ControlPersist=600", "-l", "root", self.name, "sh", "-e")
        return (*self._ssh(), *options)

    def _ssh(self) -> tuple[str, ...]:
        return ("ssh", "-F", str(self.ssh_config), "-o", f"ControlPath={self.folder}/ssh")


_BOOT_SECONDS = 300
_HALT_SECONDS = 180
_DISK_SECONDS = 300
# A sparse file.
_SIZE = "3G"
# Hotplug and consoles are not needed, and take half of the boot time.
_UNNEEDED = ("systemd-udevd", "systemd-udev-trigger", "e2scrub_reap", "serial-getty@ttyS0", "getty@tty1", "nfs-blkmap")
MASKS = (
    *(f"systemd.mask={name}.service" for name in _UNNEEDED),
    *("systemd.mask=systemd-udevd-control.socket", "systemd.mask=systemd-udevd-kernel.socket"),
    # The init script configures the network; without udev, networkd would wait.
    *(f"systemd.mask=systemd-networkd{suffix}" for suffix in (".service", ".socket", "-wait-online.service")),
    "cloud-init=disabled",
)
_WORDS = ("console=ttyS0", "net.ifnames=0", "mitigations=off", "panic=-1", "quiet", "systemd.show_status=0", *MASKS)
# The clock counts instructions, 1 ns each, and real time while idle, so a busy host causes no timeouts in the guest.
_CLOCK = ("-icount", "shift=0")
# Possible paths of the first account's keys: the role `storage` moves its home.
_KEYS = ("home/ubuntu/.ssh/authorized_keys", "var/lib/bedplate/home/ubuntu/.ssh/authorized_keys")
# Files that only nodes with a shared kernel have.
_SHARED_KERNEL = ("etc/systemd/system/own-kernel.service", "etc/systemd/system/sysinit.target.wants/own-kernel.service")


@dataclass
class VirtualMachine:
    """A QEMU machine with a kernel and a disk; its network is the link of its lab host."""

    kernel: Path
    disk: Path
    host: LabHost
    address: IPv4Address
    connection: SshConnection
    _program: LabProgram | None = field(default=None, init=False)

    @property
    def root(self) -> Path:
        """Raises CommandError: the disk is not mounted on this machine."""
        raise CommandError("a virtual machine has no root folder here; use `run` to access its files")

    @property
    def runs(self) -> bool:
        """Whether the machine is running."""
        return self._program is not None and self._program.runs

    def start(self) -> None:
        """Start the machine, without waiting for the boot."""
        self._program = self.host.start(*self._command(), log="console.log")

    def boot(self, *, waits: bool = True) -> None:
        """Start the machine, and wait until its services have started."""
        self.start()
        if waits:
            self.wait()

    def wait(self) -> None:
        """Wait until all services have started; longer if this machine is busy."""
        until(self._is_up, _BOOT_SECONDS * clock_pace(), f"{self.host.name} did not boot", every=0.3)

    def run(self, script: str, seconds: float = 120) -> str:
        """Run a shell script as root; return its stdout. Raises CommandError."""
        return self.connection.run(script, seconds)

    def console(self) -> tuple[str, ...]:
        """Return the command that runs a shell script on the node, from the workstation."""
        return self.connection.console()

    def halt(self) -> None:
        """Shut the machine down cleanly."""
        with suppress(CommandError):
            self.run("systemctl poweroff --no-block")
        if self._program:
            with suppress(subprocess.TimeoutExpired):
                self._program.popen.wait(_HALT_SECONDS)
        self.crash()

    def crash(self) -> None:
        """Simulate a power loss."""
        self.connection.close()
        if self._program:
            self._program.end(signal.SIGKILL)
            self._program = None

    def _command(self) -> tuple[str, ...]:
        disk = ("-drive", f"file={self.disk},if=virtio,format=raw,cache=unsafe")
        words = " ".join((*_WORDS, f"address={self.address}", f"gateway={self.connection.workstation.address}"))
        return (
            *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg", *_CLOCK, "-m", "512"),
            *("-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-device", "virtio-rng-pci"),
            *("-kernel", f"{self.kernel}/vmlinuz", "-initrd", f"{self.kernel}/initrd", "-append", words, *disk),
            *("-netdev", "tap,id=wire,ifname=tap0,script=no,downscript=no", "-device", "virtio-net-pci,netdev=wire"),
        )

    def _is_up(self) -> bool:
        if self._program and not self._program.runs:
            raise AssertionError(
                f"{self.host.name} stopped; end of its console output:\n{self._program.output[-2000:]}"
            )
        with suppress(CommandError):
            return self.run("systemctl is-system-running || true", 30).strip() in {"running", "degraded"}
        return False


def connect_tap(host: LabHost) -> None:
    """Bridge the link of a lab host to the tap device of a virtual machine."""
    for words in (
        *("address flush dev eth0", "link add wall type bridge", "tuntap add tap0 mode tap"),
        *("link set eth0 master wall", "link set tap0 master wall"),
        *(f"link set {device} up" for device in ("wall", "tap0")),
    ):
        host.run("ip", *words.split())


def make_disk(image: Path, root: Path) -> None:
    """Create a disk image from the root of a stopped node; root gets the keys of the first account."""
    for name in _SHARED_KERNEL:
        (root / name).unlink()
    keys = root / "root/.ssh/authorized_keys"
    keys.parent.mkdir(mode=0o700, exist_ok=True)
    keys.write_text(next(root / name for name in _KEYS if (root / name).exists()).read_text())
    call("mke2fs", "-q", "-t", "ext4", "-m", "0", "-d", str(root), str(image), _SIZE, seconds=_DISK_SECONDS)


# The kernel, tools of the init script, and packages of the role `storage`, which take minutes on an emulated processor.
_PACKAGES = ("linux-image-cloud-amd64", "busybox-static", "nfs-common", "nfs-kernel-server", "psmisc")
# Services that start after installation, but that the role must start.
_DISABLED = ("nfs-server.service", "rpcbind.service", "rpcbind.socket")
_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "ext4")
_FIRST = Path(__file__).with_name("first")


def kernel() -> Path:
    """Return the folder with `vmlinuz` and `initrd`; creates a missing one (two minutes)."""
    below = bare()
    recipe = repr((below, _PACKAGES, _DISABLED, _MODULES, _FIRST.read_text()))
    return cached_layer("kernel", recipe, lambda folder: _make_kernel(folder, below))


def kernel_layers() -> tuple[Path, ...]:
    """Return the layers of a fresh node that can switch to its own kernel, the uppermost first."""
    return (kernel() / "root", *bare())


def emulated(disk: Path, host: LabHost, address: IPv4Address, connection: SshConnection) -> VirtualMachine:
    """Return a QEMU machine with this kernel."""
    return VirtualMachine(kernel(), disk, host, address, connection)


def _make_kernel(folder: Path, below: tuple[Path, ...]) -> None:
    scratch = folder.with_suffix(".scratch")
    with mounted(below, scratch) as root:
        run_in_root(root, *APT_INSTALL, *_PACKAGES)
        run_in_root(root, "systemctl", "disable", "--quiet", *_DISABLED)
        forget_identity(root)
        (image,) = (root / "boot").glob("vmlinuz-*")
        shutil.copy(image, folder / "vmlinuz")
        _pack_initrd(folder / "initrd", root, image.name.removeprefix("vmlinuz-"))
    (scratch / "upper").rename(folder / "root")
    shutil.rmtree(scratch)


def _pack_initrd(archive: Path, root: Path, version: str) -> None:
    """Create an initrd with the init script, busybox, and the modules for disk and network in load order."""
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
    options = ("modprobe", "--set-version", version, "--show-depends", "--all", *_MODULES)
    lines = call("chroot", str(root), *options).splitlines()
    return tuple(dict.fromkeys(line.split()[1] for line in lines if line.startswith("insmod")))


_ROOT = Path(__file__).parents[3]
_CODE = (
    *("vpn", "bedplate/programs", "tests/testlab/keys", "tests/testlab/machines", "tests/testlab/network"),
    *("bedplate/errors.py", "bedplate/tunnels.py", "bedplate/__init__.py"),
)


def copy_code(folder: Path) -> None:
    """Copy the code of the kernel tests, and Jinja2, into a folder of a node."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in _CODE:
        source = _ROOT / package
        (folder / package).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, folder / package, ignore=ignored)
        else:
            shutil.copy(source, folder / package)
    for module in (jinja2, markupsafe):
        shutil.copytree(Path(str(module.__file__)).parent, folder / module.__name__, ignore=ignored)


# Tools of the network lab, and AppArmor.
_TOOLS = ("tcpdump", "apparmor")
# Services that tunnels do not need, and that slow the boot. BGP starts with the tunnels. The AppArmor test loads its
# profiles itself, because they would block the simulated AWS endpoint, whose files are in other folders.
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


def gateway_layers() -> tuple[Path, ...]:
    """Return the layers of a gateway, the uppermost first; creates missing ones (a minute)."""
    below = kernel_layers()
    packages = (*PACKAGES, *BGP_PACKAGES, *_TOOLS)
    return (cached_layer("gateway", repr((below, packages)), lambda root: _make_gateway(root, below, packages)), *below)


def _make_gateway(root: Path, below: tuple[Path, ...], packages: tuple[str, ...]) -> None:
    scratch = root.with_suffix(".scratch")
    with mounted(below, scratch) as whole:
        run_in_root(whole, *APT_INSTALL, *packages)
        run_in_root(whole, "systemctl", "disable", "--quiet", "strongswan", "frr")
        forget_identity(whole)
    root.rmdir()
    (scratch / "upper").rename(root)
    shutil.rmtree(scratch)
