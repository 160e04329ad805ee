"""The role `control`: a member of the control plane, with kubeadm's documents, audit policy and accepted credentials.

kubeadm makes a member's files at boot, and kubelet runs them. Until `/var/lib/etcd/pki` holds the authorities, the
role's units do nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

from pyinfra.context import host
from pyinfra.operations import server, systemd

from bedplate.plan.cluster import ETCD_QUOTA, ClusterNode, ClusterPlan
from bedplate.plan.links import API_PORT
from roles.base import (
    LIBRARY,
    UNITS,
    Changes,
    DiskSpace,
    ManagedFile,
    Role,
    changed,
    command_file,
    file_text,
    render,
    unit_files,
)
from roles.kubernetes.role import SOCKET, yaml_text
from roles.system import Joined, install_packages, start_units

# The mount point of the member's volume. Everything that a replaced machine needs is below it.
VOLUME = "/var/lib/etcd"
PKI, DATA = f"{VOLUME}/pki", f"{VOLUME}/data"
ENCRYPTION = f"{PKI}/encryption.yaml"
# In a separate folder: a container sees a replaced file only in a mounted folder.
_SETTINGS = "/etc/kubernetes/api"
AUDIT, AUTHENTICATION = f"{_SETTINGS}/audit.yaml", f"{_SETTINGS}/authentication.yaml"
PATCHES = "/etc/kubernetes/patches"
LOGS = "/var/log/kubernetes"
_KUBEADM = "kubeadm.k8s.io/v1beta4"


def member_documents(node: ClusterNode) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return kubeadm's documents; the version is that of the installed kubeadm, which the member's program adds.

    All members have the same ClusterConfiguration.
    """
    init = {
        "apiVersion": _KUBEADM,
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": str(node.address), "bindPort": API_PORT},
        "nodeRegistration": {"name": node.name, "criSocket": SOCKET},
        "patches": {"directory": PATCHES},
    }
    return init, _cluster_configuration(node.cluster)


def _cluster_configuration(cluster: ClusterPlan) -> dict[str, Any]:
    return {
        "apiVersion": _KUBEADM,
        "kind": "ClusterConfiguration",
        "clusterName": cluster.fleet,
        "controlPlaneEndpoint": cluster.endpoint,
        "certificatesDir": PKI,
        "encryptionAlgorithm": "ECDSA-P256",
        "networking": {
            "podSubnet": str(cluster.pods),
            "serviceSubnet": str(cluster.services),
            "dnsDomain": "cluster.local",
        },
        "etcd": {"local": {"dataDir": DATA, "extraArgs": _arguments(_etcd(cluster))}},
        "apiServer": {
            "certSANs": list(cluster.api_names),
            "extraArgs": [*_issuers(cluster), *_arguments(API_SERVER)],
            "extraVolumes": [
                _volume("settings", _SETTINGS, read_only=True),
                _volume("audit-log", LOGS, read_only=False),
            ],
        },
        "controllerManager": {"extraArgs": _arguments({"profiling": "false", **_TLS})},
        "scheduler": {"extraArgs": _arguments({"profiling": "false", **_TLS})},
    }


def _etcd(cluster: ClusterPlan) -> dict[str, str]:
    return {
        "initial-cluster": cluster.initial_cluster,
        # A member that has lost its data must never become a cluster of its own.
        "initial-cluster-state": "existing",
        "initial-cluster-token": cluster.fleet,
        "quota-backend-bytes": str(ETCD_QUOTA),
    }


ADMISSION = {
    # Whoever writes a Service with an external address gets the packets that all machines send to it: CVE-2020-8554.
    "enable-admission-plugins": "NodeRestriction,DenyServiceExternalIPs",
    # Pods get new tokens long before; a token that somebody has copied ends.
    "service-account-max-token-expiration": "24h",
    "service-account-extend-token-expiration": "false",
}
"""The options that limit what people may create."""
_TLS = {"tls-min-version": "VersionTLS12"}
API_SERVER = {
    "audit-policy-file": AUDIT,
    "audit-log-path": f"{LOGS}/audit.log",
    "audit-log-maxage": "30",
    "audit-log-maxbackup": "10",
    "audit-log-maxsize": "100",
    "authentication-config": AUTHENTICATION,
    # The folder of certificates is in the container already.
    "encryption-provider-config": ENCRYPTION,
    "encryption-provider-config-automatic-reload": "true",
    "kubelet-certificate-authority": f"{PKI}/ca.crt",
    # A cut tunnel must not end a training run: kubelet ends pods that were evicted meanwhile when the tunnel is back.
    # The nodes of ended instances are deleted, and their pods with them.
    "default-unreachable-toleration-seconds": "259200",
    # A node is not ready while its containerd hangs: its containers run on.
    "default-not-ready-toleration-seconds": "3600",
    "profiling": "false",
    **ADMISSION,
    **_TLS,
}


# kubeadm's issuer, which signed the tokens of older clusters.
_FORMER_ISSUER = "https://kubernetes.default.svc.cluster.local"


def _issuers(cluster: ClusterPlan) -> list[dict[str, str]]:
    """Return the arguments of the issuers of tokens: the first signs, all are accepted."""
    names = ("service-account-issuer", "service-account-issuer", "service-account-jwks-uri")
    values = (cluster.issuer, _FORMER_ISSUER, cluster.key_set)
    return [{"name": name, "value": value} for name, value in zip(names, values, strict=True)]


