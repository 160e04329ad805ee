"""The kernel as a program (User Mode Linux, of Debian's package), and a fresh machine's root with what belongs to it.

It computes nothing: what runs on it runs on this machine's processor, several times faster than below an emulated one.
It has NFS, both ends; it has no XFRM devices, and no second processor.
"""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path

from tests.testlab.machines.container import mounted
from tests.testlab.machines.layers import APT_INSTALL, bare, forget_identity, inside, kept
from tests.testlab.machines.virtual import MASKS, Line, VirtualMachine
from tests.testlab.network.netlab import LabHost

# The kernel, and what roles install: a download at each test otherwise.
_PACKAGES = ("user-mode-linux", "kmod", "nfs-common", "nfs-kernel-server", "psmisc", "quota", "mdadm", "auditd")
# The archives alone of what serves where the kernel does not.
_ARCHIVED = ("nfs-ganesha", "nfs-ganesha-vfs")
# What starts by itself once it is installed, and is for the role to start, or for whose kernel has it: the audit.
_WAITING = ("nfs-server.service", "rpcbind.service", "rpcbind.socket", "auditd.service")
_PROGRAM, _MODULES = "usr/bin/linux.uml", "usr/lib/uml/modules"
_FIRST = Path(__file__).with_name("first-in-user-mode")
# A systemd for whoever logs in takes as long as ten of his commands.
_MASKS = ("systemd.mask=user@.service",)
# Each system call of the machine changes over between two processes, and would wait for its turn beside busy ones.
_AT_ONCE = ("chrt", "--rr", "1")
# With a number space of its own, in which it is the first, nothing of it outlives it.
_ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass
class KernelProgram(VirtualMachine):
    """A machine whose kernel is a process of this one; `more` are disks beside its root's, /dev/ubdb and on."""

    more: tuple[Path, ...] = ()

    def _command(self) -> tuple[str, ...]:
        return (
            *("setpriv", "--pdeathsig", "KILL", *_turns(), *_ALONE, str(self.kernel / "linux"), "mem=512M"),
            *(
                f"ubd0={self.disk}",
                *self._more(),
                "root=/dev/ubda",
                "rw",
                "vec0:transport=tap,ifname=tap0,depth=128,gro=1",
            ),
            *("con=null", "con0=null,fd:1", "console=tty0", f"uml_dir={self.disk.parent}/", "umid=uml", "quiet"),
            *("systemd.show_status=0", *MASKS, *_MASKS, "init=/usr/local/sbin/first"),
            *(f"at={self.address}", f"desk={self.line.desk.address}"),
        )

    def _more(self) -> tuple[str, ...]:
        return tuple(f"ubd{number}={disk}" for number, disk in enumerate(self.more, start=1))


@cache
def _turns() -> tuple[str, ...]:
    """Return what gets a program its turns at once; nothing where a control group of this machine forbids that."""
    allowed = subprocess.run((*_AT_ONCE, "true"), capture_output=True, check=False).returncode == 0
    return _AT_ONCE if allowed else ()


def user_mode(
    disk: Path, host: LabHost, address: IPv4Address, line: Line, more: tuple[Path, ...] = ()
) -> KernelProgram:
    """Return a machine whose kernel is a program."""
    return KernelProgram(_kernel(), disk, host, address, line, more)


def with_user_mode() -> tuple[Path, ...]:
    """Return the layers of a fresh machine whose kernel may become a program, the uppermost first."""
    return (_kernel() / "root", *bare())


def _kernel() -> Path:
    """Return the folder of the program; makes it where it is missing (a minute or two)."""
    below = bare()
    recipe = repr((below, _PACKAGES, _ARCHIVED, _WAITING, _FIRST.read_text()))
    return kept("user-mode", recipe, lambda folder: _make(folder, below))


def _make(folder: Path, below: tuple[Path, ...]) -> None:
    scratch = folder.with_suffix(".scratch")
    with mounted(below, scratch) as root:
        inside(root, *APT_INSTALL, *_PACKAGES)
        inside(root, "systemctl", "disable", "--quiet", *_WAITING)
        shutil.move(root / _PROGRAM, folder / "linux")
        (version,) = (root / _MODULES).iterdir()
        shutil.move(version, root / "usr/lib/modules" / version.name)
        inside(root, "depmod", version.name)
        shutil.copy(_FIRST, root / "usr/local/sbin/first")
        (root / "usr/local/sbin/first").chmod(0o755)
        inside(root, "apt-get", "clean")
        inside(root, *APT_INSTALL, "--download-only", *_ARCHIVED)
        forget_identity(root)
    (scratch / "upper").rename(folder / "root")
    shutil.rmtree(scratch)
