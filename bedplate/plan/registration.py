"""Node registration: the labels, taints and extended resources of a Kubernetes node, and the autoscaler's tags.

They follow from the fleet file, the instance type and the zone; no running machine is queried.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.catalog.tables import Arch, InstanceFacts
from bedplate.plan.fleet import MachinePlan, SitePlan
from bedplate.plan.pools import Adapter, PoolPlan, interfaces

SITE, GROUP = "bedplate/site", "bedplate/group"
"""The labels of a physical machine, and of an instance."""
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
_REGION = "topology.kubernetes.io/region"
# With this label the cluster-autoscaler expects GPUs on a node that has not started yet.
ACCELERATOR = "k8s.amazonaws.com/accelerator"
EFA = "vpc.amazonaws.com/efa"
MAX_PODS = 110
"""The most pods of a node, Kubernetes' default: memory is reserved for as many."""
_ARCH: Mapping[Arch, str] = MappingProxyType({"x86_64": "amd64", "arm64": "arm64"})
# The resource name of each manufacturer's device plugin.
_GPUS = MappingProxyType({"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"})
_ACCELERATORS = MappingProxyType({"inferentia": "aws.amazon.com/neuron", "trainium": "aws.amazon.com/neuron"})
# The share of a root volume for pods, after boot partition, file system and the tenth that kubelet keeps free.
_DISK_PERCENT = 85
_LONGEST_VALUE, _KEPT, _DIGEST = 63, 54, 8


@dataclass(frozen=True, slots=True)
class Registration:
    """Labels, taints (`key=value:effect`), and resources as Kubernetes quantities."""

    labels: Mapping[str, str]
    taints: tuple[str, ...]
    resources: Mapping[str, str]


def registration(pool: PoolPlan, type_name: str, zone: str, catalog: Catalog) -> Registration:
    """Return the registration of one machine of a pool, given its type and its zone."""
    facts = catalog.types.get(type_name)
    accelerators = devices(facts)
    fabric = sum(interface.adapter is not Adapter.ENA for interface in interfaces(facts, pool.fabric))
    disk = {"ephemeral-storage": f"{pool.volume.gib * _DISK_PERCENT // 100}Gi"}
    labels = {**_labels(pool, facts), INSTANCE_TYPE: type_name, ZONE: zone, **pool.group_spec.labels}
    taints = dict.fromkeys([f"{name}=present:NoSchedule" for name in accelerators] + list(pool.group_spec.taints))
    counts = accelerators | ({EFA: fabric} if fabric else {})
    return Registration(labels, tuple(taints), {name: str(count) for name, count in counts.items()} | disk)


def pool_registration(pool: PoolPlan, catalog: Catalog) -> Registration:
    """Return the registration common to every type and zone of a pool.

    Each resource has the smallest count of any type: the autoscaler must not start a machine for a pod that needs more.
    """
    zones = pool.zones or ("",)
    variants = [registration(pool, name, zone, catalog) for name in pool.types for zone in zones]
    labels = {
        key: value
        for key, value in variants[0].labels.items()
        if all(variant.labels.get(key) == value for variant in variants)
    }
    if pool.group_spec.similar:
        labels.pop(INSTANCE_TYPE, None)
    taints = dict.fromkeys(taint for variant in variants for taint in variant.taints)
    return Registration(
        {key: value for key, value in labels.items() if value}, tuple(taints), _smallest_resources(variants)
    )


def machine_registration(site: SitePlan, machine: MachinePlan) -> Registration:
    """Return the registration of a worker of a site; the site takes the place of region and zone."""
    labels = {SITE: site.name, **place_labels(site.name, site.name)}
    gpus = machine.spec.gpus
    if gpus is None:
        return Registration(labels, (), {})
    resource = _GPUS["nvidia"]
    accelerator = {ACCELERATOR: f"nvidia-{gpus.model}"}
    return Registration(labels | accelerator, (f"{resource}=present:NoSchedule",), {resource: str(gpus.count)})


def place_labels(region: str, zone: str) -> dict[str, str]:
    """Return the labels of a node's region and zone."""
    return {_REGION: region, ZONE: zone}


def label_value(name: str) -> str:
    """Return a name as a label value: more than 63 characters are cut and end in a digest."""
    if len(name) <= _LONGEST_VALUE:
        return name
    return f"{name[:_KEPT]}-{sha256(name.encode()).hexdigest()[:_DIGEST]}"


def _labels(pool: PoolPlan, facts: InstanceFacts | None) -> dict[str, str]:
    labels = {
        GROUP: pool.group,
        "bedplate/pool": label_value(pool.name),
        "bedplate/market": pool.market.value,
        _REGION: pool.region,
    }
    if facts is None:
        return labels
    gpu = {ACCELERATOR: f"{facts.gpu.manufacturer}-{facts.gpu.name}"} if facts.gpu else {}
    return {**labels, "kubernetes.io/arch": _ARCH[facts.arch], **gpu}


def devices(facts: InstanceFacts | None) -> dict[str, int]:
    """Return a type's GPUs or other accelerators by Kubernetes resource; a fraction of a GPU counts as one."""
    if facts is None:
        return {}
    if facts.gpu is not None:
        return {_GPUS[facts.gpu.manufacturer]: max(facts.gpu.count, 1)}
    accelerator = facts.accelerator
    if accelerator is None:
        return {}
    matches = (resource for prefix, resource in _ACCELERATORS.items() if accelerator.name.startswith(prefix))
    return dict.fromkeys(matches, accelerator.count)


def device_counts(catalog: Catalog) -> dict[str, dict[str, int]]:
    """Return the GPUs and other devices of each instance type, as the audit of a graph takes them."""
    return {name: devices(facts) for name, facts in catalog.types.items()}


def _smallest_resources(variants: list[Registration]) -> dict[str, str]:
    common = [key for key in variants[0].resources if all(key in variant.resources for variant in variants)]
    return {key: min((variant.resources[key] for variant in variants), key=_quantity) for key in common}


def _quantity(text: str) -> int:
    return int(text.removesuffix("Gi"))


AUTOSCALER = "k8s.io/cluster-autoscaler"
ENABLED = f"{AUTOSCALER}/enabled"
LABEL, TAINT, RESOURCE = (f"{AUTOSCALER}/node-template/{word}/" for word in ("label", "taint", "resources"))
# The autoscaler reads one taint a key: of several, the strictest effect is used.
_EFFECTS = ("PreferNoSchedule", "NoSchedule", "NoExecute")


def from_zero_tags(fleet: str, registration: Registration) -> dict[str, str]:
    """Return the tags with which a fleet's autoscaler finds a group and scales it up from zero."""
    return {
        ENABLED: "true",
        f"{AUTOSCALER}/{fleet}": "owned",
        **_prefixed(LABEL, registration.labels),
        **_prefixed(TAINT, _taints(registration.taints)),
        **_prefixed(RESOURCE, registration.resources),
    }


def _prefixed(prefix: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}{key}": value for key, value in values.items()}


def _taints(taints: tuple[str, ...]) -> dict[str, str]:
    """Return `value:effect` by key."""
    sorted_taints = sorted((taint.rpartition(":") for taint in taints), key=lambda parts: _EFFECTS.index(parts[2]))
    keyed = ((*name.partition("="), effect) for name, _, effect in sorted_taints)
    return {key: f"{value}:{effect}" for key, _, value, effect in keyed}