def _arguments(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _volume(name: str, path: str, *, read_only: bool) -> dict[str, Any]:
    kind = "Directory" if read_only else "DirectoryOrCreate"
    return {"name": name, "hostPath": path, "mountPath": path, "readOnly": read_only, "pathType": kind}


AUTHENTICATION_CONFIGURATION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AuthenticationConfiguration",
    # Without credentials: only the probes of static pods.
    "anonymous": {"enabled": True, "conditions": [{"path": path} for path in ("/livez", "/readyz", "/healthz")]},
}


def _rule(level: str, **matches: Any) -> dict[str, Any]:  # noqa: ANN401  fields of the audit API
    return {"level": level, **matches}


_NOISE = [{"group": "coordination.k8s.io"}, {"group": "events.k8s.io"}, {"group": "", "resources": ["events"]}]
_COMPONENTS = ["system:kube-scheduler", "system:kube-controller-manager"]
_SECRET = [{"group": "", "resources": ["secrets", "configmaps", "serviceaccounts/token"]}]
# Kinds that hold no secret value. Others may: people write keys into the environment of pods, and tokens into reviews.
_GROUPS = ("rbac.authorization.k8s.io", "certificates.k8s.io", "admissionregistration.k8s.io", "networking.k8s.io")
_KINDS = ["nodes", "namespaces", "services", "persistentvolumes", "persistentvolumeclaims", "resourcequotas"]
_PUBLIC = [*({"group": group} for group in _GROUPS), {"group": "policy"}, {"group": "", "resources": _KINDS}]
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        _rule("None", nonResourceURLs=["/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*"]),
        # Leases and events: most of all requests, and they change nothing.
        _rule("None", resources=_NOISE),
        # Who reads or changes secrets, never their content: this log leaves the machine.
        _rule("Metadata", resources=_SECRET),
        # The nodes' and the components' own watching.
        _rule("None", userGroups=["system:nodes"], verbs=["get", "list", "watch"]),
        _rule("None", users=_COMPONENTS, verbs=["get", "list", "watch"]),
        _rule("Request", verbs=["create", "update", "patch", "delete", "deletecollection"], resources=_PUBLIC),
        _rule("Metadata"),
    ],
}


def restart_patch(*texts: str) -> dict[str, Any]:
    """Return the patch with which kubelet restarts the API server after a change of the files that it reads."""
    digest = sha256("".join(texts).encode()).hexdigest()
    return {"metadata": {"annotations": {"bedplate/settings": digest}}}


KUBEADM = "/etc/kubernetes/kubeadm.yaml"
MEMBER, RENEWAL = "bedplate-member.service", "bedplate-member.timer"
SNAPSHOT, TIMER = "bedplate-etcd-snapshot.service", "bedplate-etcd-snapshot.timer"

# The program of operators is on the path of sudo.
PROGRAM = "/usr/local/sbin/bedplate-member"


@dataclass(frozen=True, slots=True)
class Control(Role):
    """A member of the control plane."""

    node: ClusterNode
    name: ClassVar[str] = "control"
    space: ClassVar[DiskSpace] = DiskSpace(programs=50, state=20)

    def install(self) -> None:
        """Install the client of etcd, for snapshots."""
        install_packages("Install the client of etcd", ("etcd-client",))

    def files(self) -> Iterator[ManagedFile]:
        """Yield every file of a member; none holds a secret."""
        yield ManagedFile("Write the configuration of kubeadm", KUBEADM, yaml_text(*member_documents(self.node)))
        audit, authentication = yaml_text(AUDIT_POLICY), yaml_text(AUTHENTICATION_CONFIGURATION)
        yield ManagedFile("Write the audit policy", AUDIT, audit)
        yield ManagedFile("Write who is authenticated", AUTHENTICATION, authentication)
        patch = yaml_text(restart_patch(audit, authentication))
        yield ManagedFile("Write the patch of the API server", f"{PATCHES}/kube-apiserver+merge.yaml", patch)
        for program in ("control-member", "etcd-snapshot", "audit-upload", "controller"):
            yield command_file(f"{LIBRARY}/{program}", f"control/{program}")
        yield command_file(PROGRAM, "control/bedplate-member")
        yield from unit_files("control", MEMBER, RENEWAL, SNAPSHOT, TIMER)
        drop_in = "/etc/systemd/system/kubelet.service.d/80-bedplate-member.conf"
        yield ManagedFile("Let kubelet wait for the member's files", drop_in, file_text("control/kubelet.conf"))

    def activate(self, changes: Changes) -> None:
        """Enable the units; after a change make the member's files again, from which kubelet restarts what differs."""
        systemd.service(name="Enable the member at boot", service=MEMBER, running=None, enabled=True)
        server.shell(name="Make the member's files", commands=[f"systemctl restart {MEMBER}"], _if=changed(changes))
        start_units({"Take snapshots of etcd": TIMER, "Renew certificates": RENEWAL})


def controller_files(name: str, about: str, command: str, **settings: str) -> tuple[ManagedFile, ManagedFile]:
    """Return the rights and the unit of a controller, a module of the bundle with its arguments, with its limits."""
    rights, unit = f"{name}-rights.yaml", f"bedplate-{name}.service"
    text = render("control/controller.service.j2", name=name, about=about.capitalize(), command=command, **settings)
    return (
        ManagedFile(f"Write the rights of the {about}", f"/etc/bedplate/{rights}", file_text(f"{name}/rights.yaml")),
        ManagedFile(f"Write {unit}", f"{UNITS}/{unit}", text),
    )


def start_controller(name: str, about: str, changes: Changes) -> None:
    """Start a controller once the cluster exists, and restart it after a change."""
    unit = f"bedplate-{name}.service"
    start_units({f"Start the {about}": unit}, runs=host.get_fact(Joined))
    systemd.service(name=f"Restart the {about}", service=unit, restarted=True, _if=changed(changes))
