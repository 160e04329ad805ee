"""Cached root folders of test nodes, as overlay layers, and the package mirrors they are made from.

Mirrors, proxies and certificate authorities are those of this machine's apt; the project contains none of them. The
module also removes what killed test processes left behind.
"""

import fcntl
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from bedplate.files import is_alive
from tests.testlab.machines.container import CommandError, call, cgroups, mounted, remove_cgroup

# Debian 12; `make test-nodes RELEASE=trixie` runs the tests on Debian 13.
RELEASE = os.environ.get("RELEASE", "bookworm")
# Read at import: during a test run the variable leads the product to a temporary folder.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "bedplate"
# Retry downloads, and fail if an index is missing; by default `apt-get update` only warns.
APT_GET = ("apt-get", "--quiet", "-oAcquire::Retries=5", "-oAPT::Update::Error-Mode=any")
APT_INSTALL = (*APT_GET, "install", "--yes", "--no-install-recommends")
_DEBIAN = "http://deb.debian.org/debian"
_SECURITY = "http://deb.debian.org/debian-security"
# The settings of apt that are needed to reach a mirror.
_MIRROR_SETTINGS = re.compile(r"Acquire::(https?|Retries|Check-)")
_ENTRY = re.compile(r"^(?:URIs:|deb)\s+(?:\[.*\]\s+)?(https?://\S+?)/?(?:\s|$)", re.MULTILINE)
_AUTHORITIES = Path("/usr/local/share/ca-certificates")


@dataclass(frozen=True, slots=True)
class Mirror:
    """Debian's two archives, the settings of apt to reach them, and this machine's extra certificate authorities."""

    debian: str
    security: str
    settings: str
    proxy: str
    authorities: tuple[Path, ...]

    @property
    def sources(self) -> str:
        """The apt sources of a node, in the format of sources.list."""
        return "".join(
            f"deb {archive} {suite} main\n"
            for archive, suite in (
                (self.debian, RELEASE),
                (self.debian, f"{RELEASE}-updates"),
                (self.security, f"{RELEASE}-security"),
            )
        )

    @property
    def environment(self) -> dict[str, str]:
        """The environment of programs that download; the one of a test run has a proxy that nothing answers."""
        return {**_PLAIN, "http_proxy": self.proxy}


def mirror_here() -> Mirror:
    """Return the mirror that this machine's apt uses, or Debian's archives if it runs another distribution."""
    apt_folder = Path("/etc/apt")
    files = (apt_folder / "sources.list", *sorted(apt_folder.glob("sources.list.d/*")))
    uris = [uri for file in files if file.is_file() for uri in _ENTRY.findall(file.read_text())]
    settings = "".join(
        line for line in call("apt-config", "dump").splitlines(keepends=True) if _MIRROR_SETTINGS.match(line)
    )
    proxy = re.search(r'Acquire::http::Proxy "(.+)"', settings)
    return Mirror(
        debian=next((uri for uri in uris if uri.endswith("/debian")), _DEBIAN),
        security=next((uri for uri in uris if uri.endswith("/debian-security")), _SECURITY),
        settings=settings,
        proxy=proxy.group(1) if proxy else "",
        authorities=tuple(sorted(_AUTHORITIES.glob("*.crt"))),
    )


# Installed, as in a baked image: packages that roles install on many nodes and that start no service.
INSTALLED = (
    *("chrony", "locales-all", "nftables", "auditd", "apparmor"),
    *("apparmor-utils", "libpam-pwquality", "debsums", "acl", "quota", "tmux", "screen", "git", "build-essential"),
    *("htop", "rsync", "unzip", "gnupg", "python3-apt", "cmake", "git-lfs", "jq", "less", "nano", "ninja-build"),
    *("pkg-config", "python3-dev", "python3-venv", "tree", "vim", "zip"),
)
# Only downloaded: daemons that few nodes run, and that would start at every boot.
ARCHIVED = (
    *("nfs-common", "nfs-ganesha", "nfs-ganesha-vfs", "nfs-kernel-server", "stunnel4", "prometheus-node-exporter"),
    *("strongswan-swanctl", "charon-systemd", "openvpn", "tcpdump", "lynis", "pipx", "awscli"),
)


