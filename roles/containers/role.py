"""The role `containers`: containerd 2 from Docker's repository, GPUs by CDI, and mirrors of registries.

Debian 12 and 13 have containerd 1.6 and 1.7, which kubelet 1.37 refuses; one source serves them and Ubuntu.
Source: https://github.com/containerd/containerd/blob/main/docs/cri/config.md and docs/hosts.md, read 2026-11.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.facts.server import LinuxName, OsRelease
from pyinfra.operations import files, systemd

from bedplate.catalog.keys import KeyFacts
from roles.base import Changes, DiskSpace, ManagedFile, Role, changed, put_files, render
from roles.nvidia.role import TOOLKIT
from roles.system import LinesFact, Pin, Repository, add, hold_packages, install_packages, move_packages, start_units

CONTAINERD = "containerd.service"
CONFIG, MIRRORS = "/etc/containerd/config.toml", "/etc/containerd/certs.d"
PACKAGE = "containerd.io"
# The unit of the toolkit that writes the CDI specification of the GPUs, at boot and after each change of the driver.
CDI = "nvidia-cdi-refresh.path"
# The image of every pod's first container, which kubelet must never delete. Source: kubeadm 1.36, constants.go.
PAUSE = "registry.k8s.io/pause:3.10.2"
# The API of this registry is not at its name.
_SERVERS = {"docker.io": "https://registry-1.docker.io"}


def repository(distribution: str, codename: str, version: str, key: KeyFacts) -> Repository:
    """Return Docker's repository for a release, of which apt takes one version of containerd only."""
    return Repository(
        name="docker",
        uri=f"https://download.docker.com/linux/{distribution}",
        suites=(codename,),
        components=("stable",),
        key=key.text,
        key_sum=key.checksum,
        pins=(Pin((PACKAGE,), f"{version}-*"),),
    )


@dataclass(frozen=True, slots=True)
class Containers(Role):
    """A machine that runs pods; `version` is containerd's, whose package contains runc; `key` that of its repository.

    `mirrors`: the address that is asked before a registry.

    `gpus`: with NVIDIA's toolkit, from the repository of the role `nvidia`, which is for Ubuntu only.
    """

    version: str
    key: KeyFacts
    gpus: bool = False
    mirrors: Mapping[str, str] = field(default_factory=dict)
    name: ClassVar[str] = "containers"
    space: ClassVar[DiskSpace] = DiskSpace(programs=250, state=80)

    def install(self) -> None:
        """Install containerd with runc, held at its version."""
        release = host.get_fact(OsRelease) or {}
        add((repository(release["id"], release["version_codename"], self.version, self.key),))
        _install(PACKAGE)
        move_packages((PACKAGE,), f"{self.version}-*")
        if self.gpus and host.get_fact(LinuxName) == "Ubuntu":
            _install(TOOLKIT)

    def configure(self) -> Changes:
        """Write containerd's configuration and the mirrors, and remove mirrors that are not planned."""
        for registry in sorted({*host.get_fact(MirroredRegistries)} - self.mirrors.keys()):
            folder = f"{MIRRORS}/{registry}"
            files.directory(name=f"Remove the mirror of {registry}", path=folder, present=False)
        return put_files(*container_files(self.mirrors))

    def activate(self, changes: Changes) -> None:
        """Start containerd, and restart it after a change; containers keep running. Mirrors need no restart."""
        start_units({"Start containerd": CONTAINERD})
        systemd.service(name="Restart containerd", service=CONTAINERD, restarted=True, _if=changed(changes, CONFIG))
        if self.gpus and TOOLKIT in host.get_fact(DebPackages):
            start_units({"Keep the list of GPUs for containers up to date": CDI})


def _install(package: str) -> None:
    install_packages(f"Install {package}", (package,))
    hold_packages(f"Hold the version of {package}", (package,))


class MirroredRegistries(LinesFact):
    """The registries that have a mirror on this machine."""

    def command(self) -> str:
        """List the folders that containerd reads."""
        return f"ls {MIRRORS} 2>/dev/null || true"


def container_files(mirrors: Mapping[str, str]) -> Iterator[ManagedFile]:
    """Yield containerd's configuration, and the mirror of each registry."""
    yield ManagedFile("Configure containerd", CONFIG, render("containers/config.toml.j2", pause=PAUSE))
    for registry, mirror in mirrors.items():
        # A mirror without https is the registry itself.
        origin = mirror if mirror.startswith("http:") else _SERVERS.get(registry, f"https://{registry}")
        text = render("containers/hosts.toml.j2", server=origin, mirror=mirror)
        yield ManagedFile(f"Write the mirror of {registry}", f"{MIRRORS}/{registry}/hosts.toml", text)
