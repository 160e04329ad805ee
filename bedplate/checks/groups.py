"""Groups: instance types, numbers of machines, labels and taints, root volumes, and tags."""

import math
from collections.abc import Iterator
from functools import partial

from bedplate.catalog import Catalog, GpuFacts, InstanceFacts
from bedplate.checks.diagnostics import Context, planned_pools, repeated
from bedplate.errors import nearest
from bedplate.plan.pools import PoolPlan, interfaces
from bedplate.plan.registration import LABEL, from_zero_tags, pool_registration
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.groups import Group


def check_groups(context: Context) -> Iterator[Fault]:
    """Yield faults of the types and numbers of each group."""
    for name, group in context.fleet.groups.items():
        key = f"groups.{name}"
        yield from _check_numbers(key, group)
        types = tuple((f"{key}.types.{index}", type_name) for index, type_name in enumerate(group.types))
        for place, type_name, _ in repeated(types):
            yield fault(DUPLICATE_TYPE, place, f"{type_name} is listed twice")
        for place, type_name in types:
            yield from check_known_type(context.catalog, place, type_name)


def check_known_type(catalog: Catalog, key: str, type_name: str) -> Iterator[Fault]:
    """Yield a fault if the catalog does not have an instance type."""
    if type_name not in catalog.types:
        # Comparing with all of a thousand types takes long, and the first letter is rarely wrong.
        family = [name for name in catalog.types if name.startswith(f"{type_name.partition('.')[0]}.")]
        near = nearest(type_name, family or [name for name in catalog.types if name[0] == type_name[0]])
        fix = f"write {near} ({hardware(catalog.types[near])}); for a new type: {_REFRESH}" if near else ""
        yield fault(UNKNOWN_INSTANCE_TYPE, key, f"the catalog has no instance type {type_name}", fix)


def hardware(facts: InstanceFacts) -> str:
    """Return a short description of a type: its GPUs, or its CPUs and memory."""
    if facts.gpu and facts.gpu.count:
        return f"{facts.gpu.count} x {facts.gpu.name.upper()}"
    return f"{facts.vcpus} vCPUs, {facts.memory_mib // 1024} GiB"


def known_types(catalog: Catalog, group: Group) -> tuple[tuple[int, InstanceFacts], ...]:
    """Return the group's types that the catalog has, each with its index in the list."""
    return tuple((index, catalog.types[name]) for index, name in enumerate(group.types) if name in catalog.types)


def has_gpus(catalog: Catalog, group: Group) -> bool:
    """Return whether any known type of a group has GPUs."""
    return any(facts.gpu for _, facts in known_types(catalog, group))


def check_limits(context: Context) -> Iterator[Fault]:
    """Yield faults of spare machines and ceilings that can have no effect."""
    for name, group in context.fleet.groups.items():
        key = f"groups.{name}"
        if not group.use.is_worker:
            for field, value in (("spare", group.spare), ("max_cost", group.max_cost)):
                if value:
                    yield fault(UNUSED_LIMIT, f"{key}.{field}", f"a group with use: {group.use} cannot have {field}")
            continue
        if group.spare > group.nodes.max:
            message = f"`spare` ({group.spare}) is larger than the group's maximum of {group.nodes.max}"
            yield fault(
                SPARE_ABOVE_MAX, f"{key}.spare", message, f"write spare: {group.nodes.max} or less, or raise nodes.max"
            )
        prices = [context.catalog.price(facts.name) for _, facts in known_types(context.catalog, group)]
        price = max((price for price in prices if price), default=0.0)
        for place, ceiling in ((f"{key}.max_cost", group.max_cost), ("max_cost", context.fleet.max_cost)):
            if ceiling is not None and ceiling < price:
                message = f"{ceiling:g} USD per hour is less than one machine of {name} costs ({price:,.2f})"
                yield fault(
                    CEILING_BELOW_A_MACHINE, place, message, f"write {math.ceil(price)} or more, or delete max_cost"
                )


