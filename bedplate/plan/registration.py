"""What a node tells its cluster when it joins: labels, taints, and what it has beside CPUs and memory.

It follows from the file, the type and the zone; nothing here is learnt from a running machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.catalog.facts import Arch, InstanceFacts
from bedplate.plan.pools import Adapter, PoolPlan, interfaces

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
# The cluster-autoscaler knows by this label that GPUs will come with a node that is not there yet.
ACCELERATOR = "k8s.amazonaws.com/accelerator"
EFA = "vpc.amazonaws.com/efa"
_ARCH: Mapping[Arch, str] = MappingProxyType({"x86_64": "amd64", "arm64": "arm64"})
# The resource under which each maker's device plugin offers its devices.
_GPUS = MappingProxyType({"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"})
_ACCELERATORS = MappingProxyType({"inferentia": "aws.amazon.com/neuron", "trainium": "aws.amazon.com/neuron"})
DEVICES = frozenset({*_GPUS.values(), *_ACCELERATORS.values(), EFA})
# Boot partition, file system and the tenth that kubelet keeps free leave this share of a root volume to pods.
_DISK_PERCENT = 85
_LONGEST_VALUE, _KEPT, _DIGEST = 63, 54, 8


@dataclass(frozen=True, slots=True)
class Registration:
    """Labels, taints (`key=value:effect`), and resources as Kubernetes quantities."""

    labels: Mapping[str, str]
    taints: tuple[str, ...]
    resources: Mapping[str, str]


def registration(pool: PoolPlan, type_name: str, zone: str, catalog: Catalog) -> Registration:
    """Return what one machine of a pool registers, given its type and its zone."""
    facts = catalog.types.get(type_name)
    own = devices(facts)
    fabric = sum(face.adapter is not Adapter.ENA for face in interfaces(facts, pool.fabric))
    disk = {"ephemeral-storage": f"{pool.volume.gib * _DISK_PERCENT // 100}Gi"}
    labels = {**_labels(pool, facts), INSTANCE_TYPE: type_name, ZONE: zone, **pool.labels}
    taints = dict.fromkeys([f"{name}=present:NoSchedule" for name in own] + list(pool.taints))
    counts = own | ({EFA: fabric} if fabric else {})
    return Registration(labels, tuple(taints), {name: str(count) for name, count in counts.items()} | disk)


def pool_registration(pool: PoolPlan, catalog: Catalog) -> Registration:
    """Return what every machine of a pool registers, whichever of its types and zones it gets.

    Of a resource it is what the poorest type has: a pod that needs more is no reason to start a machine.
    """
    zones = pool.zones or ("",)
    each = [registration(pool, name, zone, catalog) for name in pool.types for zone in zones]
    labels = {key: value for key, value in each[0].labels.items() if all(one.labels.get(key) == value for one in each)}
    if pool.offer.similar:
        labels.pop(INSTANCE_TYPE, None)
    taints = dict.fromkeys(taint for one in each for taint in one.taints)
    return Registration({key: labels[key] for key in labels if labels[key]}, tuple(taints), _least(each))


def label_value(name: str) -> str:
    """Return a name as the value of a label: one of more than 63 characters is cut, and told apart by a digest."""
    if len(name) <= _LONGEST_VALUE:
        return name
    return f"{name[:_KEPT]}-{sha256(name.encode()).hexdigest()[:_DIGEST]}"


def _labels(pool: PoolPlan, facts: InstanceFacts | None) -> dict[str, str]:
    own = {
        "bedplate/group": pool.group,
        "bedplate/pool": label_value(pool.name),
        "bedplate/market": pool.market.value,
        "topology.kubernetes.io/region": pool.region,
    }
    if facts is None:
        return own
    gpu = {ACCELERATOR: f"{facts.gpu.manufacturer}-{facts.gpu.name}"} if facts.gpu else {}
    return {**own, "kubernetes.io/arch": _ARCH[facts.arch], **gpu}


def devices(facts: InstanceFacts | None) -> dict[str, int]:
    """Return a type's GPUs or other accelerators by Kubernetes resource; a part of a GPU is one to its driver."""
    if facts is None:
        return {}
    if facts.gpu is not None:
        return {_GPUS[facts.gpu.manufacturer]: max(facts.gpu.count, 1)}
    found = facts.accelerator
    if found is None:
        return {}
    return {resource: found.count for word, resource in _ACCELERATORS.items() if found.name.startswith(word)}


def _least(each: list[Registration]) -> dict[str, str]:
    common = [key for key in each[0].resources if all(key in one.resources for one in each)]
    return {key: min((one.resources[key] for one in each), key=_quantity) for key in common}


def _quantity(text: str) -> int:
    return int(text.removesuffix("Gi"))


AUTOSCALER = "k8s.io/cluster-autoscaler"
ENABLED = f"{AUTOSCALER}/enabled"
LABEL, TAINT, RESOURCE = (f"{AUTOSCALER}/node-template/{word}/" for word in ("label", "taint", "resources"))
# A tag names one taint a key: of several, the one that keeps most pods away says it.
_EFFECTS = ("PreferNoSchedule", "NoSchedule", "NoExecute")


def from_zero_tags(fleet: str, told: Registration) -> dict[str, str]:
    """Return the tags by which the autoscaler of a fleet finds a group, and knows what its nodes will be."""
    return {
        ENABLED: "true",
        f"{AUTOSCALER}/{fleet}": "owned",
        **_under(LABEL, told.labels),
        **_under(TAINT, _taints(told.taints)),
        **_under(RESOURCE, told.resources),
    }


def _under(prefix: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}{key}": value for key, value in values.items()}


def _taints(taints: tuple[str, ...]) -> dict[str, str]:
    """Return `value:effect` by key."""
    parted = sorted((taint.rpartition(":") for taint in taints), key=lambda parts: _EFFECTS.index(parts[2]))
    keyed = ((*name.partition("="), effect) for name, _, effect in parted)
    return {key: f"{value}:{effect}" for key, _, value, effect in keyed}
