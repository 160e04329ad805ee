"""Pods and nodes of a cluster, joined with the machines that AWS reports: one observation for the planner."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lightkube.models.core_v1 import NodeCondition
from lightkube.resources.core_v1 import Node as ClusterNode
from lightkube.resources.core_v1 import Pod as ClusterPod

from bedplate.capacity.observation import Cordon, Machine, Node, Observation, Pod, Pool, Size
from bedplate.kubernetes.pods import (
    Claims,
    Placement,
    Volumes,
    blocking_taints,
    claim_names,
    combine,
    gang_of,
    has_ended,
    is_critical,
    is_daemon,
    is_movable,
    machine_size,
    owner_of,
    placement_of,
    pod_size,
    scheduler_message,
    seconds,
    size_of,
    subtract,
    tolerated,
    unsupported,
    volume_placements,
    waits_for_machine,
)
from bedplate.kubernetes.queued import queued_pods
from bedplate.kubernetes.spread import Limits, limits_of, unsupported_spread

CORDONED = "bedplate/cordoned-by"
"""Annotation of a node that the controller has cordoned; a person's cordon has none."""
GATE = "bedplate/gate"
"""The taint of a node that must not have new pods, and the annotation in which the node reports its gate.

A kubelet may annotate its own node only, and may not change taints.
"""
_VERDICTS = ("hardware", "software", "unknown")
# Taints that the cluster derives from other parts of an observation: a cordon, and the condition `Ready`.
UNSCHEDULABLE, NOT_READY = "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"
_INSTANCE = re.compile(r"aws:///[^/]*/(i-[0-9a-f]+)")
# A node registers as not ready and is ready within this time, or it never was. An empty node that is not ready for
# longer than `_LOST` has failed: its machine counts as one that never joined.
_REGISTERING, _LOST = 60.0, 900.0
# A node that is not ready for so long is replaced, once no pod is bound to it that runs nowhere else.
_DEAD = 3600.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The reports of the API server at one time; `ends` is when the last pod of a node ended or was deleted.

    `since` is when the reports began: an earlier end is unknown, so that no node has been idle for longer.
    `claims` have the keys of `volume_placements`, `workloads` are those of Kueue.
    """

    pods: Sequence[ClusterPod]
    nodes: Sequence[ClusterNode]
    ends: Mapping[str, float]
    since: float
    claims: Claims = field(default_factory=dict)
    volumes: Volumes = field(default_factory=dict)
    workloads: Sequence[Any] = ()


def instance_of(node: ClusterNode) -> str | None:
    """Return the EC2 instance of a node; None for a physical machine."""
    match = _INSTANCE.fullmatch((node.spec.providerID if node.spec else None) or "")
    return match[1] if match else None


def cordon_of(node: ClusterNode) -> Cordon | None:
    """Return who has cordoned a node."""
    if not (node.spec and node.spec.unschedulable):
        return None
    return Cordon.PLANNER if is_annotated(node) else Cordon.HUMAN


def is_annotated(node: ClusterNode) -> bool:
    """Return whether a node has the controller's annotation."""
    return CORDONED in ((node.metadata.annotations if node.metadata else None) or {})


def join(cluster: Cluster, cloud: Observation) -> Observation:
    """Return the observation of AWS with the pods and nodes of the cluster.

    A node joins when it has passed its gate. Nodes whose instance AWS is ending, and their pods, are left out. The pods
    that queued work will have are pending ones.
    """
    queued = {pod_id(pod): (pod, refusal) for pod, refusal in queued_pods(cluster.workloads, cluster.pods)}
    cluster = replace(cluster, pods=(*cluster.pods, *(pod for pod, _ in queued.values())))
    by_node = _placed(cluster.pods)
    machines = {machine.id: machine for machine in cloud.machines}
    live = [node for node in cluster.nodes if _takes_part(node, machines, by_node, cloud.time)]
    sizes = {_name(node): _sizes(node, by_node[_name(node)]) for node in live}
    universe = frozenset().union(*(pool.taints for pool in cloud.pools), *map(_taints, live))
    reader = _PodReader(universe, cluster)
    names = frozenset(sizes)
    pods = tuple(reader.read(pod) for pod in cluster.pods if _counts(pod, names))
    pods = tuple(
        replace(pod, queued=True, unsupported=queued[pod.id][1] or pod.unsupported) if pod.id in queued else pod
        for pod in pods
    )
    marks = reader.marks
    seen = [_node(node, sizes[_name(node)], by_node[_name(node)], cluster, cloud.time) for node in live]
    nodes = tuple(replace(node, labels=_marked(node.labels, marks)) for node in seen)
    node_of = {node.machine: node.name for node in nodes if node.machine}
    registered = {instance_of(node) for node in cluster.nodes}
    return replace(
        cloud,
        pods=_with_gang_sizes(pods),
        nodes=nodes,
        machines=tuple(
            replace(machine, node=node_of.get(machine.id), registered=machine.id in registered)
            for machine in cloud.machines
        ),
        pools=tuple(_measured(pool, cloud.machines, node_of, sizes, marks) for pool in cloud.pools),
    )