def _check_numbers(key: str, group: Group) -> Iterator[Fault]:
    low, high = group.nodes.min, group.nodes.max
    if low > high:
        message = f"`max` ({high}) is smaller than `min` ({low})"
        yield fault(MIN_ABOVE_MAX, f"{key}.nodes.min", message, f"write {{min: {high}, max: {low}}}")
    elif high == 0:
        yield fault(EMPTY_GROUP, f"{key}.nodes.max", "the group has no machines: its maximum is 0")


def check_types(context: Context) -> Iterator[Fault]:
    """Yield faults of types that differ from the first known type, lack EFA or conflict with `similar`."""
    for name, group in context.fleet.groups.items():
        key, indexed_facts = f"groups.{name}", known_types(context.catalog, group)
        for index, facts in indexed_facts:
            yield from _check_same_hardware(f"{key}.types.{index}", facts, indexed_facts[0][1], group)
            yield from _check_accelerators(context.catalog, f"{key}.types.{index}", facts, group)
        yield from _check_similar(key, group, tuple(facts for _, facts in indexed_facts))


def hardware_kind(facts: InstanceFacts) -> str:
    """Return the coarse kind of a type: GPU or CPU, and architecture."""
    return f"{'a GPU' if facts.gpu else 'a CPU'} type of {facts.arch}"


def full_gpus(facts: InstanceFacts) -> int:
    """Return the number of whole GPUs of a type."""
    return facts.gpu.count if facts.gpu else 0


def _check_same_hardware(key: str, facts: InstanceFacts, first: InstanceFacts, group: Group) -> Iterator[Fault]:
    """Yield a fault for the coarsest difference of a type to the first one."""
    if hardware_kind(facts) != hardware_kind(first):
        message = f"{facts.name} is {hardware_kind(facts)}; {first.name} is {hardware_kind(first)}"
        yield fault(MIXED_HARDWARE, key, message, f"move {facts.name} to a group of its own")
    elif full_gpus(facts) != full_gpus(first):
        message = f"{facts.name} has {_gpu_count(facts)}; {first.name} has {_gpu_count(first)}"
        yield fault(MIXED_GPU_COUNTS, key, message, f"move {facts.name} to a group of its own")
    elif facts.efa and first.efa and interfaces(facts, group.fabric) != interfaces(first, group.fabric):
        message = f"{facts.name} has {_efa_layout(facts)}; {first.name} has {_efa_layout(first)}"
        yield fault(MIXED_NETWORK_CARDS, key, message, f"move {facts.name} to a group of its own")


def _check_accelerators(catalog: Catalog, key: str, facts: InstanceFacts, group: Group) -> Iterator[Fault]:
    if group.fabric and not facts.efa:
        yield fault(TYPE_WITHOUT_EFA, key, f"{facts.name} has no EFA", _size_with_efa(catalog, facts))
    if _has_other_accelerators(facts) and group.use.is_worker:
        yield fault(NO_DEVICE_PLUGIN, key, f"no add-on makes the accelerators of {facts.name} known to Kubernetes")
    elif _has_other_accelerators(facts):
        yield fault(NOT_NVIDIA, key, f"no role installs a driver for the accelerators of {facts.name}")
    if facts.gpu and not facts.gpu.count:
        fix = _smallest_whole_gpu(catalog, facts.gpu)
        yield fault(PART_OF_A_GPU, key, f"{facts.name} has a part of a GPU, which needs NVIDIA's GRID driver", fix)


def _smallest_whole_gpu(catalog: Catalog, gpu: GpuFacts) -> str:
    """Return the smallest type with one whole GPU of this model, as a fix; empty if there is none."""
    sizes = [other for other in catalog.types.values() if other.gpu and other.gpu.name == gpu.name and other.gpu.count]
    near = min(sizes, key=lambda other: (other.vcpus, other.memory_mib, other.name), default=None)
    return f"write {near.name}" if near else ""


