"""The state of the cluster: members, versions, nodes by pool, and add-ons. Observation in, status and faults out."""

import ssl
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network
from typing import Any

from cryptography import x509
from lightkube.resources.apps_v1 import DaemonSet, Deployment
from lightkube.resources.certificates_v1 import CertificateSigningRequest
from lightkube.resources.core_v1 import ConfigMap, Node

from bedplate.kubernetes.addons import ADDON_LABEL
from bedplate.kubernetes.approver import ALARMS, is_pending
from bedplate.kubernetes.approver import LEASE as APPROVER
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.demand import GATE, is_ready, readiness
from bedplate.kubernetes.lease import NAME as CAPACITY
from bedplate.kubernetes.lease import read_holder
from bedplate.plan.cluster import NODE_PODS, ClusterPlan, has_version, minor_version
from bedplate.plan.links import API_PORT
from bedplate.rounds import ask_each

_SECONDS = 3
_EXPIRES_SOON = timedelta(days=14)
# Kubernetes supports kubelets of the last three minor versions. Source: kubernetes.io/releases/version-skew-policy.
_OLDEST = 3
_CONTROL_GROUP = "control plane"
_POOL, _SITE, _CONTROL = "bedplate/pool", "bedplate/site", "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member of the control plane, and the end of its API server's certificate; None if it is unreachable."""

    name: str
    certificate: datetime | None


@dataclass(frozen=True, slots=True)
class NodeCount:
    """The nodes of a pool, a site or the control plane, with the versions of kubelet and containerd."""

    group: str
    all: int
    ready: int
    gated: int
    cordoned: int
    kubelets: tuple[str, ...]
    containerd: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddonState:
    """The pods of an add-on that are ready, and that it should have."""

    name: str
    ready: int
    desired: int


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The state of the cluster, the planned versions in words, and what is wrong with it.

    `leaders` are the members whose approver and capacity controller act, `waiting` the requests for certificates.
    """

    version: str
    planned: str
    members: tuple[MemberState, ...]
    nodes: tuple[NodeCount, ...]
    addons: tuple[AddonState, ...]
    faults: tuple[str, ...]
    leaders: Mapping[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()


def read_status(cluster: ClusterClient, plan: ClusterPlan, now: datetime, port: int = API_PORT) -> ClusterStatus:
    """Ask the API server and each member, and return the state."""
    version = str(cluster.call("read the version", lambda api: _get_json(api, "/version"))["gitVersion"])
    nodes, _ = cluster.objects(Node)
    workloads = [item for kind in (DaemonSet, Deployment) for item in cluster.objects(kind, labels=_ADDONS)[0]]
    requests, _ = cluster.objects(CertificateSigningRequest)
    status = assess(version, plan, member_states(plan, port), nodes, workloads, now)
    leaders = {name: read_holder(cluster, lease) for name, lease in _LEASES.items()}
    pending = [(request.metadata, request.spec.username) for request in requests if is_pending(request)]
    waiting = {f"{metadata.name} of {user}": metadata.creationTimestamp for metadata, user in pending}
    faults = (*_waiting_faults(leaders, waiting, now), *read_alarms(cluster))
    return replace(status, leaders=leaders, waiting=tuple(waiting), faults=(*status.faults, *faults))


_ADDONS = {ADDON_LABEL: None}
_LEASES = {"approver": APPROVER, "capacity": CAPACITY}
# A machine boots, and a request waits for EC2's answer.
_PATIENCE = timedelta(minutes=10)
_MOST_NAMES = 5


def _waiting_faults(leaders: Mapping[str, str], waiting: Mapping[str, datetime], now: datetime) -> Iterator[str]:
    for name, leader in leaders.items():
        if not leader:
            yield f"no control plane member acts as {name}: `systemctl status bedplate-{name}` on each member"
    for row, created in waiting.items():
        if now - created > _PATIENCE:
            where = leaders["approver"] or "a member"
            yield f"the request {row} waits: `journalctl -u bedplate-approver` on {where} has the reason"


def read_routers(cluster: ClusterClient, names: Container[str]) -> tuple[str, ...]:
    """Return the first two addresses, of the overlay and the bridge, of the pods' blocks of these machines."""
    nodes = (node for node in cluster.objects(Node)[0] if node.metadata.name in names)
    blocks = [node.spec.podCIDR for node in nodes if node.spec and node.spec.podCIDR]
    return tuple(f"{block.partition('/')[0]}/31" for block in blocks)