_BARE = (
    *("systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "sudo", "python3", "ca-certificates"),
    *("iproute2", "netbase", "iputils-ping", "procps", "kmod", "curl", "locales", "apt-utils", "whiptail"),
    # minbase of Debian 13 lacks it, and every machine with a root of ext4 has it.
    *(() if RELEASE == "bookworm" else ("e2fsprogs",)),
)
# As on Ubuntu.
_UBUNTU = ("systemd-resolved", "netplan.io", "cloud-init", "needrestart", "unattended-upgrades")
_FILES = {
    "etc/needrestart/conf.d/50-automatic.conf": "$nrconf{restart} = 'a';\n",
    # The default of Ubuntu's package.
    "etc/systemd/resolved.conf.d/ubuntu.conf": "[Resolve]\nLLMNR=no\nMulticastDNS=no\n",
    # netplan's file exists before the first boot: cloud-init needs udev to write it.
    "etc/cloud/cloud.cfg.d/90_test.cfg": """datasource_list: [NoCloud]
network: {config: disabled}
apt: {preserve_sources_list: true}
locale: C.UTF-8
ssh_deletekeys: false
ssh_genkeytypes: [ed25519]
""",
}
_PLAIN = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_PATIENCE = 1200


def bare() -> tuple[Path, ...]:
    """Return the layers of a fresh node, the uppermost first; creates missing ones (a minute)."""
    mirror = mirror_here()
    recipe = repr((RELEASE, _BARE, _UBUNTU, _FILES, mirror))
    return (cached_layer("bare", recipe, lambda root: _bootstrap(root, mirror)),)


def python_root(release: str) -> Path:
    """Return the root of a Debian release with its Python, 3.9 in Debian 11; creates a missing one (two minutes)."""
    mirror = mirror_here()

    def make(root: Path) -> None:
        words = ("--quiet", "--mode=root", "--variant=apt", "--include=python3")
        call(
            "mmdebstrap",
            *words,
            release,
            str(root),
            f"deb {mirror.debian} {release} main",
            seconds=_PATIENCE,
            env=mirror.environment,
        )

    return cached_layer("laptop", repr((release, mirror)), make)


def baked() -> tuple[Path, ...]:
    """Return the layers of a node that has the packages of the roles; creates missing ones (minutes)."""
    below = bare()
    return (cached_layer("baked", repr((below, INSTALLED, ARCHIVED)), lambda root: _bake(root, below)), *below)


def with_pytorch() -> tuple[Path, ...]:
    """Return the layers of a node that also has PyTorch of Debian, which are many packages."""
    below, packages = baked(), ("python3-torch", "python3-numpy")
    return (cached_layer("pytorch", repr((below, packages)), lambda root: _bake(root, below, packages, ())), *below)


def index_wheels(*locks: Path) -> bytes:
    """Return an archive of the wheels of locked requirements for the nodes' Python, from this machine's index."""
    recipe = repr(sorted(lock.read_text() for lock in locks))
    return (cached_layer("wheels", recipe, lambda root: _download(root, locks)) / "wheels.tar").read_bytes()


def _download(root: Path, locks: Sequence[Path]) -> None:
    python, platforms = "3.11.2", ("manylinux_2_28_x86_64", "manylinux2014_x86_64")
    # pip would choose by its own Python.
    compiled = (Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "--no-deps", "--generate-hashes")
    options = ("--python-version", python, *(word for name in platforms for word in ("--platform", name)))
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *options)
    # Settings of pip are those of this machine; its proxy is not that of a test run.
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    for number, lock in enumerate(locks):
        plain = f"{root}/{number}.txt"
        call(*map(str, compiled), "--python-version", python, "--output-file", plain, str(lock), env=own)
        call(*pip, "--dest", f"{root}/wheels", "--requirement", plain, seconds=_PATIENCE, env=own)
    call("tar", "--create", f"--directory={root}/wheels", f"--file={root}/wheels.tar", ".")


