"""Debian's kernel, and a fresh machine's root with what belongs to it: made once, kept outside the checkout."""

import shutil
import subprocess
from ipaddress import IPv4Address
from pathlib import Path

from tests.support.netlab import LabHost
from tests.support.stand.command import call
from tests.support.stand.layer import bare, forget_identity, inside, kept
from tests.support.stand.mirror import APT_INSTALL
from tests.support.stand.overlay import mounted
from tests.support.virtual.line import Line
from tests.support.virtual.machine import VirtualMachine

# The kernel, the first program's tools, and what the role `storage` installs: in a virtual machine that takes minutes.
_PACKAGES = ("linux-image-cloud-amd64", "busybox-static", "nfs-common", "nfs-kernel-server", "psmisc")
# What starts by itself once it is installed, and is for the role to start.
_IDLE = ("nfs-server.service", "rpcbind.service", "rpcbind.socket")
_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "ext4")
_FIRST = Path(__file__).with_name("first")


def kernel() -> Path:
    """Return the folder of `vmlinuz` and `initrd`; makes it where it is missing (a minute or two)."""
    below = bare()
    recipe = repr((below, _PACKAGES, _IDLE, _MODULES, _FIRST.read_text()))
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
        inside(root, "systemctl", "disable", "--quiet", *_IDLE)
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
