"""Checks of the inputs of Auto Scaling groups: sizes and mixed instances policy."""

from collections.abc import Iterator, Mapping, Sequence

from bedplate.rehearsal.kind import InvalidInput, Props
from bedplate.rehearsal.kinds.limits import Absent, Choice, Number, Text, check_exclusive, check_limits, check_nested
from bedplate.rehearsal.kinds.scaling_actions import check_initial_hooks
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.wire import is_known

_POLICY = "mixedInstancesPolicy"
_OVERRIDES = f"{_POLICY}.launchTemplate.overrides"
_REQUIREMENTS = f"{_OVERRIDES}.instanceRequirements"
_DISTRIBUTION_PATH = f"{_POLICY}.instancesDistribution"
_DISTRIBUTION_LIMITS = {
    "onDemandAllocationStrategy": Choice(("lowest-price", "prioritized")),
    "onDemandBaseCapacity": Number(0, 10000),
    "onDemandPercentageAboveBaseCapacity": Number(0, 100),
    "spotAllocationStrategy": Choice(
        ("capacity-optimized", "capacity-optimized-prioritized", "lowest-price", "price-capacity-optimized")
    ),
    "spotInstancePools": Absent(),
    "spotMaxPrice": Text(0, 255, r"([0-9]+(\.[0-9]+)?)?", "a price such as 0.05"),
}
_OVERRIDE_LIMITS = {"weightedCapacity": Absent()}
_REQUIREMENT_LIMITS = {
    "bareMetal": Choice(("included", "excluded", "required")),
    "burstablePerformance": Choice(("included", "excluded", "required")),
    "localStorage": Choice(("included", "excluded", "required")),
}
_REQUIREMENT_WORDS = {
    "cpuManufacturers": ("intel", "amd", "amazon-web-services", "apple"),
    "instanceGenerations": ("current", "previous"),
}
_RANGES = ("acceleratorCount", "memoryMib", "vcpuCount", "memoryGibPerVcpu", "networkInterfaceCount")
_REQUIRED_RANGES = ("memoryMib", "vcpuCount")
# Strategies that use the order of the overrides, which requirements do not have.
_ORDERED_STRATEGIES = {
    "onDemandAllocationStrategy": "prioritized",
    "spotAllocationStrategy": "capacity-optimized-prioritized",
}
_MAX_OVERRIDES = 40


