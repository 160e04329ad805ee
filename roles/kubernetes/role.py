"""The role `kubernetes`: kubelet with its settings, kubeadm and kubectl from the Kubernetes project's repository.

kubelet does not start before the machine has joined the cluster. Source of the packages:
https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/, read 2026-11.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, ClassVar

from pyinfra.operations import server, systemd
from ruamel.yaml import YAML

from bedplate.catalog.keys import KeyFacts
from bedplate.catalog.tables import minor_of
from bedplate.plan.cluster import NODE_DNS, ClusterNode, NodeKind
from bedplate.plan.registration import MAX_PODS
from roles.base import Changes, DiskSpace, ManagedFile, Role, changed, file_text, put_files
from roles.system import SYSTEMD_SYSCTL, Pin, Repository, add, hold_packages, install_packages, move_packages

FOLDER = "/etc/bedplate/kubelet"
PROGRAM = "/usr/local/lib/bedplate/kubelet-settings"
DROP_IN = "/etc/systemd/system/kubelet.service.d/70-bedplate.conf"
# kubelet runs the programs of this folder by their names.
PROVIDERS = "/usr/local/lib/bedplate/credentials"
MANIFESTS = "/etc/kubernetes/manifests"
CLUSTER_CA, MEMBER_CA = "/etc/kubernetes/pki/ca.crt", "/var/lib/etcd/pki/ca.crt"
SOCKET = "unix:///run/containerd/containerd.sock"
_OTHER = "other"
# Source: bootstrap.sh of Amazon's EKS images: 255 MiB, and 11 MiB a pod; read 2026-11.
_RESERVED_MIB = 255 + 11 * MAX_PODS
# The share of the time before a stop that is left to the pods of the system.
_CRITICAL_SHARE = 3


def kubelet_files(node: ClusterNode) -> Iterator[ManagedFile]:
    """Yield the settings, the program that puts them together before kubelet starts, and the unit's drop-in."""
    yield ManagedFile("Write the settings of kubelet", f"{FOLDER}/kubelet.yaml", yaml_text(common_settings(node)))
    for name, kind in node.kinds.items():
        path = f"{FOLDER}/types/{name or _OTHER}"
        about = f"for {name}" if name else "for any type"
        yield ManagedFile(f"Write the settings of kubelet {about}", f"{path}.yaml", yaml_text(kind_settings(kind)))
        yield ManagedFile(f"Write the labels of the node {about}", f"{path}.labels", labels_text(kind))
    if node.cluster.authority and not node.member:
        yield ManagedFile("Write the certificate of the cluster's authority", CLUSTER_CA, node.cluster.authority)
    yield ManagedFile("Write the name of the node", f"{FOLDER}/node.conf", _identity(node))
    yield ManagedFile(f"Write {PROGRAM}", PROGRAM, file_text("kubernetes/kubelet-settings"), "755")
    if node.is_instance:
        yield ManagedFile(
            "Write the credential providers of kubelet", f"{FOLDER}/credentials.yaml", yaml_text(credential_providers())
        )
        yield _ecr_credentials()
    yield ManagedFile("Write the drop-in of kubelet", DROP_IN, file_text("kubernetes/kubelet.conf"))


def _ecr_credentials() -> ManagedFile:
    program = file_text("kubernetes/ecr-credentials")
    return ManagedFile("Write the credential provider for ECR", f"{PROVIDERS}/ecr", program, "755")


def common_settings(node: ClusterNode) -> dict[str, Any]:
    """Return the KubeletConfiguration without the settings of a type and of a machine."""
    has_devices = any(kind.registration.resources for kind in node.kinds.values())
    static_pods = {"staticPodPath": MANIFESTS} if node.member else {}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **static_pods,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": MEMBER_CA if node.member else CLUSTER_CA},
        },
        "authorization": {"mode": "Webhook"},
        "rotateCertificates": True,
        "serverTLSBootstrap": True,
        "tlsMinVersion": "VersionTLS12",
        "cgroupDriver": "systemd",
        "containerRuntimeEndpoint": SOCKET,
        "clusterDomain": "cluster.local",
        "clusterDNS": [str(NODE_DNS)],
        "maxPods": MAX_PODS,
        "podPidsLimit": 16384,
        "seccompDefault": True,
        # Else the kernel kills the agent of a run with its program, and nobody can say that it was for memory.
        "singleProcessOOMKill": True,
        "systemReserved": {"cpu": "100m", "memory": "1Gi"},
        **(_DEVICE_SETTINGS if has_devices else {}),
        "serializeImagePulls": False,
        "maxParallelImagePulls": 5,
        "imageMaximumGCAge": "336h",
        "containerLogMaxSize": "50Mi",
        "shutdownGracePeriod": f"{node.grace}s",
        "shutdownGracePeriodCriticalPods": f"{node.grace // _CRITICAL_SHARE}s",
    }