def read_alarms(cluster: ClusterClient) -> tuple[str, ...]:
    """Return the certificates that were issued for something else than approved, as the approver has recorded them."""
    record = cluster.find(ConfigMap, ALARMS, "kube-system")
    return tuple(((record and record.data) or {}).values())


def _get_json(api: Any, path: str) -> Mapping[str, Any]:  # noqa: ANN401  lightkube's own client
    reply = api._client._client.get(path)  # noqa: SLF001  lightkube has no call for it
    reply.raise_for_status()
    answer: Mapping[str, Any] = reply.json()
    return answer


def member_states(plan: ClusterPlan, port: int) -> tuple[MemberState, ...]:
    """Read the certificate of each member's API server, all at the same time."""
    addresses = {member.name: str(member.address) for member in plan.members}
    ends, _ = ask_each(addresses, lambda name: _certificate_end(addresses[name], port), len(addresses))
    return tuple(MemberState(name, end) for name, end in ends.items())


def _certificate_end(address: str, port: int) -> datetime | None:
    try:
        text = ssl.get_server_certificate((address, port), timeout=_SECONDS)
    except OSError:
        return None
    return x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc


def assess(  # noqa: PLR0913, PLR0917  all that is observed
    version: str,
    plan: ClusterPlan,
    members: Sequence[MemberState],
    nodes: Sequence[Any],
    workloads: Sequence[Any],
    now: datetime,
) -> ClusterStatus:
    """Return the status of an observed cluster. Pure."""
    groups: dict[str, list[Any]] = {}
    for node in nodes:
        groups.setdefault(_group(node), []).append(node)
    counts = tuple(_count(name, groups[name]) for name in sorted(groups))
    addons = _addon_states(workloads)
    planned = f"Kubernetes {plan.version}, on workers {plan.kubelet}, containerd {plan.containerd}"
    late = (*_version_faults(version, counts, plan), *_proxy_faults(workloads, plan))
    faults = (*late, *_member_faults(members, now), *_skew_faults(version, counts), *_addon_faults(addons))
    faults = (*faults, *_node_faults(nodes, now), *_gate_faults(nodes), *_block_faults(nodes, plan.pods, now))
    return ClusterStatus(version, planned, tuple(members), counts, addons, faults)


def _node_faults(nodes: Iterable[Any], now: datetime) -> Iterator[str]:
    """Yield a fault for each group with nodes that are not ready for a while."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        condition = readiness(node)
        changed = (condition and condition.lastTransitionTime) or node.metadata.creationTimestamp
        if not is_ready(node) and now - changed > _PATIENCE:
            groups.setdefault(_group(node), []).append(node.metadata.name)
    for group, names in groups.items():
        yield f"{group}: not ready: {_some(names)}: `bedplate node logs {names[0]}` shows why"


# A verdict of a failed health gate, and what follows from it.
_GATES = {
    "hardware": "broken hardware: the capacity controller replaces an instance; repair a physical machine",
    "software": "broken software, no new pods: `kubectl describe node {}` shows what to repair",
    "unknown": "the gate cannot tell, no new pods: `kubectl describe node {}` shows what did not answer",
}


def _gate_faults(nodes: Iterable[Any]) -> Iterator[str]:
    """Yield a fault for each verdict of failed health gates in a group."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        verdict = next((taint.value for taint in node.spec.taints or () if taint.key == GATE), "")
        if verdict in _GATES:
            groups.setdefault((_group(node), verdict), []).append(node.metadata.name)
    for (group, verdict), names in sorted(groups.items()):
        yield f"{group}: {_some(names)}: {_GATES[verdict].format(names[0])}"