def _size_with_efa(catalog: Catalog, facts: InstanceFacts) -> str:
    """Return the nearest size of the same family with EFA, as a fix; empty if the family has none."""
    family = facts.name.partition(".")[0] + "."
    sizes = [other for name, other in catalog.types.items() if name.startswith(family) and other.efa]
    near = min(sizes, key=lambda other: (abs(other.vcpus - facts.vcpus), other.name), default=None)
    return f"write {near.name}, or delete fabric" if near else ""


def _has_other_accelerators(facts: InstanceFacts) -> bool:
    return facts.accelerator is not None or (facts.gpu is not None and facts.gpu.manufacturer.lower() != "nvidia")


def _check_similar(key: str, group: Group, type_facts: tuple[InstanceFacts, ...]) -> Iterator[Fault]:
    if not group.similar:
        return
    reserved = any(rung.market.is_reserved for rung in group.ladder)
    conflicts = {
        "GPU or accelerator instance types": any(facts.gpu or facts.accelerator for facts in type_facts),
        "a fabric": group.fabric is not None,
        "a reservation or capacity block": reserved,
        "instance types that the catalog does not have": len(type_facts) < len(group.types),
    }
    conflict = next((name for name, applies in conflicts.items() if applies), None)
    if conflict:
        yield fault(SIMILAR_NOT_APPLICABLE, f"{key}.similar", f"`similar: true` cannot be used with {conflict}")


def _gpu_count(facts: InstanceFacts) -> str:
    count = full_gpus(facts)
    return f"{count} GPU" if count == 1 else f"{count} GPUs" if count else "a part of a GPU"


def _efa_layout(facts: InstanceFacts) -> str:
    cards = len(facts.interfaces_per_card)
    return f"{facts.efa} EFA on {cards} network card{'' if cards == 1 else 's'}"


# Kubernetes reserves both domains with all below them; bedplate sets the labels and taints of the others.
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")
_BEDPLATE_DOMAINS = ("bedplate", "k8s.amazonaws.com", "vpc.amazonaws.com", "nvidia.com", "amd.com", "aws.amazon.com")


def check_labels(context: Context) -> Iterator[Fault]:
    """Yield faults of unused, reserved and duplicate labels and taints."""
    for name, group in context.fleet.groups.items():
        key = f"groups.{name}"
        if not group.use.is_worker:
            for field, value in (("labels", group.labels), ("taints", group.taints)):
                if value:
                    yield fault(UNUSED_LABEL, f"{key}.{field}", f"a group with use: {group.use} cannot have {field}")
            continue
        for place, name_in_cluster in label_keys(key, group):
            yield from _check_label_domain(place, name_in_cluster)
        yield from _check_duplicate_taints(key, group)


def label_keys(key: str, group: Group) -> Iterator[tuple[str, str]]:
    """Yield the place in the file and the key of each label and taint."""
    for label in group.labels:
        yield f"{key}.labels.{label}", label
    for index, taint in enumerate(group.taints):
        yield f"{key}.taints.{index}", taint.partition(":")[0].partition("=")[0]


def _check_duplicate_taints(key: str, group: Group) -> Iterator[Fault]:
    taints = enumerate(taint.rpartition(":") for taint in group.taints)
    keyed = ((f"{key}.taints.{index}", (name.partition("=")[0], effect)) for index, (name, _, effect) in taints)
    for place, (name, effect), first in repeated(keyed):
        number = int(first.rpartition(".")[2]) + 1
        yield fault(DUPLICATE_TAINT, place, f"taint {number} already has the key {name} with the effect {effect}")


