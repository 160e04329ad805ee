"""What AWS refuses of a mixed instances policy: of its overrides, of requirements in their place, of its purchases.

Source: Auto Scaling API reference, LaunchTemplateOverrides, InstanceRequirements and InstancesDistribution.
"""

from collections.abc import Iterator, Mapping, Sequence

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, inside
from bedplate.rehearsal.unknown import is_known

_POLICY = "mixedInstancesPolicy"
_OVERRIDES = f"{_POLICY}.launchTemplate.overrides"
_REQUIREMENTS = f"{_OVERRIDES}.instanceRequirements"
_SPREAD = f"{_POLICY}.instancesDistribution"
_DISTRIBUTION = {
    "onDemandAllocationStrategy": Choice(("lowest-price", "prioritized")),
    "onDemandBaseCapacity": Number(0, 10000),
    "onDemandPercentageAboveBaseCapacity": Number(0, 100),
    "spotAllocationStrategy": Choice(
        ("capacity-optimized", "capacity-optimized-prioritized", "lowest-price", "price-capacity-optimized")
    ),
    "spotInstancePools": Number(1, 20),
    "spotMaxPrice": Text(0, 255, r"([0-9]+(\.[0-9]+)?)?", "a price such as 0.05"),
}
_OVERRIDE = {"weightedCapacity": Text(1, 3, r"[1-9][0-9]{0,2}", "a whole number from 1 to 999")}
_REQUIREMENT = {
    "bareMetal": Choice(("included", "excluded", "required")),
    "burstablePerformance": Choice(("included", "excluded", "required")),
    "localStorage": Choice(("included", "excluded", "required")),
}
_WORDS = {
    "cpuManufacturers": ("intel", "amd", "amazon-web-services", "apple"),
    "instanceGenerations": ("current", "previous"),
}
_RANGES = ("acceleratorCount", "memoryMib", "vcpuCount", "memoryGibPerVcpu", "networkInterfaceCount")
_NEEDED = ("memoryMib", "vcpuCount")
# The order of a list, which requirements do not have, decides with these.
_ORDERED = {
    "onDemandAllocationStrategy": "prioritized",
    "spotAllocationStrategy": "capacity-optimized-prioritized",
}
_MOST_OVERRIDES = 40


def mixture_complaints(inputs: Props) -> Iterator[Complaint]:
    """Yield what is wrong with a group's policy."""
    yield from inside(inputs, _SPREAD, _DISTRIBUTION)
    yield from inside(inputs, _OVERRIDES, _OVERRIDE)
    yield from inside(inputs, _REQUIREMENTS, _REQUIREMENT)
    policy = inputs.get(_POLICY)
    if not isinstance(policy, Mapping) or not is_known(policy):
        return
    overrides = (policy.get("launchTemplate") or {}).get("overrides") or []
    distribution = policy.get("instancesDistribution") or {}
    yield from _overrides(overrides)
    yield from _required(overrides, distribution)
    yield from _pools(distribution)


def _overrides(overrides: Sequence[Props]) -> Iterator[Complaint]:
    types = [str({**one, "weightedCapacity": None}) for one in overrides if one.get("instanceType")]
    if len(overrides) > _MOST_OVERRIDES:
        yield Complaint(_POLICY, f"ValidationError: a group has at most {_MOST_OVERRIDES} overrides")
    if len(set(types)) < len(types):
        yield Complaint(_POLICY, "ValidationError: an instance type is there twice")
    if len({bool(one.get("weightedCapacity")) for one in overrides}) > 1:
        yield Complaint(_POLICY, "ValidationError: weigh all instance types or none")


def _required(overrides: Sequence[Props], distribution: Props) -> Iterator[Complaint]:
    asked = [one["instanceRequirements"] for one in overrides if one.get("instanceRequirements")]
    if asked and any(one.get("instanceType") for one in overrides):
        yield Complaint(_OVERRIDES, "ValidationError: name instance types or give requirements, not both")
    for key, word in _ORDERED.items():
        if asked and distribution.get(key) == word:
            yield Complaint(f"{_SPREAD}.{key}", f"ValidationError: {word} cannot be used with instance requirements")
    for requirements in asked:
        yield from _requirements(requirements)


def _requirements(told: Props) -> Iterator[Complaint]:
    for key in _NEEDED:
        if (told.get(key) or {}).get("min") is None:
            yield Complaint(f"{_REQUIREMENTS}.{key}", f"ValidationError: requirements need a minimum of {key}")
    for key in _RANGES:
        least, most = ((told.get(key) or {}).get(end) for end in ("min", "max"))
        if least is not None and most is not None and least > most:
            yield Complaint(f"{_REQUIREMENTS}.{key}", f"ValidationError: the minimum {least} is above {most}")
    for key, words in _WORDS.items():
        if unknown := sorted(set(told.get(key) or []) - {*words}):
            yield Complaint(f"{_REQUIREMENTS}.{key}", f"expected some of {list(words)}, got {unknown}")
    if told.get("allowedInstanceTypes") and told.get("excludedInstanceTypes"):
        yield Complaint(f"{_REQUIREMENTS}.allowedInstanceTypes", "conflicts with excludedInstanceTypes")


def _pools(distribution: Props) -> Iterator[Complaint]:
    strategy = distribution.get("spotAllocationStrategy") or "lowest-price"
    if distribution.get("spotInstancePools") and strategy != "lowest-price":
        told = f"ValidationError: spotInstancePools is for the strategy lowest-price, not {strategy}"
        yield Complaint(f"{_SPREAD}.spotInstancePools", told)
