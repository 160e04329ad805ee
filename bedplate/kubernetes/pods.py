"""The requirements of a pod, as the planner reads them: its size, where it may run, its gang, whether it may move."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from statistics import median_low
from typing import Any

from lightkube.models.core_v1 import (
    Container,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    Taint,
    Toleration,
    Volume,
)
from lightkube.models.meta_v1 import LabelSelector, LabelSelectorRequirement
from lightkube.resources.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod

from bedplate.capacity.observation import Size

# The add-ons have a device plugin of this manufacturer only.
GPUS = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
MOVABLE = "bedplate/movable"
"""Annotation: `true` if a pod has a checkpoint and may be evicted, `false` if not."""
_SAFE_TO_EVICT, _DO_NOT_DISRUPT = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"
GANG = "bedplate/gang"
"""Label: the pods of a namespace with the same value start together or not at all; with no value, each by itself."""
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
_GANG_LABELS = (
    GANG,
    JOBSET_NAME,
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
)
# Controllers that create a pod again elsewhere, and whose work survives that. A Job's pod begins again.
_MOVABLE_OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController")
_MIRROR = "kubernetes.io/config.mirror"
# Labels of a volume that name its place, with several values as `a__b`. Source: kube-scheduler, plugin VolumeZone.
_VOLUME_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
# Volumes that are the same on every node, usual ones first; the scheduler keeps pods with some of the others apart.
_VOLUMES_ANYWHERE = (
    "projected",
    "persistentVolumeClaim",
    "emptyDir",
    "configMap",
    "secret",
    "hostPath",
    "csi",
    "downwardAPI",
    "ephemeral",
    "gitRepo",
    "image",
    "nfs",
)
_ONE_POD = "ReadWriteOncePod"
_SCHEDULER = "default-scheduler"
# Resources that `Size` has; of any other the planner knows neither what a pool offers nor what is free.
_COMPARED = frozenset({GPUS, EFA, "cpu", "memory", "ephemeral-storage", "pods"})
# The role `efa` reserves them on each machine with EFA interfaces, for libfabric.
_HUGE_PAGES = "hugepages-2Mi"
# The value of `system-cluster-critical`.
_CRITICAL = 2_000_000_000
_ENDED = ("Succeeded", "Failed")
_GIB = 1024.0**3

# Source: k8s.io/apimachinery, resource.Quantity.
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
# Kubernetes stores 1e400, which is no finite number here.
_MOST = 1e30
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_UNITS = {
    **{unit: 10.0 ** (3 * power) for unit, power in zip("numkMGTPE", (-3, -2, -1, 1, 2, 3, 4, 5, 6), strict=True)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}


def quantity(text: str | None) -> float:
    """Return a Kubernetes quantity such as 500m or 16Gi as a number; 0 for none."""
    match = _QUANTITY.fullmatch(str(text or "0"))
    return min(float(match[1]) * _UNITS.get(match[2] or "", 1.0), _MOST) if match else 0.0


def size_of(resources: Mapping[str, object] | None) -> Size:
    """Return requests or allocatable resources as a size."""
    amounts = {name: quantity(str(text)) for name, text in (resources or {}).items()}
    return Size(
        gpus=round(amounts.get(GPUS, 0.0)),
        cpus=amounts.get("cpu", 0.0),
        memory=amounts.get("memory", 0.0) / _GIB,
        efa=round(amounts.get(EFA, 0.0)),
        ephemeral=amounts.get("ephemeral-storage", 0.0) / _GIB,
        pods=round(amounts.get("pods", 0.0)),
    )


_AMOUNTS = attrgetter(*(resource.name for resource in fields(Size)))


def combine(function: Callable[[list[Any]], Any], *sizes: Size) -> Size:
    """Return a size with the result of a function, such as `sum` or `max`, for each resource."""
    return Size(*map(function, map(list, zip(*map(_AMOUNTS, sizes), strict=True))))


def subtract(size: Size, part: Size) -> Size:
    """Return what remains of a size, never less than nothing."""
    return combine(lambda values: max(0, values[0] - values[1]), size, part)


def machine_size(planned: Size, reported: Sequence[Size]) -> Size:
    """Return what a new machine of a pool offers: the median of its nodes' reports that agree with the plan.

    Other reports are broken or false, and count for that node alone. Devices are planned. What the plan does not know
    is the median of all reports.
    """
    size = combine(_agreed, planned, *reported)
    return replace(size, gpus=planned.gpus, efa=planned.efa) if planned.cpus else size


def _agreed(values: Sequence[float]) -> float:
    planned = values[0] or median_low(values[1:] or values)
    agreeing = [value for value in values[1:] if planned * 0.75 <= value <= planned * 2]
    return median_low(agreeing or [planned])


def pod_size(pod: Pod) -> Size:
    """Return the request of a pod as the scheduler counts it: containers, sidecars, init containers and overhead."""
    spec = pod.spec
    if spec is None:
        return Size()
    running = combine(sum, *map(_request, spec.containers), Size())
    peak, sidecars = Size(), Size()
    for container in spec.initContainers or ():
        if container.restartPolicy == "Always":
            sidecars = combine(sum, sidecars, _request(container))
            peak = combine(max, peak, sidecars)
        else:
            peak = combine(max, peak, combine(sum, sidecars, _request(container)))
    # The request of the whole pod is at least that of its containers.
    whole = combine(max, combine(sum, running, sidecars), peak, _request(spec))
    return combine(sum, whole, size_of(spec.overhead))


def _request(part: Container | PodSpec) -> Size:
    resources = part.resources
    # Without a request the limit is the request.
    return size_of({**(resources.limits or {}), **(resources.requests or {})}) if resources else Size()


def has_ended(pod: Pod) -> bool:
    """Return whether a pod has ended; its resources are free."""
    return pod.status is not None and pod.status.phase in _ENDED


def is_daemon(pod: Pod) -> bool:
    """Return whether a pod belongs to its node: one of a DaemonSet, or a static one."""
    owners = _owner_kinds(pod)
    annotations = (pod.metadata.annotations if pod.metadata else None) or {}
    return "DaemonSet" in owners or "Node" in owners or _MIRROR in annotations


def is_critical(pod: Pod) -> bool:
    """Return whether a pod has a priority of the system, which people cannot give to theirs."""
    return bool(pod.spec and (pod.spec.priority or 0) >= _CRITICAL)


def waits_for_machine(pod: Pod) -> bool:
    """Return whether a pending pod waits for the scheduler: gated and deleted ones do not."""
    return bool(
        pod.spec
        and not pod.spec.nodeName
        and not pod.spec.schedulingGates
        and not has_ended(pod)
        and not (pod.metadata and pod.metadata.deletionTimestamp)
    )


def is_movable(pod: Pod) -> bool:
    """Return whether a pod may be evicted: by its annotation, else by its owner; bare pods and jobs may not."""
    annotations = (pod.metadata.annotations if pod.metadata else None) or {}
    if annotations.get(_DO_NOT_DISRUPT) == "true":
        return False
    for name in (MOVABLE, _SAFE_TO_EVICT):
        if name in annotations:
            return bool(annotations[name] == "true")
    return any(kind in _MOVABLE_OWNERS for kind in _owner_kinds(pod))


def _owner_kinds(pod: Pod) -> tuple[str, ...]:
    owners = (pod.metadata.ownerReferences if pod.metadata else None) or ()
    return tuple(owner.kind for owner in owners)


def owner_of(pod: Pod) -> str:
    """Return the first owner of a pod, which creates it again; empty without one."""
    owners = (pod.metadata.ownerReferences if pod.metadata else None) or ()
    return next((f"{pod.metadata.namespace}/{owner.kind}/{owner.name}" for owner in owners if pod.metadata), "")


def gang_of(pod: Pod) -> str | None:
    """Return the gang of a pod: its JobSet, the group label of its Job, or its pod group."""
    labels = (pod.metadata.labels if pod.metadata else None) or {}
    namespace = pod.metadata.namespace if pod.metadata else ""
    group = pod.spec.schedulingGroup if pod.spec else None
    if labels.get(GANG) == "":
        # Elements of an array are pods of one JobSet.
        return None
    names = [labels[name] for name in _GANG_LABELS if labels.get(name)]
    if group is not None and getattr(group, "podGroupName", None):
        names.append(str(group.podGroupName))
    return f"{namespace}/{names[0]}" if names else None


def unsupported(pod: Pod) -> str:
    """Return the requirement of a pod that the planner cannot compare with nodes and pools; empty if there is none."""
    spec = pod.spec
    if spec is None:
        return ""
    if spec.schedulerName not in (None, _SCHEDULER):
        return f"it is scheduled by {spec.schedulerName}"
    if spec.resourceClaims:
        return "it has resource claims, which the planner does not know"
    resources = _resource_names(pod)
    if names := sorted(resources - _COMPARED - ({_HUGE_PAGES} if EFA in resources else set())):
        return f"it asks for {', '.join(names)}, which no pool is known to have"
    affinity = spec.affinity.podAffinity if spec.affinity else None
    if affinity and affinity.requiredDuringSchedulingIgnoredDuringExecution:
        return "it has a required podAffinity, which the planner does not know"
    if ports := sorted(_host_ports(spec)):
        return f"it asks for port {', '.join(map(str, ports))} of its host, which the planner does not know"
    if names := [volume.name for volume in spec.volumes or () if not _is_anywhere(volume)]:
        return f"the planner does not know the kind of its volume {', '.join(names)}"
    return ""


def _host_ports(spec: PodSpec) -> frozenset[int]:
    containers = [*spec.containers, *(spec.initContainers or ())]
    return frozenset(port.hostPort for part in containers for port in part.ports or () if port.hostPort)


def _is_anywhere(volume: Volume) -> bool:
    return any(getattr(volume, kind) is not None for kind in _VOLUMES_ANYWHERE)


def _resource_names(pod: Pod) -> frozenset[str]:
    """Return the resources of which a pod requests more than nothing."""
    spec = pod.spec
    owners = [*spec.containers, *(spec.initContainers or ()), spec] if spec else []
    parts = [resources for owner in owners if (resources := owner.resources)]
    amounts = [part for resources in parts for part in (resources.limits, resources.requests) if part]
    amounts += [spec.overhead] if spec and spec.overhead else []
    return frozenset(name for part in amounts for name, amount in part.items() if quantity(str(amount)))


def blocking_taints(taints: Iterable[Taint] | None) -> frozenset[str]:
    """Return the taints that keep pods away, as `key=value:effect` like the plan; a preference does not."""
    blocking = (taint for taint in taints or () if taint.effect != "PreferNoSchedule")
    return frozenset(f"{taint.key}={taint.value or ''}:{taint.effect}" for taint in blocking)


def tolerated(taints: Iterable[str], tolerations: Sequence[Toleration] | None) -> frozenset[str]:
    """Return the taints, as `key=value:effect`, that tolerations accept."""
    return frozenset(taint for taint in taints if any(_accepts(rule, taint) for rule in tolerations or ()))


def _accepts(rule: Toleration, taint: str) -> bool:
    name, _, effect = taint.rpartition(":")
    key, _, value = name.partition("=")
    if rule.effect and rule.effect != effect:
        return False
    if rule.operator == "Exists":
        return not rule.key or rule.key == key
    return rule.operator in (None, "", "Equal") and rule.key == key and (rule.value or "") == value


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod may run: labels that a node must have, and alternatives that no set of labels can express."""

    labels: Mapping[str, str]
    terms: tuple[NodeSelectorTerm, ...] = ()

    @property
    def marker(self) -> str:
        """The name of a label that stands for the terms; empty without terms."""
        if not self.terms:
            return ""
        words = " or ".join(" and ".join(_words(term)) for term in self.terms)
        return f"affinity: {words}"

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels satisfies one of the terms."""
        return any(
            term.matchExpressions
            and not term.matchFields
            and all(_matches(rule, labels) for rule in term.matchExpressions)
            for term in self.terms
        )


def placement_of(pod: Pod) -> Placement:
    """Return the node selector of a pod joined with its required affinity; a single value becomes a label."""
    affinity = pod.spec.affinity.nodeAffinity if pod.spec and pod.spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    labels = dict((pod.spec.nodeSelector if pod.spec else None) or {})
    return _placement(labels, tuple(required.nodeSelectorTerms) if required else ())


Claims = Mapping[str, PersistentVolumeClaim]
"""Claims by `namespace/name`."""
Volumes = Mapping[str, PersistentVolume]
"""Volumes by name."""


def volume_placements(
    pod: Pod, claims: Claims, volumes: Volumes, used: Collection[str] = ()
) -> tuple[tuple[Placement, ...], str]:
    """Return where the volumes of a pod's claims are, and the obstacle if a claim has no volume that it can use.

    `used` has the claims of pods that run.
    """
    placements = []
    for name in claim_names(pod):
        claim = claims.get(name)
        if claim is None or (claim.metadata and claim.metadata.deletionTimestamp):
            return (), f"its claim {name} does not exist"
        volume = volumes.get((claim.spec.volumeName if claim.spec else None) or "")
        if volume is None or volume.spec is None or not (claim.status and claim.status.phase == "Bound"):
            return (), f"its claim {name} is not bound to a volume"
        if name in used and claim.spec and _ONE_POD in (claim.spec.accessModes or ()):
            return (), f"its claim {name} is for one pod only, and another pod has it"
        required = volume.spec.nodeAffinity.required if volume.spec.nodeAffinity else None
        placements.append(_placement({}, tuple(required.nodeSelectorTerms) if required else ()))
        placements.append(_placement({}, tuple(_labelled_place(volume))))
    return tuple(placements), ""


def _labelled_place(volume: PersistentVolume) -> Iterator[NodeSelectorTerm]:
    labels = (volume.metadata.labels if volume.metadata else None) or {}
    rules = [NodeSelectorRequirement(key, "In", labels[key].split("__")) for key in _VOLUME_LABELS if key in labels]
    if rules:
        yield NodeSelectorTerm(rules)


def claim_names(pod: Pod) -> Iterator[str]:
    """Yield the claims of a pod's volumes, as `namespace/name`."""
    namespace, name = (pod.metadata.namespace, pod.metadata.name) if pod.metadata else ("", "")
    for volume in (pod.spec.volumes if pod.spec else None) or ():
        if volume.persistentVolumeClaim:
            yield f"{namespace}/{volume.persistentVolumeClaim.claimName}"
        elif volume.ephemeral:
            yield f"{namespace}/{name}-{volume.name}"


