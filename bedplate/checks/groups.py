"""Groups: numbers that make sense, names that fit, and types that AWS has."""

from collections.abc import Iterator

from bedplate.catalog import Catalog, InstanceFacts
from bedplate.catalog.nearest import nearest
from bedplate.checks.context import Evidence, planned_pools, repeated
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.plan.pools import PoolPlan, interfaces
from bedplate.plan.registration import LABEL, from_zero_tags, pool_registration
from bedplate.spec.groups import Group, Market
from bedplate.spec.sites import Use


def check_groups(evidence: Evidence) -> Iterator[Fault]:
    """Tell what is wrong with the types and numbers of each group."""
    for name, group in evidence.fleet.groups.items():
        key = f"groups.{name}"
        yield from _numbers(key, group)
        types = tuple((f"{key}.types.{index}", kind) for index, kind in enumerate(group.types))
        for place, kind, _ in repeated(types):
            yield fault("E313", place, f"{kind} is listed twice")
        for place, kind in types:
            yield from unknown_type(evidence.catalog, place, kind)


def unknown_type(catalog: Catalog, key: str, kind: str) -> Iterator[Fault]:
    """Tell an instance type that the catalogue does not know."""
    if kind not in catalog.types:
        # Few people mistype the first letter, and a thousand types take long to compare.
        near = nearest(kind, [name for name in catalog.types if name[0] == kind[0]])
        fix = f"write {near} ({described(catalog.types[near])})" if near else ""
        yield fault("E301", key, f"{kind} is no EC2 instance type", fix)


def described(facts: InstanceFacts) -> str:
    """Return what an operator knows a type by: its GPUs, else its processors and memory."""
    if facts.gpu and facts.gpu.count:
        return f"{facts.gpu.count} x {facts.gpu.name.upper()}"
    return f"{facts.vcpus} vCPUs, {facts.memory_mib // 1024} GiB"


def known_types(catalog: Catalog, group: Group) -> tuple[tuple[int, InstanceFacts], ...]:
    """Return the types of a group that the catalogue knows, each with its place in the list."""
    return tuple((i, catalog.types[name]) for i, name in enumerate(group.types) if name in catalog.types)


def has_gpus(catalog: Catalog, group: Group) -> bool:
    """Tell whether a group's machines have GPUs, as far as the catalogue knows."""
    return any(facts.gpu for _, facts in known_types(catalog, group))


def _numbers(key: str, group: Group) -> Iterator[Fault]:
    low, high = group.nodes.min, group.nodes.max
    if low > high:
        message = f"the minimum, {low}, is above the maximum, {high}"
        yield fault("E304", f"{key}.nodes.min", message, f"write max: {low}, or a smaller min")
    elif high == 0:
        yield fault("W316", f"{key}.nodes.max", "the group may never have a machine")


def check_kinds(evidence: Evidence) -> Iterator[Fault]:
    """Tell types that differ from the first that is known, that lack the fabric, or that nothing can be like."""
    for name, group in evidence.fleet.groups.items():
        key, known = f"groups.{name}", known_types(evidence.catalog, group)
        for index, facts in known:
            yield from _unlike(f"{key}.types.{index}", facts, known[0][1], group)
            yield from _alone(evidence.catalog, f"{key}.types.{index}", facts, group)
        yield from _similar(key, group, tuple(facts for _, facts in known))


def kind_of(facts: InstanceFacts) -> str:
    """Return what a type is at its broadest: with GPUs or without, and its architecture."""
    return f"{'a GPU' if facts.gpu else 'a CPU'} type of {facts.arch}"


def gpus(facts: InstanceFacts) -> int:
    """Return how many whole GPUs a type has."""
    return facts.gpu.count if facts.gpu else 0


def _unlike(key: str, facts: InstanceFacts, first: InstanceFacts, group: Group) -> Iterator[Fault]:
    """Tell how a type differs from the first, at its broadest: what follows from that is not told beside it."""
    if kind_of(facts) != kind_of(first):
        message = f"{facts.name} is {kind_of(facts)}; {first.name} is {kind_of(first)}"
        yield fault("E305", key, message)
    elif gpus(facts) != gpus(first):
        message = f"{facts.name} has {_counted(gpus(facts))}; {first.name} has {_counted(gpus(first))}"
        yield fault("E322", key, message)
    elif facts.efa and first.efa and interfaces(facts, group.fabric) != interfaces(first, group.fabric):
        message = (
            f"{facts.name} has {facts.efa} EFA on {_cards(facts)}; {first.name} has {first.efa} on {_cards(first)}"
        )
        yield fault("E323", key, message)


