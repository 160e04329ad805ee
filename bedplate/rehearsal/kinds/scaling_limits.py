"""What AWS refuses of an Auto Scaling group's inputs and moto lets pass."""

from collections.abc import Iterator, Mapping, Sequence

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, inside, together
from bedplate.rehearsal.kinds.scaling_actions import first_hook_complaints
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.wire import is_known

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
_SCALING_MIXTURE_WORDS = {
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
    for key, words in _SCALING_MIXTURE_WORDS.items():
        if unknown := sorted(set(told.get(key) or []) - {*words}):
            yield Complaint(f"{_REQUIREMENTS}.{key}", f"expected some of {list(words)}, got {unknown}")
    if told.get("allowedInstanceTypes") and told.get("excludedInstanceTypes"):
        yield Complaint(f"{_REQUIREMENTS}.allowedInstanceTypes", "conflicts with excludedInstanceTypes")


def _pools(distribution: Props) -> Iterator[Complaint]:
    strategy = distribution.get("spotAllocationStrategy") or "lowest-price"
    if distribution.get("spotInstancePools") and strategy != "lowest-price":
        told = f"ValidationError: spotInstancePools is for the strategy lowest-price, not {strategy}"
        yield Complaint(f"{_SPREAD}.spotInstancePools", told)


_KEY = "instanceRefresh"
_SECONDS = Text(1, 10, r"[0-9]+", "a whole number of seconds")
_PERCENT = Number(1, 100)
_PREFERENCES = {
    "checkpointDelay": _SECONDS,
    "instanceWarmup": _SECONDS,
    "minHealthyPercentage": Number(0, 100),
    "maxHealthyPercentage": Number(100, 200),
    "scaleInProtectedInstances": Choice(("Refresh", "Ignore", "Wait")),
    "standbyInstances": Choice(("Terminate", "Ignore", "Wait")),
}
_LONGEST_DELAY, _WIDEST = 172800, 100
# What starts a refresh by itself may not be named as a further reason for one.
_ALWAYS = ("launchConfiguration", "launchTemplate", "mixedInstancesPolicy")


def refresh_complaints(inputs: Props) -> Iterator[Complaint]:
    """Yield what is wrong with a refresh."""
    told = inputs.get(_KEY)
    if not isinstance(told, Mapping) or not is_known(told):
        return
    if told.get("strategy") not in ("Rolling", "ReplaceRootVolume"):
        yield Complaint(f"{_KEY}.strategy", f"expected Rolling or ReplaceRootVolume, got {told.get('strategy')!r}")
    for word in told.get("triggers") or []:
        if word in _ALWAYS:
            yield Complaint(f"{_KEY}.triggers", f"{word} always starts a refresh and can be left out")
    for found in _preferences(told.get("preferences") or {}):
        yield Complaint(f"{_KEY}.preferences.{found.key}", found.reason)


def _preferences(told: Props) -> Iterator[Complaint]:
    yield from beyond(told, _PREFERENCES)
    points = told.get("checkpointPercentages") or []
    if points != sorted(set(points)) or any(_PERCENT.complaint(point) for point in points):
        yield Complaint("checkpointPercentages", "ValidationError: checkpoints go upwards, from 1 to 100 at most")
    delay = str(told.get("checkpointDelay") or "0")
    if delay.isdecimal() and int(delay) > _LONGEST_DELAY:
        yield Complaint("checkpointDelay", f"ValidationError: a checkpoint waits {_LONGEST_DELAY} seconds at most")
    most = told.get("maxHealthyPercentage")
    if most is not None and most - told.get("minHealthyPercentage", 90) > _WIDEST:
        yield Complaint("maxHealthyPercentage", f"ValidationError: it is more than {_WIDEST} above the minimum")


# As Go writes a duration, such as 10m or 1h30m; "0" waits for nothing.
_DURATION = r"0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+"
_MOST_SECONDS = 2**31 - 1
_LIMITS = {
    "name": Text(1, 255, r"[^:]+", "no colon"),
    "minSize": Number(0, 10000),
    "maxSize": Number(0, 10000),
    "desiredCapacity": Number(0, 10000),
    "healthCheckType": Choice(("EBS", "EC2", "ELB", "VPC_LATTICE")),
    "desiredCapacityType": Choice(("units", "vcpu", "memory-mib")),
    "maxInstanceLifetime": Number(86400, 31536000, besides=(0,)),
    "defaultCooldown": Number(0, _MOST_SECONDS),
    "defaultInstanceWarmup": Number(0, _MOST_SECONDS),
    "healthCheckGracePeriod": Number(0, _MOST_SECONDS),
    "waitForCapacityTimeout": Text(1, 64, _DURATION, "a duration such as 10m"),
    "metricsGranularity": Choice(("1Minute",)),
}
_MAINTENANCE = {
    "maxHealthyPercentage": Number(100, 200, besides=(-1,)),
    "minHealthyPercentage": Number(-1, 100),
}
_WORDS = {
    "suspendedProcesses": Choice(
        (
            "AZRebalance",
            "AddToLoadBalancer",
            "AlarmNotification",
            "HealthCheck",
            "InstanceRefresh",
            "Launch",
            "ReplaceUnhealthy",
            "ScheduledActions",
            "Terminate",
        )
    ),
    "terminationPolicies": Choice(
        (
            "AllocationStrategy",
            "ClosestToNextInstanceHour",
            "Default",
            "NewestInstance",
            "OldestInstance",
            "OldestLaunchConfiguration",
            "OldestLaunchTemplate",
        )
    ),
}
_SOURCES = ("launchTemplate", "mixedInstancesPolicy")
_PLACES = ("availabilityZones", "vpcZoneIdentifiers")


def scaling_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    """Yield what is wrong with a group's inputs, one by one and together."""
    yield from beyond(inputs, _LIMITS)
    yield from inside(inputs, "instanceMaintenancePolicy", _MAINTENANCE)
    yield from mixture_complaints(inputs)
    yield from refresh_complaints(inputs)
    yield from first_hook_complaints(inputs)
    yield from together(inputs, *_PLACES)
    yield from together(inputs, *_SOURCES)
    yield from together(inputs, "name", "namePrefix")
    yield from _words(inputs)
    yield from _sizes(inputs)
    if not any(inputs.get(key) is not None for key in _SOURCES):
        yield Complaint("launchTemplate", f"one of {' and '.join(_SOURCES)} must be given")
    if not any(inputs.get(key) for key in _PLACES):
        yield Complaint("vpcZoneIdentifiers", "at least one Availability Zone or VPC subnet is required")


def _words(inputs: Props) -> Iterator[Complaint]:
    for key, choice in _WORDS.items():
        words = inputs.get(key)
        for word in words if is_known(words) else []:
            own = key == "terminationPolicies" and str(word).startswith("arn:aws:lambda:")
            if not own and (reason := choice.complaint(word)):
                yield Complaint(key, reason)


def _sizes(inputs: Props) -> Iterator[Complaint]:
    least, most, wanted = (inputs.get(key) for key in ("minSize", "maxSize", "desiredCapacity"))
    if is_known(least) and is_known(most) and least > most:
        yield Complaint("minSize", f"ValidationError: minSize {least} is above maxSize {most}")
    elif is_known(least) and is_known(most) and is_known(wanted) and not least <= wanted <= most:
        yield Complaint("desiredCapacity", f"ValidationError: {wanted} is not between {least} and {most}")