def _block_faults(nodes: Sequence[Any], pods: IPv4Network, now: datetime) -> Iterator[str]:
    """Yield a fault of nodes without a block of addresses: each gets its own, and without one it runs no pod."""
    late = [node.metadata for node in nodes if not node.spec.podCIDR]
    names = [metadata.name for metadata in late if now - metadata.creationTimestamp > _PATIENCE]
    blocks = 1 << (NODE_PODS - pods.prefixlen)
    if names and len(nodes) > blocks:
        what = f"{pods} is enough for {blocks} nodes, and there are {len(nodes)}"
        yield f"no addresses for pods: {_some(names)}: {what}: end some, and lower the maximums of groups"
    elif names:
        yield f"no addresses for pods: {_some(names)}: `kubectl describe node {names[0]}` shows why"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _group(node: Any) -> str:  # noqa: ANN401  lightkube's own types, whose every field is optional
    labels = node.metadata.labels or {}
    if _CONTROL in {taint.key for taint in node.spec.taints or ()} or _CONTROL in labels:
        return _CONTROL_GROUP
    return labels.get(_POOL) or labels.get(_SITE) or "other"


def _count(group: str, nodes: Sequence[Any]) -> NodeCount:
    return NodeCount(
        group=group,
        all=len(nodes),
        ready=sum(map(is_ready, nodes)),
        gated=sum(GATE in {taint.key for taint in node.spec.taints or ()} for node in nodes),
        cordoned=sum(bool(node.spec.unschedulable) for node in nodes),
        kubelets=_versions(nodes, "kubeletVersion"),
        containerd=_versions(nodes, "containerRuntimeVersion"),
    )


def _versions(nodes: Iterable[Any], field: str) -> tuple[str, ...]:
    infos = (node.status and node.status.nodeInfo for node in nodes)
    versions = {getattr(info, field).removeprefix("containerd://") for info in infos if info}
    return tuple(sorted(versions - {""}))


def _addon_states(workloads: Iterable[Any]) -> tuple[AddonState, ...]:
    ready: Counter[str] = Counter()
    desired: Counter[str] = Counter()
    for item in workloads:
        name, status = item.metadata.labels[ADDON_LABEL], item.status
        is_daemon = item.kind == "DaemonSet" or hasattr(status, "desiredNumberScheduled")
        ready[name] += (status.numberReady if is_daemon else status.readyReplicas) or 0
        desired[name] += (status.desiredNumberScheduled if is_daemon else item.spec.replicas) or 0
    return tuple(AddonState(name, ready[name], desired[name]) for name in sorted(desired))


def _version_faults(version: str, groups: Iterable[NodeCount], plan: ClusterPlan) -> Iterator[str]:
    """Yield each version that is not the planned one."""
    fix = "run `bedplate kube upgrade`"
    if not has_version(version, plan.version):
        yield f"the API server has version {version}, the plan {plan.version}: {fix}"
    for group in groups:
        kubelet = plan.version if group.group == _CONTROL_GROUP else plan.kubelet
        others = [f"kubelet {name}" for name in group.kubelets if not has_version(name, kubelet)]
        others += [f"containerd {name}" for name in group.containerd if not has_version(name, plan.containerd)]
        if others:
            yield f"{group.group}: {', '.join(others)}; planned: kubelet {kubelet}, containerd {plan.containerd}: {fix}"


def _proxy_faults(workloads: Iterable[Any], plan: ClusterPlan) -> Iterator[str]:
    """Yield a fault of a kube-proxy that has not followed the control plane."""
    for item in workloads:
        images = (container.image for container in item.spec.template.spec.containers)
        for image in images if item.metadata.name == "kube-proxy" else ():
            version = image.partition("@")[0].rpartition(":")[2]
            if not has_version(version, plan.version):
                yield f"kube-proxy {version}; planned: {plan.version}: run `bedplate kube addons apply`"


def _member_faults(members: Iterable[MemberState], now: datetime) -> Iterator[str]:
    for member in members:
        if member.certificate is None:
            yield f"{member.name}: the API server does not answer"
        elif member.certificate < now + _EXPIRES_SOON:
            end = member.certificate.astimezone(UTC)
            yield f"{member.name}: the certificate of the API server ends on {end:%Y-%m-%d}"


def _skew_faults(version: str, groups: Iterable[NodeCount]) -> Iterator[str]:
    server = minor_version(version)
    for group in groups:
        for kubelet in group.kubelets:
            if not server - _OLDEST <= minor_version(kubelet) <= server:
                yield f"{group.group}: kubelet {kubelet} does not work with the API server's {version}"


def _addon_faults(addons: Iterable[AddonState]) -> Iterator[str]:
    for addon in addons:
        if addon.ready < addon.desired:
            yield f"{addon.name}: {addon.desired - addon.ready} of {addon.desired} pods are not ready"