def _alone(catalog: Catalog, key: str, facts: InstanceFacts, group: Group) -> Iterator[Fault]:
    if group.fabric and not facts.efa:
        yield fault("E306", key, f"{facts.name} has no EFA", _size_with_fabric(catalog, facts))
    if _is_foreign(facts):
        yield fault("W317", key, f"{facts.name} has accelerators that are not NVIDIA's")


def _size_with_fabric(catalog: Catalog, facts: InstanceFacts) -> str:
    """Return the size of the same family nearest to a type's that has EFA, as a fix; nothing where none has."""
    family = facts.name.partition(".")[0] + "."
    sizes = [other for name, other in catalog.types.items() if name.startswith(family) and other.efa]
    near = min(sizes, key=lambda other: (abs(other.vcpus - facts.vcpus), other.name), default=None)
    return f"write {near.name}, or drop fabric" if near else ""


def _is_foreign(facts: InstanceFacts) -> bool:
    return facts.accelerator is not None or (facts.gpu is not None and facts.gpu.manufacturer.lower() != "nvidia")


def _similar(key: str, group: Group, known: tuple[InstanceFacts, ...]) -> Iterator[Fault]:
    if not group.similar:
        return
    reserved = any(rung.market in (Market.RESERVATION, Market.CAPACITY_BLOCK) for rung in group.ladder)
    reasons = {
        "types with GPUs or other accelerators": any(facts.gpu or facts.accelerator for facts in known),
        "a fabric": group.fabric is not None,
        "a reservation, which holds one type": reserved,
        "types that the catalogue does not know": len(known) < len(group.types),
    }
    for reason in (reason for reason, applies in reasons.items() if applies):
        yield fault("E324", f"{key}.similar", f"nothing is chosen by likeness to {reason}")
        return