# GPUs, network adapters and cores of one pod from one NUMA node where possible; a pod is never refused for it.
_DEVICE_SETTINGS = {"topologyManagerPolicy": "best-effort", "cpuManagerPolicy": "static"}


def credential_providers() -> dict[str, Any]:
    """Return the CredentialProviderConfig of an EC2 instance, which may pull images of ECR."""
    ecr = {
        "name": "ecr",
        "matchImages": ["*.dkr.ecr.*.amazonaws.com", "*.dkr.ecr-fips.*.amazonaws.com"],
        "defaultCacheDuration": "6h",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
    }
    return {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [ecr]}


def kind_settings(kind: NodeKind) -> dict[str, Any]:
    """Return the part of the KubeletConfiguration that depends on the type."""
    reserved = {"cpu": f"{kind.reserved_cpu}m", "memory": f"{_RESERVED_MIB}Mi"}
    return {"kubeReserved": reserved, "registerWithTaints": [_taint(text) for text in kind.registration.taints]}


def _taint(text: str) -> dict[str, str]:
    key_value, _, effect = text.rpartition(":")
    key, _, value = key_value.partition("=")
    return {"key": key, "value": value, "effect": effect}


def labels_text(kind: NodeKind) -> str:
    """Return the labels as kubelet's option takes them."""
    return ",".join(f"{key}={value}" for key, value in sorted(kind.registration.labels.items())) + "\n"


def _identity(node: ClusterNode) -> str:
    """Return the variables of the program; an empty provider id is that of an EC2 instance."""
    values = {
        "NAME": node.name,
        "PROVIDER": "" if node.is_instance else node.provider,
        "ADDRESS": node.address or "",
    }
    return "".join(f"{key}='{value}'\n" for key, value in values.items())


def yaml_text(*documents: Mapping[str, Any]) -> str:
    """Return the documents as YAML, in blocks; the texts of two parts of one document can be joined."""
    yaml, stream = YAML(), StringIO()
    yaml.default_flow_style = False
    yaml.width = 1000
    yaml.dump_all(map(dict, documents), stream)
    return stream.getvalue()


KUBELET = "kubelet.service"
MODULES, SYSCTL = "/etc/modules-load.d/bedplate-kubernetes.conf", "/etc/sysctl.d/70-bedplate-kubernetes.conf"
PACKAGES = ("kubelet", "kubeadm", "kubectl")


def package_version(version: str) -> str:
    """Return the pattern of the packages of a version, with any revision; of a minor version any patch."""
    return f"{version}.*" if version == minor_of(version) else f"{version}-*"


def repository(version: str, key: KeyFacts) -> Repository:
    """Return the repository of a version's minor version, with its packages pinned to the version."""
    return Repository(
        name="kubernetes",
        uri=f"https://pkgs.k8s.io/core:/stable:/v{minor_of(version)}/deb/",
        suites=("/",),
        components=(),
        key=key.text,
        key_sum=key.checksum,
        # kubelet depends on the last two, which have versions of their own.
        pins=(Pin(PACKAGES, package_version(version)), Pin(("kubernetes-cni", "cri-tools"), "*")),
    )


@dataclass(frozen=True, slots=True)
class Kubernetes(Role):
    """A machine of the cluster; a bake has images of ECR to pull."""

    node: ClusterNode
    images: tuple[str, ...] = ()
    name: ClassVar[str] = "kubernetes"
    space: ClassVar[DiskSpace] = DiskSpace(programs=450, state=150)

    @property
    def version(self) -> str:
        """The version of its packages."""
        return self.node.cluster.version if self.node.member else self.node.cluster.kubelet

    def install(self) -> None:
        """Install the packages, held at their version."""
        add((repository(self.version, self.node.cluster.keys["kubernetes"]),))
        install_packages("Install Kubernetes", (*PACKAGES, "kubernetes-cni", "cri-tools"))
        move_packages(PACKAGES, package_version(self.version))
        hold_packages("Hold the version of Kubernetes", PACKAGES)
        if self.images:
            put_files(_ecr_credentials())
        for image in self.images:
            server.shell(name=f"Pull {image}", commands=[f"{PROVIDERS}/ecr pull {image}"])

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
        systemd.service(name="Enable kubelet at boot", service=KUBELET, running=None, enabled=True)
        server.shell(name="Restart kubelet", commands=[f"systemctl try-restart {KUBELET}"], _if=changed(changes))
