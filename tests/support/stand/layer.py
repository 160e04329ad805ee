"""The roots that test nodes stand on: made once by debootstrap, kept outside the checkout, never written to again.

`bare` is what a fresh cloud image has. `baked` lies over it and holds what the roles install, as a baked image would:
applies on it spend no time on downloads. Several processes may ask at once; one makes it, the others wait.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.stand.baked import ARCHIVED, INSTALLED
from tests.support.stand.command import call
from tests.support.stand.mirror import APT_GET, APT_INSTALL, RELEASE, Mirror, mirror_here
from tests.support.stand.overlay import mounted

_BARE = (
    *("systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "sudo", "python3", "ca-certificates"),
    *("iproute2", "netbase", "iputils-ping", "procps", "kmod", "curl", "locales", "apt-utils", "whiptail"),
)
_PLAIN = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_PATIENCE = 1200


def bare() -> tuple[Path, ...]:
    """Return the layers of a fresh machine, the uppermost first; makes them where they are missing (two minutes)."""
    mirror = mirror_here()
    return (kept("bare", repr((_BARE, mirror)), lambda root: _bootstrap(root, mirror)),)


def baked() -> tuple[Path, ...]:
    """Return the layers of a machine that holds the roles' packages; makes them where they are missing (minutes)."""
    below = bare()
    return (kept("baked", repr((below, INSTALLED, ARCHIVED)), lambda root: _bake(root, below)), *below)


def kept(name: str, recipe: str, make: Callable[[Path], None]) -> Path:
    """Return the folder that was made by this recipe; where there is none, make it whole and give it its name."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "bedplate" / "stand"
    root = cache / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            making = root.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            make(making)
            making.rename(root)
    return root


def _bootstrap(root: Path, mirror: Mirror) -> None:
    env = {**_PLAIN, "http_proxy": mirror.proxy}
    packages = f"--include={','.join(_BARE)}"
    call("debootstrap", "--variant=minbase", packages, RELEASE, str(root), mirror.debian, seconds=_PATIENCE, env=env)
    (root / "etc/apt/sources.list").write_text(mirror.sources)
    (root / "etc/apt/apt.conf.d/90mirror").write_text(mirror.settings)
    for authority in mirror.authorities:
        shutil.copy(authority, root / "usr/local/share/ca-certificates" / authority.name)
    inside(root, "update-ca-certificates")
    inside(root, *APT_GET, "update")
    inside(root, *APT_GET, "upgrade", "--yes")
    forget_identity(root)


def _bake(root: Path, below: tuple[Path, ...]) -> None:
    scratch = root.with_suffix(".scratch")
    with mounted(below, scratch) as whole:
        policy = whole / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")  # a bake starts no service
        policy.chmod(0o755)
        inside(whole, *APT_INSTALL, *INSTALLED)
        inside(whole, *APT_INSTALL, "--download-only", *ARCHIVED)
        policy.unlink()
        forget_identity(whole)
    root.rmdir()
    (scratch / "upper").rename(root)
    shutil.rmtree(scratch)


def inside(root: Path, *argv: str) -> None:
    """Run a program in a root that is not booted, with this machine's network."""
    settings = [f"--setenv={name}={value}" for name, value in _PLAIN.items()]
    call(
        *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--as-pid2", "--pipe", "--timezone=off"),
        *("--resolv-conf=replace-host", "--directory", str(root), *settings, *argv),
        seconds=_PATIENCE,
    )


def forget_identity(root: Path) -> None:
    """Remove what makes a machine itself: each node gets its own."""
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/machine-id").write_text("")
    for name in ("resolv.conf", "hostname"):
        (root / "etc" / name).unlink(missing_ok=True)