def _counted(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs" if count else "a part of a GPU"


def _cards(facts: InstanceFacts) -> str:
    count = len(facts.interfaces_per_card)
    return f"{count} network card" if count == 1 else f"{count} network cards"


# Kubernetes keeps both domains and all below them; the others are those of labels and taints that bedplate gives.
_KEPT = ("kubernetes.io", "k8s.io")
_OURS = ("bedplate", "k8s.amazonaws.com", "vpc.amazonaws.com", "nvidia.com", "amd.com", "aws.amazon.com")


def check_labels(evidence: Evidence) -> Iterator[Fault]:
    """Tell labels and taints that nobody reads, that are somebody else's, or that come twice."""
    for name, group in evidence.fleet.groups.items():
        key = f"groups.{name}"
        if group.use is not Use.KUBERNETES:
            yield from _unread(key, group)
            continue
        for place, mark in marks(key, group):
            yield from _domain(place, mark)
        yield from _again(key, group)


def marks(key: str, group: Group) -> Iterator[tuple[str, str]]:
    """Yield the keys of labels and of taints, with where they stand."""
    for label in group.labels:
        yield f"{key}.labels.{label}", label
    for index, taint in enumerate(group.taints):
        yield f"{key}.taints.{index}", taint.partition(":")[0].partition("=")[0]


def _again(key: str, group: Group) -> Iterator[Fault]:
    taints = enumerate(taint.rpartition(":") for taint in group.taints)
    keyed = ((f"{key}.taints.{index}", (name.partition("=")[0], effect)) for index, (name, _, effect) in taints)
    for place, (mark, effect), first in repeated(keyed):
        yield fault("E351", place, f"{mark} is a taint for {effect} already, as number {_number(first)}")


def _unread(key: str, group: Group) -> Iterator[Fault]:
    for name, given in (("labels", group.labels), ("taints", group.taints)):
        if given:
            yield fault("E338", f"{key}.{name}", f"machines of use {group.use} join no cluster that reads {name}")


def _domain(place: str, mark: str) -> Iterator[Fault]:
    domain, slash, _ = mark.rpartition("/")
    if not slash:
        return
    if any(domain == kept or domain.endswith(f".{kept}") for kept in _KEPT):
        yield fault("E337", place, f"Kubernetes keeps {domain} to itself")
    elif domain in _OURS:
        yield fault("E337", place, f"bedplate gives what is in {domain}")


def _number(key: str) -> int:
    return int(key.rpartition(".")[2]) + 1


# Amazon EBS user guide, General Purpose SSD volumes: 3,000 operations whatever the size, then 500 a
# GiB; and a quarter of a MiB/s an operation.
FREE_IOPS, IOPS_A_GIB, IOPS_A_MIB = 3000, 500, 4


def check_volumes(evidence: Evidence) -> Iterator[Fault]:
    """Tell root volumes that AWS would refuse, or that the image does not fit on."""
    image = evidence.fleet.image.disk
    for name, group in evidence.fleet.groups.items():
        yield from _speed(f"groups.{name}", group)
        if group.disk < image:
            message = f"{group.disk} GiB are less than the image's {image}"
            yield fault("E336", f"groups.{name}.disk", message, f"write disk: {image} or more")


def _speed(key: str, group: Group) -> Iterator[Fault]:
    most = max(FREE_IOPS, IOPS_A_GIB * group.disk)
    if group.disk_iops > most:
        message = f"{group.disk_iops} operations a second are more than {group.disk} GiB give: {most}"
        yield fault("E334", f"{key}.disk_iops", message, f"write {most}, or disk: {-(-group.disk_iops // IOPS_A_GIB)}")
    if group.disk_throughput * IOPS_A_MIB > group.disk_iops:
        least = group.disk_throughput * IOPS_A_MIB
        message = f"{group.disk_throughput} MiB/s need {least} operations a second; there are {group.disk_iops}"
        yield fault("E335", f"{key}.disk_throughput", message, f"write disk_iops: {least}, or a smaller throughput")


# AWS tag naming limits and EC2 Auto Scaling quotas.
MOST_TAGS, LONGEST_KEY = 50, 128
# What every machine of a pool is tagged with: fleet, stack, owner, name, group, pool, use, expiry.
NODE_TAGS = 8


def check_tags(evidence: Evidence) -> Iterator[Fault]:
    """Tell workers whose labels and taints would be too long or too many as tags."""
    for name, pools in planned_pools(evidence).items():
        key, group = f"groups.{name}", evidence.fleet.groups[name]
        if group.use is not Use.KUBERNETES:
            continue
        yield from _long(marks(key, group))
        count = max((tag_count(evidence.fleet.name, pool, evidence.catalog) for pool in pools), default=0)
        if count > MOST_TAGS:
            place = f"{key}.labels" if group.labels else f"{key}.taints"
            yield fault("E339", place, f"its pools would have {count} tags; AWS takes {MOST_TAGS}")


def tag_count(fleet: str, pool: PoolPlan, catalog: Catalog) -> int:
    """Return how many tags a pool of workers has, were it to expire."""
    return NODE_TAGS + len(from_zero_tags(fleet, pool_registration(pool, catalog)))


def _long(named: Iterator[tuple[str, str]]) -> Iterator[Fault]:
    for place, mark in named:
        if len(LABEL + mark) > LONGEST_KEY:
            message = f"{mark} has {len(mark)} characters; as a tag it may have {LONGEST_KEY - len(LABEL)}"
            yield fault("E339", place, message)


GROUP_RULES = (
    Rule(
        "E301",
        "unknown-instance-type",
        "AWS has no such type, as far as the catalogue knows.",
        "write an EC2 instance type",
        "EC2 DescribeInstanceTypes",
        allowable=True,
    ),
    Rule("E304", "min-above-max", "A group cannot keep more than it may have.", "raise max or lower min"),
    Rule("E305", "mixed-kinds", "Types of a group must serve equally well.", "make a group of each kind"),
    Rule(
        "E306",
        "type-without-fabric",
        "Fabric efa needs types with EFA.",
        "choose a type with EFA, or drop fabric",
        "EC2 DescribeInstanceTypes",
    ),
    Rule("E313", "type-twice", "Naming it again changes nothing.", "delete one of them"),
    Rule("W316", "group-of-none", "A group of at most no machines does nothing.", "raise max, or delete the group"),
    Rule(
        "W317",
        "not-nvidia",
        "The image's driver is NVIDIA's; these accelerators would lie idle.",
        "choose another type",
        "EC2 DescribeInstanceTypes",
    ),
    Rule(
        "E322",
        "mixed-gpu-counts",
        "A job asks for a number of GPUs, and whoever starts machines for it must know how many come.",
        "make a group of each number",
    ),
    Rule(
        "E323",
        "mixed-layouts",
        "All types of a group start from one list of network interfaces.",
        "make a group of each layout",
        "EC2 API, launch template network interfaces",
    ),
    Rule(
        "E324",
        "nothing-similar",
        "Likeness is judged by CPUs and memory alone.",
        "delete similar",
        "EC2 API, InstanceRequirements",
    ),
    Rule(
        "E334",
        "disk-iops",
        "A gp3 volume gives 500 operations a second for each GiB.",
        "raise disk, or lower disk_iops",
        "Amazon EBS user guide, General Purpose SSD volumes",
    ),
    Rule(
        "E335",
        "disk-throughput",
        "A gp3 volume gives a quarter of a MiB/s for each operation.",
        "raise disk_iops, or lower disk_throughput",
        "Amazon EBS user guide, General Purpose SSD volumes",
    ),
    Rule(
        "E336",
        "disk-below-image",
        "EC2 starts no machine whose root volume is smaller than its image.",
        "raise disk",
        "EC2 API, EbsBlockDevice",
    ),
)
