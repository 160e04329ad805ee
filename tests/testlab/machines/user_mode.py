"""Test nodes with User Mode Linux, a kernel that runs as a process; from Debian's package.

Programs run on the real processor, several times faster than under QEMU's emulation. The kernel has NFS client and
server; it has no XFRM interfaces and only one processor.
"""

import shutil
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from tests.testlab.machines.container import mounted
from tests.testlab.machines.layers import APT_INSTALL, bare, cached_layer, forget_identity, run_in_root
from tests.testlab.machines.virtual import MASKS, SshConnection, VirtualMachine
from tests.testlab.network.netlab import LabHost

# The kernel, and packages of roles, which each test would otherwise download.
_PACKAGES = ("user-mode-linux", "kmod", "nfs-common", "nfs-kernel-server", "psmisc", "quota", "mdadm", "auditd")
# Only downloaded: the NFS server for kernels without one.
_ARCHIVED = ("nfs-ganesha", "nfs-ganesha-vfs")
# Services that start after installation, but that a role starts, or that need the kernel's audit.
_DISABLED = ("nfs-server.service", "rpcbind.service", "rpcbind.socket", "auditd.service")
_PROGRAM, _MODULES = "usr/bin/linux.uml", "usr/lib/uml/modules"
_FIRST = Path(__file__).with_name("first-in-user-mode")
# A user's systemd instance takes as long as ten commands.
_MASKS = ("systemd.mask=user@.service",)
# Each system call switches between two processes, which wait for the scheduler on a busy machine. Not real-time
# priority: two machines with it take two cores from all other programs.
_PRIORITY = ("nice", "-n", "-10")
# In its own PID namespace, all its processes end with it. The first process is a shell: a kernel that panics aborts,
# which the first process of a namespace cannot, so it would use a core until the end of the tests.
_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@"; exit "$?"', "sh")


@dataclass
class UserModeMachine(VirtualMachine):
    """A machine with User Mode Linux; `disks` are additional disks, from /dev/ubdb on."""

    disks: tuple[Path, ...] = ()

    def _command(self) -> tuple[str, ...]:
        return (
            *("setpriv", "--pdeathsig", "KILL", *_PRIORITY, *_PID_NAMESPACE, str(self.kernel / "linux"), "mem=512M"),
            *(
                f"ubd0={self.disk}",
                *(f"ubd{number}={disk}" for number, disk in enumerate(self.disks, start=1)),
                "root=/dev/ubda",
                "rw",
                "vec0:transport=tap,ifname=tap0,depth=128,gro=1",
            ),
            *("con=null", "con0=null,fd:1", "console=tty0", f"uml_dir={self.disk.parent}/", "umid=uml", "quiet"),
            *("systemd.show_status=0", *MASKS, *_MASKS, "init=/usr/local/sbin/first"),
            *(f"address={self.address}", f"gateway={self.connection.workstation.address}"),
        )


def user_mode(
    disk: Path, host: LabHost, address: IPv4Address, connection: SshConnection, disks: tuple[Path, ...] = ()
) -> UserModeMachine:
    """Return a machine with User Mode Linux."""
    return UserModeMachine(_kernel(), disk, host, address, connection, disks)


def user_mode_layers() -> tuple[Path, ...]:
    """Return the layers of a fresh node that can switch to User Mode Linux, the uppermost first."""
    return (_kernel() / "root", *bare())


def _kernel() -> Path:
    """Return the folder with the kernel; creates a missing one (two minutes)."""
    below = bare()
    recipe = repr((below, _PACKAGES, _ARCHIVED, _DISABLED, _FIRST.read_text()))
    return cached_layer("user-mode", recipe, lambda folder: _make(folder, below))


def _make(folder: Path, below: tuple[Path, ...]) -> None:
    scratch = folder.with_suffix(".scratch")
    with mounted(below, scratch) as root:
        run_in_root(root, *APT_INSTALL, *_PACKAGES)
        run_in_root(root, "systemctl", "disable", "--quiet", *_DISABLED)
        shutil.move(root / _PROGRAM, folder / "linux")
        (version,) = (root / _MODULES).iterdir()
        shutil.move(version, root / "usr/lib/modules" / version.name)
        run_in_root(root, "depmod", version.name)
        shutil.copy(_FIRST, root / "usr/local/sbin/first")
        (root / "usr/local/sbin/first").chmod(0o755)
        run_in_root(root, "apt-get", "clean")
        run_in_root(root, *APT_INSTALL, "--download-only", *_ARCHIVED)
        forget_identity(root)
    (scratch / "upper").rename(folder / "root")
    shutil.rmtree(scratch)