def cached_layer(name: str, recipe: str, make: Callable[[Path], None]) -> Path:
    """Return the cached folder of a recipe, or create it; the folder gets its name when it is complete."""
    cache = CACHE / "nodes"
    root = cache / f"{name}-{RELEASE}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}-{RELEASE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            incomplete = root.with_suffix(".making")
            shutil.rmtree(incomplete, ignore_errors=True)
            incomplete.mkdir()
            make(incomplete)
            incomplete.rename(root)
    return root


def _bootstrap(root: Path, mirror: Mirror) -> None:
    settings = root.with_suffix(".conf")  # apt's, here and in the root
    settings.write_text(mirror.settings)
    # The lists stay for later installations.
    options = ("--quiet", "--mode=root", "--variant=minbase", "--skip=cleanup/apt/lists", f"--aptopt={settings}")
    packages = f"--include={','.join((*_BARE, *_UBUNTU))}"
    sources = mirror.sources.splitlines()
    call("mmdebstrap", *options, packages, RELEASE, str(root), *sources, seconds=_PATIENCE, env=mirror.environment)
    settings.unlink()
    apt = root / "etc/apt/apt.conf.d"
    (apt / "99mmdebstrap").rename(apt / "90mirror")
    for authority in mirror.authorities:
        shutil.copy(authority, root / "usr/local/share/ca-certificates" / authority.name)
    run_in_root(root, "update-ca-certificates")
    run_in_root(root, "systemctl", "disable", "--quiet", "ssh.service")
    run_in_root(root, "systemctl", "enable", "--quiet", "ssh.socket", "systemd-networkd.service")
    for path, text in _FILES.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    forget_identity(root)


def _bake(
    root: Path, below: tuple[Path, ...], installed: Sequence[str] = INSTALLED, archived: Sequence[str] = ARCHIVED
) -> None:
    scratch = root.with_suffix(".scratch")
    with mounted(below, scratch) as whole:
        policy = whole / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")  # a bake starts no service
        policy.chmod(0o755)
        run_in_root(whole, *APT_INSTALL, *installed)
        run_in_root(whole, *APT_INSTALL, "--download-only", *archived)
        policy.unlink()
        forget_identity(whole)
    root.rmdir()
    (scratch / "upper").rename(root)
    shutil.rmtree(scratch)


def run_in_root(root: Path, *argv: str) -> None:
    """Run a program in a root folder that is not booted, with this machine's network."""
    settings = [f"--setenv={name}={value}" for name, value in _PLAIN.items()]
    call(
        *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--as-pid2", "--pipe", "--timezone=off"),
        *("--resolv-conf=replace-host", "--directory", str(root), *settings, *argv),
        seconds=_PATIENCE,
    )


def forget_identity(root: Path) -> None:
    """Remove host keys, machine ID and names; each node gets its own."""
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")


# Each systemd needs a dozen inotify instances, and the kernel's default is 128. The higher value remains.
_INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_REQUIRED_INSTANCES = 2048
_NAME = re.compile(r"node(\d+)x\d+-.*")


def remove_leftovers() -> None:
    """Remove what killed test processes left behind, and raise the inotify limit for many nodes."""
    if int(_INOTIFY_INSTANCES.read_text()) < _REQUIRED_INSTANCES:
        _INOTIFY_INSTANCES.write_text(str(_REQUIRED_INSTANCES))
    for folder in _leftovers(Path(gettempdir())):
        _remove(folder)
    for namespace in _leftovers(Path("/run/netns")):
        with suppress(CommandError):
            call("ip", "netns", "delete", namespace.name)
    for folder in _leftovers(Path("/etc/netns")):
        shutil.rmtree(folder, ignore_errors=True)
    for group in filter(_is_leftover, cgroups()):
        remove_cgroup(group)


def _leftovers(folder: Path) -> list[Path]:
    """Return the entries of a folder that belong to labs of dead processes."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return [entry for entry in entries if _is_leftover(entry.name)]


def _is_leftover(name: str) -> bool:
    """Return whether a name contains the ID of a dead process."""
    return bool((match := _NAME.fullmatch(name)) and not is_alive(int(match[1])))


def _remove(folder: Path) -> None:
    for mount in folder.glob("*/disk/root"):
        with suppress(CommandError):
            call("umount", "--recursive", str(mount))
    shutil.rmtree(folder, ignore_errors=True)
