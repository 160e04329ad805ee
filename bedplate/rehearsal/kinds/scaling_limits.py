"""What AWS refuses of an Auto Scaling group's inputs and moto lets pass."""

from collections.abc import Iterator

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.instance_refresh import refresh_complaints
from bedplate.rehearsal.kinds.lifecycle_hook import first_hook_complaints
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, inside, together
from bedplate.rehearsal.kinds.scaling_mixture import mixture_complaints
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

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