def _name(node: ClusterNode) -> str:
    return str(node.metadata.name) if node.metadata else ""


def _placed(pods: Iterable[ClusterPod]) -> Mapping[str, list[ClusterPod]]:
    """Return the pods of each node that use its resources."""
    by_node: defaultdict[str, list[ClusterPod]] = defaultdict(list)
    for pod in pods:
        if pod.spec and pod.spec.nodeName and not has_ended(pod):
            by_node[pod.spec.nodeName].append(pod)
    return by_node


def _takes_part(
    node: ClusterNode, machines: Mapping[str, Machine], by_node: Mapping[str, list[ClusterPod]], now: float
) -> bool:
    instance = instance_of(node)
    if instance is not None and instance not in machines:
        return False
    has_work = any(not is_daemon(pod) for pod in by_node.get(_name(node), ()))
    return not _is_starting(node, now, has_work=has_work)


def _is_starting(node: ClusterNode, now: float, *, has_work: bool) -> bool:
    """Return whether a node is not in service yet, or has failed without work."""
    created = seconds(node.metadata.creationTimestamp if node.metadata else None)
    if any(taint.key == GATE for taint in (node.spec.taints if node.spec else None) or ()):
        # A node with work or of some age has been in service: its gate has failed later, or it was rebooted.
        return not has_work and now - created <= _LOST
    ready = readiness(node)
    if ready is None or ready.status == "True":
        return ready is None
    changed = seconds(ready.lastTransitionTime)
    return not has_work and (changed - created < _REGISTERING or now - changed > _LOST)


def readiness(node: ClusterNode) -> NodeCondition | None:
    """Return the condition `Ready` of a node; None before kubelet has reported."""
    conditions = (node.status.conditions if node.status else None) or ()
    return next((condition for condition in conditions if condition.type == "Ready"), None)


def is_ready(node: ClusterNode) -> bool:
    """Return whether a node is ready; kubelet reports that."""
    condition = readiness(node)
    return condition is not None and condition.status == "True"


def _taints(node: ClusterNode) -> frozenset[str]:
    # The cluster removes the taint a moment after the node has become ready.
    derived = {UNSCHEDULABLE, NOT_READY} if is_ready(node) else {UNSCHEDULABLE}
    taints = (node.spec.taints if node.spec else None) or ()
    return blocking_taints(taint for taint in taints if taint.key not in derived)


def _sizes(node: ClusterNode, pods: Iterable[ClusterPod]) -> tuple[Size, Size]:
    """Return the resources of a node for work, without those of its own DaemonSets, and the free part.

    DaemonSets of people do not reduce the size: one of them on a single node would make the whole pool too small.
    """
    allocatable = size_of(node.status.allocatable if node.status else None)
    used = [(is_daemon(pod) and is_critical(pod), replace(pod_size(pod), pods=1)) for pod in pods]
    size = subtract(allocatable, combine(sum, *(part for is_own, part in used if is_own), Size()))
    free = subtract(allocatable, combine(sum, *(part for _, part in used), Size()))
    # A size of 0 pods means no limit.
    return replace(size, pods=max(size.pods, 1) if allocatable.pods else 0), free


def _node(
    node: ClusterNode,
    sizes: tuple[Size, Size],
    pods: Iterable[ClusterPod],
    cluster: Cluster,
    now: float,
) -> Node:
    name = _name(node)
    work, stuck = work_of(node, pods, now)
    joined = seconds(node.metadata.creationTimestamp if node.metadata else None)
    ends = [cluster.ends.get(name, cluster.since), *map(_deletion, stuck)]
    not_ready_since = lost_since(node, now)
    is_dead = not_ready_since is not None and now - not_ready_since >= _DEAD
    return Node(
        name=name,
        machine=instance_of(node),
        labels=(node.metadata.labels if node.metadata else None) or {},
        taints=_taints(node),
        size=sizes[0],
        free=sizes[1],
        pods=tuple(map(pod_id, work)),
        joined=joined,
        idle_since=None if work else max(joined, *ends),
        cordoned=cordon_of(node),
        failed=_gate_verdict(node),
        defect="its kubelet has not been ready for an hour" if is_dead else "",
        stuck=tuple(map(pod_id, stuck)),
        not_ready_since=not_ready_since,
    )


def work_of(
    node: ClusterNode, pods: Iterable[ClusterPod], now: float
) -> tuple[tuple[ClusterPod, ...], tuple[ClusterPod, ...]]:
    """Return the work among the pods of a node, and the pods that are none: deleted ones that do not end.

    Their time to end is over for a quarter of an hour, or the node has not been ready for as long.
    """
    bound = [pod for pod in pods if not is_daemon(pod)]
    is_lost = lost_since(node, now) is not None
    stuck = [pod for pod in bound if _deletion(pod) and (is_lost or now - _deletion(pod) >= _LOST)]
    return tuple(pod for pod in bound if pod not in stuck), tuple(stuck)


