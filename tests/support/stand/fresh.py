"""What a fresh cloud image finds at its first boot: an admin with a key and sudo, a host key, a name server.

The host key is made beforehand, so that whoever logs in can know it.
"""

import shutil
from pathlib import Path

from tests.support.stand.command import call
from tests.support.stand.desk import NAME_SERVER

ADMIN = "ubuntu"
_UID = 1000
_KERNEL = Path(__file__).parent / "kernel"


def make_key(path: Path, comment: str) -> str:
    """Make an Ed25519 key pair at a path; return the public key as ssh-keygen writes it."""
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    return path.with_name(f"{path.name}.pub").read_text().strip()


def prepared(root: Path, admin_key: str) -> str:
    """Write all that into a root that has not booted, and return its public host key."""
    host_key = make_key(root / "etc/ssh/ssh_host_ed25519_key", "node")
    (root / "etc/hostname").write_text("fresh\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 fresh\n")
    (root / "etc/resolv.conf").write_text(f"nameserver {NAME_SERVER}\n")
    (root / "etc/machine-id").write_text("")
    _add_admin(root, admin_key)
    _own_kernel(root)
    return host_key


def _add_admin(root: Path, key: str) -> None:
    call("chroot", str(root), "useradd", "--create-home", "--uid", str(_UID), "--shell", "/bin/bash", ADMIN)
    folder = root / "home" / ADMIN / ".ssh"
    folder.mkdir(mode=0o700)
    (folder / "authorized_keys").write_text(f"{key}\n")
    for path in (folder, folder / "authorized_keys"):
        shutil.chown(path, _UID, _UID)
    sudoers = root / "etc/sudoers.d/90-cloud-init-users"
    sudoers.write_text(f"{ADMIN} ALL=(ALL) NOPASSWD:ALL\n")
    sudoers.chmod(0o440)


def _own_kernel(root: Path) -> None:
    """Give the node a copy of the settings that the kernel has but once."""
    wanted = root / "etc/systemd/system/sysinit.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    unit = root / "etc/systemd/system/own-kernel.service"
    shutil.copy(_KERNEL / unit.name, unit)
    (wanted / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")
    shutil.copy(_KERNEL / "own-kernel", root / "usr/local/sbin/own-kernel")
    # Formats of programs are the kernel's too, and have no copy.
    (unit.parent / "systemd-binfmt.service").symlink_to("/dev/null")