def scheduler_message(pod: Pod) -> str:
    """Return why the scheduler could not place a pending pod; empty if it has not said so."""
    conditions = (pod.status.conditions if pod.status else None) or ()
    failed = (entry for entry in conditions if entry.type == "PodScheduled" and entry.status == "False")
    return next((entry.message or "" for entry in failed), "")


def _placement(labels: dict[str, str], terms: tuple[NodeSelectorTerm, ...]) -> Placement:
    if len(terms) == 1:
        rules = terms[0].matchExpressions or ()
        single = {
            rule.key: rule.values[0]
            for rule in rules
            if rule.operator == "In" and rule.values and len(rule.values) == 1
        }
        # A term without expressions selects by fields, or no node at all.
        if rules and not terms[0].matchFields and len(single) == len(rules) and not single.keys() & labels.keys():
            return Placement(labels | single)
    return Placement(labels, terms)


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches an object with these labels; an empty one matches all."""
    pairs = selector.matchLabels or {}
    is_equal = all(labels.get(key) == value for key, value in pairs.items())
    return is_equal and all(_matches(rule, labels) for rule in selector.matchExpressions or ())


def _matches(rule: NodeSelectorRequirement | LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(rule.key), rule.values or ()
    match rule.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            # The API server accepts any text here; the scheduler finds no node for one that is no number.
            numbers = [int(text) for text in (value or "", *values[:1]) if _INTEGER.fullmatch(text)]
            ascending = numbers if rule.operator == "Lt" else numbers[::-1]
            return ascending[:1] < ascending[1:]
        case _:
            return False


def _words(term: NodeSelectorTerm) -> Iterator[str]:
    for rule in term.matchExpressions or ():
        yield f"{rule.key} {rule.operator} {','.join(rule.values or ())}".rstrip()


def seconds(time: datetime | None) -> float:
    """Return a time as seconds since 1970; 0 for none."""
    return time.timestamp() if time else 0.0