def _deletion(pod: ClusterPod) -> float:
    """Return the time at which a deleted pod must have ended; 0 for one that is not deleted."""
    return seconds(pod.metadata.deletionTimestamp if pod.metadata else None)


def lost_since(node: ClusterNode, now: float) -> float | None:
    """Return since when a node is not ready, if that is a quarter of an hour ago."""
    ready = readiness(node)
    since = seconds(ready.lastTransitionTime) if ready and ready.status != "True" else now
    return since if now - since >= _LOST else None


def _gate_verdict(node: ClusterNode) -> str:
    """Return the verdict of a node's failed health gate; empty if it has passed, or not ended since the boot."""
    taints = (node.spec.taints if node.spec else None) or ()
    return next((taint.value for taint in taints if taint.key == GATE and taint.value in _VERDICTS), "")


def _measured(
    pool: Pool,
    machines: Iterable[Machine],
    node_of: Mapping[str, str],
    sizes: Mapping[str, tuple[Size, Size]],
    marks: Iterable[Placement],
) -> Pool:
    """Return a pool with the size of its real nodes: the plan does not know the needs of DaemonSets."""
    joined = [
        sizes[node_of[machine.id]][0] for machine in machines if machine.pool == pool.name and machine.id in node_of
    ]
    return replace(pool, size=machine_size(pool.size, joined), labels=_marked(pool.labels, marks))


def _marked(labels: Mapping[str, str], marks: Iterable[Placement]) -> Mapping[str, str]:
    """Return labels with one for each affinity that they satisfy, which pods with that affinity select."""
    return {**labels, **{mark.marker: "true" for mark in marks if mark.admits(labels)}}


def _counts(pod: ClusterPod, names: frozenset[str]) -> bool:
    if is_daemon(pod) or has_ended(pod):
        return False
    return waits_for_machine(pod) or bool(pod.spec and pod.spec.nodeName in names)


def pod_id(pod: ClusterPod) -> str:
    """Return `namespace/name`."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}" if pod.metadata else ""


class _PodReader:
    """Reads pods, and collects the affinities that become labels; equal tolerations are compared once."""

    def __init__(self, universe: frozenset[str], cluster: Cluster) -> None:
        self._universe = universe
        self._cluster = cluster
        present = [pod for pod in cluster.pods if not has_ended(pod)]
        self._limits = Limits.of(present)
        running = (pod for pod in present if pod.spec and pod.spec.nodeName)
        self._used = frozenset(name for pod in running for name in claim_names(pod))
        self._tolerated: dict[str, frozenset[str]] = {}
        self._marks: dict[str, Placement] = {}

    @property
    def marks(self) -> tuple[Placement, ...]:
        return tuple(self._marks.values())

    def read(self, pod: ClusterPod) -> Pod:
        own = placement_of(pod)
        selector, obstacle = dict(own.labels), unsupported(pod) or unsupported_spread(pod)
        cluster = self._cluster
        placements, missing = volume_placements(pod, cluster.claims, cluster.volumes, self._used)
        for placement in (own, *placements):
            if placement.marker:
                self._marks[placement.marker] = placement
                selector[placement.marker] = "true"
            for key, value in placement.labels.items():
                if selector.setdefault(key, value) != value:
                    obstacle = obstacle or f"its volume has {key} {value}, it asks for {selector[key]}"
        return Pod(
            id=pod_id(pod),
            arrival=seconds(pod.metadata.creationTimestamp if pod.metadata else None),
            size=pod_size(pod),
            selector=selector,
            tolerations=self._tolerations(pod),
            gang=gang_of(pod),
            movable=is_movable(pod),
            spread=tuple(dict.fromkeys(limit.spread for limit in limits_of(pod))),
            kinds=self._limits.kinds(pod),
            deleted=bool(pod.metadata and pod.metadata.deletionTimestamp),
            node=pod.spec.nodeName if pod.spec else None,
            since=(since := seconds(pod.status.startTime if pod.status else None)),
            until=since + limit if since and (limit := (pod.spec and pod.spec.activeDeadlineSeconds) or 0) else 0.0,
            unsupported=obstacle or missing,
            message=scheduler_message(pod),
            owner=owner_of(pod),
        )

    def _tolerations(self, pod: ClusterPod) -> frozenset[str]:
        rules = (pod.spec.tolerations if pod.spec else None) or ()
        key = repr(rules)
        if key not in self._tolerated:
            self._tolerated[key] = tolerated(self._universe, rules)
        return self._tolerated[key]


def _with_gang_sizes(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    counts = Counter(pod.gang for pod in pods)
    return tuple(replace(pod, gang_size=counts[pod.gang]) if pod.gang else pod for pod in pods)