def check_mixed_policy(inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for each invalid part of a mixed instances policy."""
    yield from check_nested(inputs, _DISTRIBUTION_PATH, _DISTRIBUTION_LIMITS)
    yield from check_nested(inputs, _OVERRIDES, _OVERRIDE_LIMITS)
    yield from check_nested(inputs, _REQUIREMENTS, _REQUIREMENT_LIMITS)
    policy = inputs.get(_POLICY)
    if not isinstance(policy, Mapping) or not is_known(policy):
        return
    overrides = (policy.get("launchTemplate") or {}).get("overrides") or []
    distribution = policy.get("instancesDistribution") or {}
    yield from _check_overrides(overrides)
    yield from _check_requirements_use(overrides, distribution)


def _check_overrides(overrides: Sequence[Props]) -> Iterator[InvalidInput]:
    types = [str(override) for override in overrides if override.get("instanceType")]
    if len(overrides) > _MAX_OVERRIDES:
        yield InvalidInput(
            _POLICY, f"has {len(overrides)} overrides, at most {_MAX_OVERRIDES} are allowed (ValidationError)"
        )
    if len(set(types)) < len(types):
        yield InvalidInput(_POLICY, "must not repeat an instance type (ValidationError)")


def _check_requirements_use(overrides: Sequence[Props], distribution: Props) -> Iterator[InvalidInput]:
    requirements_blocks = [
        override["instanceRequirements"] for override in overrides if override.get("instanceRequirements")
    ]
    if requirements_blocks and any(override.get("instanceType") for override in overrides):
        yield InvalidInput(_OVERRIDES, "must have instance types or requirements, not both (ValidationError)")
    for key, word in _ORDERED_STRATEGIES.items():
        if requirements_blocks and distribution.get(key) == word:
            yield InvalidInput(
                f"{_DISTRIBUTION_PATH}.{key}", f"cannot be {word} with instance requirements (ValidationError)"
            )
    for block in requirements_blocks:
        yield from _check_requirements(block)


def _check_requirements(requirements: Props) -> Iterator[InvalidInput]:
    for key in _REQUIRED_RANGES:
        if (requirements.get(key) or {}).get("min") is None:
            yield InvalidInput(f"{_REQUIREMENTS}.{key}", "must have a minimum (ValidationError)")
    for key in _RANGES:
        minimum, maximum = ((requirements.get(key) or {}).get(end) for end in ("min", "max"))
        if minimum is not None and maximum is not None and minimum > maximum:
            yield InvalidInput(
                f"{_REQUIREMENTS}.{key}", f"has a minimum {minimum} larger than its maximum {maximum} (ValidationError)"
            )
    for key, words in _REQUIREMENT_WORDS.items():
        if unknown := sorted(set(requirements.get(key) or []) - {*words}):
            yield InvalidInput(
                f"{_REQUIREMENTS}.{key}", f"must be some of {', '.join(words)}, not {', '.join(unknown)}"
            )
    if requirements.get("allowedInstanceTypes") and requirements.get("excludedInstanceTypes"):
        yield InvalidInput(f"{_REQUIREMENTS}.allowedInstanceTypes", "conflicts with excludedInstanceTypes")


# A duration in the format of Go, such as 10m or 1h30m; "0" means no wait.
_DURATION = r"0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+"
_MAX_SECONDS = 2**31 - 1
_LIMITS = {
    "name": Text(1, 255, r"[^:]+", "no colon"),
    "minSize": Number(0, 10000),
    "maxSize": Number(0, 10000),
    "desiredCapacity": Number(0, 10000),
    "healthCheckType": Choice(("EBS", "EC2", "ELB", "VPC_LATTICE")),
    "defaultInstanceWarmup": Number(0, _MAX_SECONDS),
    "healthCheckGracePeriod": Number(0, _MAX_SECONDS),
    "waitForCapacityTimeout": Text(1, 64, _DURATION, "a duration such as 10m"),
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


def check_group(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for each invalid input of a group, or combination of inputs."""
    yield from check_limits(inputs, _LIMITS)
    yield from check_nested(inputs, "instanceMaintenancePolicy", _MAINTENANCE)
    yield from check_mixed_policy(inputs)
    yield from check_initial_hooks(inputs)
    yield from check_exclusive(inputs, *_PLACES)
    yield from check_exclusive(inputs, *_SOURCES)
    yield from _check_words(inputs)
    yield from _check_sizes(inputs)
    if not any(inputs.get(key) is not None for key in _SOURCES):
        yield InvalidInput("launchTemplate", f"or {_SOURCES[1]} must be set")
    if not any(inputs.get(key) for key in _PLACES):
        yield InvalidInput("vpcZoneIdentifiers", "or availabilityZones must be set")


def _check_words(inputs: Props) -> Iterator[InvalidInput]:
    for key, choice in _WORDS.items():
        words = inputs.get(key)
        for word in words if is_known(words) else []:
            is_function = key == "terminationPolicies" and str(word).startswith("arn:aws:lambda:")
            if not is_function and (reason := choice.error(word)):
                yield InvalidInput(key, reason)


def _check_sizes(inputs: Props) -> Iterator[InvalidInput]:
    minimum, maximum, desired = (inputs.get(key) for key in ("minSize", "maxSize", "desiredCapacity"))
    if is_known(minimum) and is_known(maximum) and minimum > maximum:
        yield InvalidInput("minSize", f"{minimum} is larger than maxSize {maximum} (ValidationError)")
    elif is_known(minimum) and is_known(maximum) and is_known(desired) and not minimum <= desired <= maximum:
        yield InvalidInput(
            "desiredCapacity", f"{desired} is not between minSize {minimum} and maxSize {maximum} (ValidationError)"
        )
