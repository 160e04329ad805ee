"""Where this machine's apt finds packages, and what it must know to reach them: a test node's root asks the same.

Reads this machine's settings when a root is made; none of them is written down in the project.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from bedplate.writer import is_alive
from tests.testlab.machines.container import CommandError, call, groups, mounted, remove_group

RELEASE = "bookworm"
# A lost download is tried again, and an index that stays lost is an error: by default `apt-get update` only warns.
APT_GET = ("apt-get", "--quiet", "-oAcquire::Retries=5", "-oAPT::Update::Error-Mode=any")
APT_INSTALL = (*APT_GET, "install", "--yes", "--no-install-recommends")
_DEBIAN = "http://deb.debian.org/debian"
_SECURITY = "http://deb.debian.org/debian-security"
# Settings of apt that say how to reach a mirror; what else this machine prefers is its own matter.
_REACHING = re.compile(r"Acquire::(https?|Retries|Check-)")
_ENTRY = re.compile(r"^(?:URIs:|deb)\s+(?:\[.*\]\s+)?(https?://\S+?)/?(?:\s|$)", re.MULTILINE)
_AUTHORITIES = Path("/usr/local/share/ca-certificates")


@dataclass(frozen=True, slots=True)
class Mirror:
    """The two archives of Debian, apt's settings to reach them, and the authorities that this machine trusts."""

    debian: str
    security: str
    settings: str
    proxy: str
    authorities: tuple[Path, ...]

    @property
    def sources(self) -> str:
        """The sources of a node, in the form of sources.list."""
        return "".join(
            f"deb {archive} {suite} main\n"
            for archive, suite in (
                (self.debian, RELEASE),
                (self.debian, f"{RELEASE}-updates"),
                (self.security, f"{RELEASE}-security"),
            )
        )


def mirror_here() -> Mirror:
    """Return what this machine's apt uses; Debian's own archives where it has sources of another distribution."""
    places = Path("/etc/apt")
    files = (places / "sources.list", *sorted(places.glob("sources.list.d/*")))
    found = [uri for file in files if file.is_file() for uri in _ENTRY.findall(file.read_text())]
    settings = "".join(line for line in call("apt-config", "dump").splitlines(keepends=True) if _REACHING.match(line))
    proxy = re.search(r'Acquire::http::Proxy "(.+)"', settings)
    return Mirror(
        debian=next((uri for uri in found if uri.endswith("/debian")), _DEBIAN),
        security=next((uri for uri in found if uri.endswith("/debian-security")), _SECURITY),
        settings=settings,
        proxy=proxy.group(1) if proxy else "",
        authorities=tuple(sorted(_AUTHORITIES.glob("*.crt"))),
    )


# Installed, as in a baked image: what roles give to many nodes, and what starts nothing by itself.
INSTALLED = (
    *("chrony", "unattended-upgrades", "needrestart", "locales-all", "nftables", "auditd", "apparmor"),
    *("apparmor-utils", "libpam-pwquality", "debsums", "acl", "quota", "tmux", "screen", "git", "build-essential"),
    *("htop", "rsync", "unzip", "gnupg", "python3-apt", "cmake", "git-lfs", "jq", "less", "nano", "ninja-build"),
    *("pkg-config", "python3-dev", "python3-venv", "tree", "vim", "zip"),
)
# Their archives alone: daemons that few nodes run, and that would start at every boot.
ARCHIVED = (
    *("nfs-common", "nfs-ganesha", "nfs-ganesha-vfs", "nfs-kernel-server", "stunnel4", "prometheus-node-exporter"),
    *("strongswan-swanctl", "charon-systemd", "openvpn", "tcpdump", "lynis", "pipx", "awscli"),
)


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


# Each systemd watches a dozen files and folders; 128 in all is the kernel's default. It stays raised.
_WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH = 2048
_NAME = re.compile(r"stand(\d+)x\d+-.*")


def make_room() -> None:
    """Clear away what the stands of dead processes have left, and let many nodes run."""
    if int(_WATCHERS.read_text()) < _ENOUGH:
        _WATCHERS.write_text(str(_ENOUGH))
    for folder in _left(Path(gettempdir())):
        _remove(folder)
    for name in _left(Path("/run/netns")):
        with suppress(CommandError):
            call("ip", "netns", "delete", name.name)
    for folder in _left(Path("/etc/netns")):
        shutil.rmtree(folder, ignore_errors=True)
    for group in filter(_is_left, groups()):
        remove_group(group)


def _left(place: Path) -> list[Path]:
    """Return what stands that nobody keeps any more have in a folder."""
    entries = sorted(place.iterdir()) if place.is_dir() else []
    return [entry for entry in entries if _is_left(entry.name)]


def _is_left(name: str) -> bool:
    """Tell whether something is by its name a stand's that nobody keeps any more."""
    return bool((named := _NAME.fullmatch(name)) and not is_alive(int(named[1])))


def _remove(folder: Path) -> None:
    for mount in folder.glob("*/disk/root"):
        with suppress(CommandError):
            call("umount", "--recursive", str(mount))
    shutil.rmtree(folder, ignore_errors=True)
