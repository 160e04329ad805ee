"""Parts of an Auto Scaling group that are resources of their own: life cycle hooks and scheduled actions."""

from collections.abc import Iterator
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond
from bedplate.rehearsal.kinds.scaling_extras import add_hooks
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_HOOK = {
    "name": Text(1, 255, r"[A-Za-z0-9\-_/]+", "letters, digits and -_/"),
    "defaultResult": Choice(("ABANDON", "CONTINUE")),
    "heartbeatTimeout": Number(30, 7200),
    "lifecycleTransition": Choice(("autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING")),
}
_KEEP = -1  # the provider's word for a size that a scheduled action leaves alone


def _require_group(aws: Aws, name: str) -> None:
    call = {"AutoScalingGroupNames": [name]}
    if not aws.call("autoscaling", "describe_auto_scaling_groups", **call)["AutoScalingGroups"]:
        raise Refusal("ValidationError", f"AutoScalingGroup name not found: {name}", key="autoscalingGroupName")


def _create(aws: Aws, inputs: Props) -> str:
    _update(aws, "", {}, inputs)
    return str(inputs["name"])


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    group = new["autoscalingGroupName"]
    _require_group(aws, group)
    add_hooks(aws, group, [{key: value for key, value in new.items() if key != "autoscalingGroupName"}])


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    call = {"AutoScalingGroupName": inputs["autoscalingGroupName"], "LifecycleHookNames": [ident]}
    if not aws.call("autoscaling", "describe_lifecycle_hooks", **call)["LifecycleHooks"]:
        raise Refusal("ValidationError", f"there is no life cycle hook {ident}")
    return {"defaultResult": inputs.get("defaultResult") or "ABANDON", "name": ident}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    call = {"AutoScalingGroupName": outputs["autoscalingGroupName"], "LifecycleHookName": ident}
    aws.call("autoscaling", "delete_lifecycle_hook", **call)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _HOOK)


LIFECYCLE_HOOK = Kind(
    token="aws:autoscaling/lifecycleHook:LifecycleHook",
    inputs=updates("defaultResult", "heartbeatTimeout", "lifecycleTransition", "notificationMetadata")
    | updates("notificationTargetArn", "roleArn")
    | replaces("autoscalingGroupName", "name"),
    computed=frozenset({"defaultResult", "name"}),
    naming=Naming(longest=255),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)


def _schedule(aws: Aws, inputs: Props) -> str:
    _put(aws, "", {}, inputs)
    return str(inputs["scheduledActionName"])


def _put(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _require_group(aws, new["autoscalingGroupName"])
    operation = "put_scheduled_update_group_action"
    renames = {"autoscalingGroupName": "AutoScalingGroupName"}
    wanted = {key: value for key, value in new.items() if value != _KEEP}
    aws.call("autoscaling", operation, **placed(aws, ("autoscaling", operation), wanted, renames=renames))


def _action(aws: Aws, ident: str, group: str) -> dict[str, Any]:
    call = {"AutoScalingGroupName": group, "ScheduledActionNames": [ident]}
    actions = aws.call("autoscaling", "describe_scheduled_actions", **call)["ScheduledUpdateGroupActions"]
    if not actions:
        raise Refusal("ValidationError", f"there is no scheduled action {ident}")
    found: dict[str, Any] = actions[0]
    return found


def _read_schedule(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    group = inputs["autoscalingGroupName"]
    found = _action(aws, ident, group)
    # moto gives no ARN: the digits in it are made from the names.
    digits = uuid5(NAMESPACE_URL, f"{aws.region}/{group}/{ident}")
    place = f"{digits}:autoScalingGroupName/{group}:scheduledActionName/{ident}"
    sizes = {"minSize": "MinSize", "maxSize": "MaxSize", "desiredCapacity": "DesiredCapacity"}
    return {
        "arn": aws.arn("autoscaling", f"scheduledUpdateGroupAction:{place}"),
        **{key: found.get(name, _KEEP) for key, name in sizes.items()},
    }


def _cancel(aws: Aws, ident: str, outputs: Props) -> None:
    call = {"AutoScalingGroupName": outputs["autoscalingGroupName"], "ScheduledActionName": ident}
    aws.call("autoscaling", "delete_scheduled_action", **call)


def _schedule_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    if not any(inputs.get(key) for key in ("recurrence", "startTime")):
        yield Complaint("recurrence", "one of recurrence and startTime must be given")


SCHEDULE = Kind(
    token="aws:autoscaling/schedule:Schedule",
    inputs=updates("desiredCapacity", "endTime", "maxSize", "minSize", "recurrence", "startTime", "timeZone")
    | replaces("autoscalingGroupName", "scheduledActionName"),
    computed=frozenset({"desiredCapacity", "endTime", "maxSize", "minSize", "startTime", "timeZone"}),
    create=_schedule,
    read=_read_schedule,
    update=_put,
    delete=_cancel,
    complaints=_schedule_complaints,
)