def _check_label_domain(place: str, label: str) -> Iterator[Fault]:
    domain, slash, _ = label.rpartition("/")
    if not slash:
        return
    if any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _KUBERNETES_DOMAINS):
        yield fault(RESERVED_LABEL, place, f"Kubernetes reserves the domain {domain}")
    elif domain in _BEDPLATE_DOMAINS:
        yield fault(RESERVED_LABEL, place, f"bedplate or a driver sets labels in the domain {domain}")


# Amazon EBS user guide, General Purpose SSD volumes: 3,000 IOPS at any size, then 500 per GiB; 0.25 MiB/s per IOPS.
FREE_IOPS, IOPS_PER_GIB, IOPS_PER_MIB = 3000, 500, 4


def check_volumes(context: Context) -> Iterator[Fault]:
    """Yield faults of root volumes that AWS rejects, or that are smaller than the image."""
    image = context.fleet.image.disk
    for name, group in context.fleet.groups.items():
        yield from _check_volume_speed(f"groups.{name}", group)
        if group.disk < image:
            message = f"the disk of {group.disk} GiB is smaller than the image of {image} GiB"
            yield fault(DISK_BELOW_IMAGE, f"groups.{name}.disk", message, f"write disk: {image} or more")


def _check_volume_speed(key: str, group: Group) -> Iterator[Fault]:
    most_iops = max(FREE_IOPS, IOPS_PER_GIB * group.disk)
    if group.disk_iops > most_iops:
        message = f"a disk of {group.disk} GiB has at most {most_iops} IOPS, not {group.disk_iops}"
        fix = f"write disk_iops: {most_iops}, or disk: {-(-group.disk_iops // IOPS_PER_GIB)}"
        yield fault(DISK_IOPS, f"{key}.disk_iops", message, fix)
    least_iops = group.disk_throughput * IOPS_PER_MIB
    if least_iops > group.disk_iops:
        message = f"{group.disk_throughput} MiB/s need {least_iops} IOPS; the disk has {group.disk_iops}"
        fix = f"write disk_iops: {least_iops}, or a smaller disk_throughput"
        yield fault(DISK_THROUGHPUT, f"{key}.disk_throughput", message, fix)


# AWS tag naming limits and EC2 Auto Scaling quotas.
MOST_TAGS, LONGEST_KEY = 50, 128
# Tags of every machine of a pool: fleet, stack, owner, name, group, pool, use, expiry.
NODE_TAGS = 8


def check_tags(context: Context) -> Iterator[Fault]:
    """Yield faults of labels and taints that exceed the limits of AWS tags."""
    for name, pools in planned_pools(context).items():
        key, group = f"groups.{name}", context.fleet.groups[name]
        if not group.use.is_worker:
            continue
        for place, label in label_keys(key, group):
            if len(LABEL + label) > LONGEST_KEY:
                message = f"{label} has {len(label)} characters; an AWS tag allows {LONGEST_KEY - len(LABEL)}"
                yield fault(TOO_MANY_TAGS, place, message)
        count = max((tag_count(context.fleet.name, pool, context.catalog) for pool in pools), default=0)
        count += len(context.fleet.tags)
        if count > MOST_TAGS:
            place = f"{key}.labels" if group.labels else f"{key}.taints"
            yield fault(TOO_MANY_TAGS, place, f"the group's pools would have {count} tags; AWS allows {MOST_TAGS}")


def tag_count(fleet: str, pool: PoolPlan, catalog: Catalog) -> int:
    """Return the number of tags of a pool of workers with an expiry."""
    return NODE_TAGS + len(from_zero_tags(fleet, pool_registration(pool, catalog)))


_REFRESH = "run `bedplate catalog refresh`"
_EBS = "Amazon EBS user guide, General Purpose SSD volumes"

