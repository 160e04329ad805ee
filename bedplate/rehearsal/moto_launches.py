"""Failed launches of Auto Scaling groups: moto always has capacity.

As in AWS, the group is created; each failed launch is one of its scaling activities.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.autoscaling.models import Activity, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from bedplate.rehearsal.faults import Faults, Shortage
from bedplate.rehearsal.replaced import replaced, wrapped


@contextmanager
def failing_launches(faults: Faults) -> Iterator[None]:
    """Fail launches of groups for which no zone has capacity."""
    failed: list[tuple[str, Activity]] = []

    def wrap(launch: Callable[..., Any]) -> Callable[..., Any]:
        def checked(group: FakeAutoScalingGroup, count_needed: int, propagated_tags: dict[str, str]) -> object:
            types = _instance_types(group)
            if _is_reserved(group) or not faults.lacks_capacity(types, group.availability_zones):
                return launch(group, count_needed, propagated_tags)
            region, running = group.autoscaling_backend.region_name, len(group.active_instances())
            shortage = Shortage(group.name, region, desired=running + count_needed, running=running)
            faults.shortages[region, group.name] = shortage
            failed.append((region, _activity(group, types)))
            return None

        return checked

    def activities(response: AutoScalingResponse) -> ActionResult:
        name = response._get_param("AutoScalingGroupName")  # noqa: SLF001  # moto has no public accessor
        found = [
            activity
            for region, activity in failed
            if region == response.region and name in (None, activity.auto_scaling_group_name)
        ]
        return ActionResult({"Activities": found[::-1]})

    with (
        wrapped(FakeAutoScalingGroup, "replace_autoscaling_group_instances", wrap),
        replaced(AutoScalingResponse, "describe_scaling_activities", activities),
    ):
        yield


def _instance_types(group: FakeAutoScalingGroup) -> list[str]:
    """Return the instance types that a group may start; an empty one where requirements choose it."""
    policy = group.mixed_instances_policy or {}
    overrides = policy.get("LaunchTemplate", {}).get("Overrides") or []
    return [override.get("InstanceType", "") for override in overrides] or [group.instance_type]


def _is_reserved(group: FakeAutoScalingGroup) -> bool:
    """Return whether the group's instances start in a capacity reservation."""
    template = group.ec2_launch_template
    data = template.get_version(group.launch_template_version).data if template else {}
    return bool((data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget"))


def _activity(group: FakeAutoScalingGroup, types: list[str]) -> Activity:
    """Return the activity of a failed launch; the text is that of the EC2 Auto Scaling user guide."""
    message = (
        f"We currently do not have sufficient {', '.join(types)} capacity in the Availability Zone you requested "
        f"({', '.join(sorted(group.availability_zones))}). Launching EC2 instance failed."
    )
    cause = "an instance was started in response to a difference between desired and actual capacity"
    activity = Activity(f"Launching a new EC2 instance. Status Reason: {message}", cause, group, status_code="Failed")
    activity.progress = 100
    activity.status_message = message  # type: ignore[attr-defined]  # an output that moto never sets
    return activity
