"""Life cycle hooks of Auto Scaling groups, as resources of their own and as a group takes its first ones.

Source: Auto Scaling API reference, PutLifecycleHook; a hook of a name that is there already is put over it.
"""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, inside
from bedplate.rehearsal.kinds.scaling_extras import add_hooks
from bedplate.rehearsal.kinds.scaling_found import require_group
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_LIMITS = {
    "name": Text(1, 255, r"[A-Za-z0-9\-_/]+", "letters, digits and -_/"),
    "defaultResult": Choice(("ABANDON", "CONTINUE")),
    "heartbeatTimeout": Number(30, 7200),
    "lifecycleTransition": Choice(("autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING")),
    "notificationMetadata": Text(1, 1023),
}
_FIRST = "initialLifecycleHooks"
_MOST = 50


def first_hook_complaints(inputs: Props) -> Iterator[Complaint]:
    """Yield what is wrong with the hooks that a group is made with."""
    hooks = inputs.get(_FIRST)
    if not isinstance(hooks, list):
        return
    yield from inside(inputs, _FIRST, _LIMITS)
    names = [hook["name"] for hook in hooks if is_known(hook) and is_known(hook.get("name"))]
    if len(set(names)) < len(names):
        yield Complaint(_FIRST, "a hook's name is taken by another: the last of them would be put over the first")


def _create(aws: Aws, inputs: Props) -> str:
    group, name = inputs["autoscalingGroupName"], str(inputs["name"])
    require_group(aws, group)
    call = {"AutoScalingGroupName": group}
    there = aws.call("autoscaling", "describe_lifecycle_hooks", **call)["LifecycleHooks"]
    if len({hook["LifecycleHookName"] for hook in there} | {name}) > _MOST:
        raise Refusal("LimitExceeded", f"{group} has {_MOST} life cycle hooks, as many as a group may have")
    _update(aws, name, {}, inputs)
    return name


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    group = new["autoscalingGroupName"]
    require_group(aws, group)
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
    yield from beyond(inputs, _LIMITS)
    if inputs.get("notificationTargetArn") and inputs.get("roleArn") is None:
        yield Complaint("roleArn", "who is to notify a target needs a role")


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
    note="no machine waits for a hook",
)