CHECKS = (check_groups, check_types, check_volumes, check_labels, check_tags, check_limits)
_rule = partial(Rule, section="groups")
UNKNOWN_INSTANCE_TYPE = _rule(
    "E301",
    "The catalog has no such instance type; AWS may have it since the last refresh.",
    f"write an EC2 instance type; for a new type: {_REFRESH}",
    "EC2 DescribeInstanceTypes",
    allowable=True,
)
MIN_ABOVE_MAX = _rule("E304", "The minimum cannot exceed the maximum.", "raise max or lower min")
MIXED_HARDWARE = _rule("E305", "The types of a group must be interchangeable.", "make a group per kind of hardware")
TYPE_WITHOUT_EFA = _rule(
    "E306",
    "`fabric: efa` needs instance types with EFA.",
    "write a type with EFA, or delete fabric",
    "EC2 DescribeInstanceTypes",
)
DUPLICATE_TYPE = _rule("E313", "A second entry has no effect.", "delete one of the two")
EMPTY_GROUP = _rule("W316", "A group with a maximum of 0 has no effect.", "raise max, or delete the group")
NOT_NVIDIA = _rule(
    "E317",
    "Machines get NVIDIA's driver only, so nobody can use other accelerators, which cost money.",
    "write a type with NVIDIA GPUs, or install the vendor's driver yourself and allow this",
    "EC2 DescribeInstanceTypes",
    allowable=True,
)
NO_DEVICE_PLUGIN = _rule(
    "E645",
    "Without a device plugin, pods that ask for these accelerators wait forever, on machines that cost money.",
    "write a type with NVIDIA GPUs, or install the vendor's driver and plugin and allow this",
    allowable=True,
)
PART_OF_A_GPU = _rule(
    "E354",
    "A part of a GPU needs NVIDIA's GRID driver, which the image does not have.",
    "write a type with whole GPUs",
    "EC2 user guide, NVIDIA drivers",
)
MIXED_GPU_COUNTS = _rule(
    "E322",
    "A job requests a number of GPUs, so all machines of a group need the same number.",
    "make a group per number of GPUs",
)
MIXED_NETWORK_CARDS = _rule(
    "E323",
    "All types of a group share one list of network interfaces.",
    "make a group per layout of network cards",
    "EC2 API, launch template network interfaces",
)
SIMILAR_NOT_APPLICABLE = _rule(
    "E324", "AWS selects similar types only by CPUs and memory.", "delete similar", "EC2 API, InstanceRequirements"
)
DISK_IOPS = _rule("E334", "A gp3 volume has 500 IOPS per GiB.", "raise disk, or lower disk_iops", _EBS)
DISK_THROUGHPUT = _rule(
    "E335", "A gp3 volume has 0.25 MiB/s per IOPS.", "raise disk_iops, or lower disk_throughput", _EBS
)
DISK_BELOW_IMAGE = _rule(
    "E336", "EC2 requires a root volume of at least the size of the image.", "raise disk", "EC2 API, EbsBlockDevice"
)
RESERVED_LABEL = _rule(
    "E337",
    "Kubernetes, drivers or bedplate set the labels and taints of these domains.",
    "use a domain of your own, such as lab.example",
    "Kubernetes, NodeRestriction",
)
UNUSED_LABEL = _rule("E338", "Only Kubernetes nodes have labels and taints.", "delete them, or write use: kubernetes")
UNUSED_LIMIT = _rule("E357", "Only Kubernetes nodes have pods to start for.", "delete it, or write use: kubernetes")
SPARE_ABOVE_MAX = _rule("E358", "A group cannot keep more machines free than it may have.", "lower spare")
CEILING_BELOW_A_MACHINE = _rule("E359", "No machine could start.", "raise max_cost")
TOO_MANY_TAGS = _rule(
    "E339",
    "Labels and taints are also tags of Auto Scaling groups, for scaling from zero.",
    "shorten or delete some labels, taints or tags",
    "AWS tag naming limits; EC2 Auto Scaling quotas",
)
DUPLICATE_TAINT = _rule(
    "E351", "A node has one taint per key and effect.", "delete one of the two", "Kubernetes, Taints and Tolerations"
)
