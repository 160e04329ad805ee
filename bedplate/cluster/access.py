"""The kubeconfig of a person: short-lived tokens, which a member of the control plane makes for their SSH key."""

import base64
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from bedplate.cluster.people import person_name
from bedplate.errors import InputError
from bedplate.plan.cluster import ClusterPlan

# The program on members of the control plane.
_TOKENS = "kube-token"
_KEY_TYPE = "ssh-ed25519"
# Seconds until ssh asks the next member.
_PATIENCE = 5


def person_kubeconfig(cluster: ClusterPlan, person: str, host_keys: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a kubeconfig without a secret. Raises InputError before the cluster or a host key exists."""
    if not cluster.authority:
        raise InputError("the cluster has no authorities", fix="run `bedplate kube init`")
    name, server = cluster.fleet, {"server": f"https://{cluster.endpoint}"}
    authority = base64.b64encode(cluster.authority.encode()).decode()
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", token_command(cluster, person, host_keys)],
            "interactiveMode": "IfAvailable",
            "installHint": "needs ssh 8.5 or newer, and your SSH key",
        }
    }
    context = {"cluster": name, "user": person, "namespace": person_name(person)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {**server, "certificate-authority-data": authority}}],
        "users": [{"name": person, "user": user}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }


def token_command(cluster: ClusterPlan, person: str, host_keys: Mapping[str, Sequence[str]]) -> str:
    """Return the shell command that asks one member after the other for a token; it trusts recorded host keys only."""
    keys = {member.name: _host_key(host_keys.get(member.name, ())) for member in cluster.members}
    trusted = {name: key for name, key in keys.items() if key}
    if not trusted:
        raise InputError(
            "no host key of a control-plane machine is recorded", fix=f"run `bedplate node trust {min(keys)}`"
        )
    return " || ".join(_ssh(person, f"{name}.{cluster.domain}", key) for name, key in trusted.items())


def _host_key(keys: Sequence[str]) -> str:
    return next((key for key in keys if key.startswith(f"{_KEY_TYPE} ")), "")


def _ssh(person: str, host: str, key: str) -> str:
    options = (
        f"ConnectTimeout={_PATIENCE}",
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=/dev/null",
        f"HostKeyAlgorithms={_KEY_TYPE}",
        f"KnownHostsCommand=/bin/echo {host} {' '.join(key.split()[:2])}",
    )
    words = [word for option in options for word in ("-o", quote(option))]
    return " ".join(("ssh", "-T", *words, f"{person}@{host}", _TOKENS))
