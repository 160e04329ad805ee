"""The configuration of a member: kubeadm's documents, the audit policy, and the accepted credentials."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from bedplate.plan.cluster import ClusterNode, ClusterPlan
from bedplate.plan.links import API_PORT
from roles.kubernetes.kubelet import SOCKET

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
# The largest size that etcd suggests; the volume of 32 GiB also holds snapshots. Source: etcd.io, "System limits".
_QUOTA = 8 * 1024**3


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
            "extraArgs": _arguments(_API_SERVER),
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
        "initial-cluster-state": "new",
        "initial-cluster-token": cluster.fleet,
        "quota-backend-bytes": str(_QUOTA),
    }


_TLS = {"tls-min-version": "VersionTLS12"}
_API_SERVER = {
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
    # A cut tunnel must not end a training run: pods of an unreachable node are replaced after an hour.
    "default-unreachable-toleration-seconds": "3600",
    "profiling": "false",
    **_TLS,
}


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
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        _rule("None", nonResourceURLs=["/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*"]),
        # Leases and events: most of all requests, and they change nothing.
        _rule("None", resources=_NOISE),
        # Who reads or changes secrets, never their content.
        _rule("Metadata", resources=_SECRET),
        # The nodes' and the components' own watching.
        _rule("None", userGroups=["system:nodes"], verbs=["get", "list", "watch"]),
        _rule("None", users=_COMPONENTS, verbs=["get", "list", "watch"]),
        _rule("Request", verbs=["create", "update", "patch", "delete", "deletecollection"]),
        _rule("Metadata"),
    ],
}


def restart_patch(*texts: str) -> dict[str, Any]:
    """Return the patch with which kubelet restarts the API server after a change of the files that it reads."""
    digest = sha256("".join(texts).encode()).hexdigest()
    return {"metadata": {"annotations": {"bedplate/settings": digest}}}
