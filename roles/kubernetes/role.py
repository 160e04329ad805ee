"""The role `kubernetes`: kubelet, kubeadm and kubectl from the Kubernetes project's repository, and kubelet's settings.

kubelet does not start before the machine has joined the cluster. Source of the packages:
https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/, read 2026-11.
"""

from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import server, systemd

from bedplate.plan.cluster import ClusterNode
from roles.base import Changes, DiskSpace, Role, changed
from roles.files import ManagedFile, file_text, put_files
from roles.kubernetes.kubelet import kubelet_files
from roles.repository import Pin, Repository, add
from roles.system import SYSTEMD_SYSCTL, hold_packages, install_packages

KUBELET = "kubelet.service"
MODULES, SYSCTL = "/etc/modules-load.d/bedplate-kubernetes.conf", "/etc/sysctl.d/70-bedplate-kubernetes.conf"
PACKAGES = ("kubelet", "kubeadm", "kubectl")
# Fingerprint DE15 B144 86CD 377B 9E87 6E1A 2346 54DA 9A29 6436. This copy of the key expires on 2026-12-29; the project
# extends it every two years.
_KEY_SUM = "7627818cf7bae52f9008c93e8b1f961f53dea11d40891778de216fb1b43be54d"


def repository(version: str) -> Repository:
    """Return the repository of a minor version, with its packages pinned to it."""
    return Repository(
        name="kubernetes",
        uri=f"https://pkgs.k8s.io/core:/stable:/v{version}/deb/",
        suites=("/",),
        components=(),
        key=file_text("kubernetes/repository.asc"),
        key_sum=_KEY_SUM,
        # kubelet depends on the last two, which have versions of their own.
        pins=(Pin(PACKAGES, f"{version}.*"), Pin(("kubernetes-cni", "cri-tools"), "*")),
    )


@dataclass(frozen=True, slots=True)
class Kubernetes(Role):
    """A machine of the cluster."""

    node: ClusterNode
    name: ClassVar[str] = "kubernetes"
    space: ClassVar[DiskSpace] = DiskSpace(programs=450, state=150)

    @property
    def version(self) -> str:
        """The minor version of its packages."""
        return self.node.cluster.version if self.node.member else self.node.cluster.kubelet

    def install(self) -> None:
        """Install the packages, held at their version."""
        add((repository(self.version),))
        install_packages("Install Kubernetes", (*PACKAGES, "kubernetes-cni", "cri-tools"))
        hold_packages("Hold the version of Kubernetes", PACKAGES)

    def configure(self) -> Changes:
        """Write the settings of kubelet and of the kernel."""
        return put_files(
            ManagedFile("Write the kernel modules for pods", MODULES, file_text("kubernetes/modules.conf")),
            ManagedFile("Write the sysctls for pods", SYSCTL, file_text("kubernetes/sysctl.conf")),
            *kubelet_files(self.node),
        )

    def activate(self, changes: Changes) -> None:
        """Load the kernel's settings, and restart a running kubelet after a change; pods keep running."""
        server.shell(
            name="Load the kernel's settings for pods",
            commands=["systemctl restart systemd-modules-load.service", f"{SYSTEMD_SYSCTL} {SYSCTL}"],
            _if=changed(changes, MODULES, SYSCTL),
        )
        systemd.daemon_reload(name="Reload systemd for kubelet", _if=changed(changes))
        systemd.service(name="Enable kubelet at boot", service=KUBELET, running=None, enabled=True)
        server.shell(name="Restart kubelet", commands=[f"systemctl try-restart {KUBELET}"], _if=changed(changes))
