"""Cron expressions as Auto Scaling takes them: minute, hour, day of the month, month, day of the week.

Source: EC2 Auto Scaling user guide, "Recurring schedules"; an expression is read, never run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5
from zoneinfo import available_timezones

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, inside
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# Each field: what it is called, the least and the most, and the words that stand for its numbers.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_ITEM = re.compile(r"(?P<from>\*|[0-9A-Z]+)(-(?P<to>[0-9A-Z]+))?(/(?P<step>[0-9]+))?")


def cron_fault(expression: str) -> str:
    """Return what is wrong with an expression, or nothing."""
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        return f"{expression!r} has {len(fields)} fields, not {len(_FIELDS)}"
    faults = (_field_fault(text, *field) for text, field in zip(fields, _FIELDS, strict=True))
    return next((fault for fault in faults if fault), "")


def _field_fault(text: str, title: str, least: int, most: int, words: tuple[str, ...]) -> str:
    for item in text.upper().split(","):
        found = _ITEM.fullmatch(item)
        if found is None or found["step"] == "0":
            return f"{text!r} is no {title}"
        ends = [_number(end, least, words) for end in (found["from"], found["to"]) if end and end != "*"]
        if not all(least <= end <= most for end in ends) or ends != sorted(ends):
            return f"{text!r} is no {title}: {least} to {most}, ranges upwards"
    return ""


def _number(text: str, least: int, words: tuple[str, ...]) -> int:
    """Return a field's number; a word that stands for none counts as one below the least."""
    if text.isdecimal():
        return int(text)
    return words.index(text) + least if text in words else least - 1


def set_extras(aws: Aws, name: str, old: Props, new: Props) -> None:
    """Bring a group's metrics, suspended processes and warm pool from the old inputs' to the new ones'."""
    group = {"AutoScalingGroupName": name}
    metrics = new.get("enabledMetrics") or []
    if sorted(metrics) != sorted(old.get("enabledMetrics") or []):
        grain = new.get("metricsGranularity") or "1Minute"
        aws.call("autoscaling", "enable_metrics_collection", **group, Metrics=metrics, Granularity=grain)
    before, after = set(old.get("suspendedProcesses") or []), set(new.get("suspendedProcesses") or [])
    if gone := sorted(before - after):
        aws.call("autoscaling", "resume_processes", **group, ScalingProcesses=gone)
    if fresh := sorted(after - before):
        aws.call("autoscaling", "suspend_processes", **group, ScalingProcesses=fresh)
    _warm(aws, group, old.get("warmPool"), new.get("warmPool"))


def _warm(aws: Aws, group: Mapping[str, str], old: Props | None, new: Props | None) -> None:
    if new and new != old:
        aws.call("autoscaling", "put_warm_pool", **group, **placed(aws, ("autoscaling", "put_warm_pool"), new))
    elif old and not new:
        aws.call("autoscaling", "delete_warm_pool", **group)


def add_hooks(aws: Aws, name: str, hooks: Iterable[Mapping[str, Any]]) -> None:
    """Add life cycle hooks to a group."""
    for hook in hooks:
        params = placed(aws, ("autoscaling", "put_lifecycle_hook"), hook, renames={"name": "LifecycleHookName"})
        aws.call("autoscaling", "put_lifecycle_hook", AutoScalingGroupName=name, **params)


def drop_hooks(aws: Aws, name: str) -> None:
    """Delete every life cycle hook of a group: AWS does so with the group, moto keeps them."""
    found = aws.call("autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=name)["LifecycleHooks"]
    for hook in found:
        call = {"AutoScalingGroupName": name, "LifecycleHookName": hook["LifecycleHookName"]}
        aws.call("autoscaling", "delete_lifecycle_hook", **call)


def require_group(aws: Aws, name: str) -> None:
    """Refuse what names a group that is not there."""
    call = {"AutoScalingGroupNames": [name]}
    if not aws.call("autoscaling", "describe_auto_scaling_groups", **call)["AutoScalingGroups"]:
        raise Refusal("ValidationError", f"AutoScalingGroup name not found: {name}", key="autoscalingGroupName")


_KEEP = -1
_SIZES = {"minSize": "MinSize", "maxSize": "MaxSize", "desiredCapacity": "DesiredCapacity"}
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
# Every action is taken to run next within a day.
_NEXT_RUN = timedelta(hours=12)
_LIMITS = {
    "scheduledActionName": Text(1, 255, r"[^:]+", "no colon"),
    **dict.fromkeys(_SIZES, Number(_KEEP, 10000)),
}


def _create(aws: Aws, inputs: Props) -> str:
    next_run = (aws.now + _NEXT_RUN).strftime(_MOMENT)
    _put(aws, {}, {"startTime": next_run, **inputs})
    return str(inputs["scheduledActionName"])


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if not new.get("startTime"):
        kept = _start_time(_action(aws, ident, new["autoscalingGroupName"]))
        _refuse_past("startTime", kept, aws.now)
        new = {**new, "startTime": kept}
    _put(aws, old, new)


def _put(aws: Aws, old: Props, new: Props) -> None:
    require_group(aws, new["autoscalingGroupName"])
    # A moment that is past is refused only when it is sent: an action that has run is not put again.
    for key in ("startTime", "endTime"):
        _refuse_past(key, new.get(key), datetime.now(UTC))
    operation = "put_scheduled_update_group_action"
    renames = {"autoscalingGroupName": "AutoScalingGroupName"}
    sizes = {key: _size(new.get(key), old.get(key)) for key in _SIZES}
    wanted = {key: value for key, value in {**new, **sizes}.items() if value != _KEEP}
    aws.call("autoscaling", operation, **placed(aws, ("autoscaling", operation), wanted, renames=renames))


def _size(size: int | None, before: int | None) -> int:
    """Return what the provider sends for a size: one that is left out stays what it was, and begins as 0."""
    return next((one for one in (size, before) if one is not None), 0)


def _start_time(action: Mapping[str, Any]) -> str:
    started: datetime = action["StartTime"]
    return started.strftime(_MOMENT)


def _refuse_past(key: str, text: str | None, now: datetime) -> None:
    moment = _moment(text)
    if moment is not None and moment <= now:
        told = "start" if key == "startTime" else "end"
        raise Refusal("ValidationError", f"Given {told} time is in the past: {text}", key=key)


def _moment(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _action(aws: Aws, ident: str, group: str) -> dict[str, Any]:
    call = {"AutoScalingGroupName": group, "ScheduledActionNames": [ident]}
    actions = aws.call("autoscaling", "describe_scheduled_actions", **call)["ScheduledUpdateGroupActions"]
    if not actions:
        raise Refusal("ValidationError", f"there is no scheduled action {ident}")
    found: dict[str, Any] = actions[0]
    return found


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    group = inputs["autoscalingGroupName"]
    found = _action(aws, ident, group)
    # moto gives no ARN: the digits in it are made from the names.
    digits = uuid5(NAMESPACE_URL, f"{aws.region}/{group}/{ident}")
    place = f"{digits}:autoScalingGroupName/{group}:scheduledActionName/{ident}"
    return {
        "arn": aws.arn("autoscaling", f"scheduledUpdateGroupAction:{place}"),
        "startTime": _start_time(found),
        **{key: found.get(name, _KEEP) for key, name in _SIZES.items()},
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    call = {"AutoScalingGroupName": outputs["autoscalingGroupName"], "ScheduledActionName": ident}
    aws.call("autoscaling", "delete_scheduled_action", **call)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from _times(inputs)
    yield from _sizes(inputs)
    recurrence, zone = inputs.get("recurrence"), inputs.get("timeZone")
    if isinstance(recurrence, str) and is_known(recurrence) and (reason := cron_fault(recurrence)):
        yield Complaint("recurrence", f"ValidationError: {reason}")
    # A machine without a copy of the database knows no zone at all.
    if is_known(zone) and zone not in (available_timezones() or {zone}):
        yield Complaint("timeZone", f"ValidationError: {zone} is no time zone of the IANA database")


def _times(inputs: Props) -> Iterator[Complaint]:
    if not any(inputs.get(key) for key in ("recurrence", "startTime")):
        yield Complaint("recurrence", "one of recurrence and startTime must be given")
    given = {key: inputs.get(key) for key in ("startTime", "endTime")}
    moments = {key: _moment(text) for key, text in given.items() if is_known(text)}
    for key, moment in moments.items():
        if moment is None:
            yield Complaint(key, f"{given[key]} is no moment such as 2027-01-31T11:30:00Z")
    start, end = moments.get("startTime"), moments.get("endTime")
    if start is not None and end is not None and end <= start:
        yield Complaint("endTime", "ValidationError: the end is not after the start")


def _sizes(inputs: Props) -> Iterator[Complaint]:
    """Yield sizes that no group can have at once, or that change nothing."""
    values = [inputs.get(key) for key in _SIZES]
    sizes = [0 if value is None else value for value in values]
    if not all(isinstance(size, int | float) and is_known(size) for size in sizes):
        return
    least, most, wanted = sizes
    if all(size == _KEEP for size in sizes):
        yield Complaint("minSize", "ValidationError: an action changes at least one size")
    elif _KEEP not in (least, most) and least > most:
        yield Complaint("minSize", f"ValidationError: minSize {least} is above maxSize {most}")
    elif wanted != _KEEP and (wanted < least or wanted > most != _KEEP):
        yield Complaint("desiredCapacity", f"ValidationError: {wanted} is not between {least} and {most}")


SCHEDULE = Kind(
    token="aws:autoscaling/schedule:Schedule",
    inputs=updates("desiredCapacity", "endTime", "maxSize", "minSize", "recurrence", "startTime", "timeZone")
    | replaces("autoscalingGroupName", "scheduledActionName"),
    computed=frozenset({"desiredCapacity", "endTime", "maxSize", "minSize", "startTime", "timeZone"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="no action ever runs",
)


_LIFECYCLE_HOOK_LIMITS = {
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
    yield from inside(inputs, _FIRST, _LIFECYCLE_HOOK_LIMITS)
    names = [hook["name"] for hook in hooks if is_known(hook) and is_known(hook.get("name"))]
    if len(set(names)) < len(names):
        yield Complaint(_FIRST, "a hook's name is taken by another: the last of them would be put over the first")


def _lifecycle_hook_create(aws: Aws, inputs: Props) -> str:
    group, name = inputs["autoscalingGroupName"], str(inputs["name"])
    require_group(aws, group)
    call = {"AutoScalingGroupName": group}
    there = aws.call("autoscaling", "describe_lifecycle_hooks", **call)["LifecycleHooks"]
    if len({hook["LifecycleHookName"] for hook in there} | {name}) > _MOST:
        raise Refusal("LimitExceeded", f"{group} has {_MOST} life cycle hooks, as many as a group may have")
    _lifecycle_hook_update(aws, name, {}, inputs)
    return name


def _lifecycle_hook_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    group = new["autoscalingGroupName"]
    require_group(aws, group)
    add_hooks(aws, group, [{key: value for key, value in new.items() if key != "autoscalingGroupName"}])


def _lifecycle_hook_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    call = {"AutoScalingGroupName": inputs["autoscalingGroupName"], "LifecycleHookNames": [ident]}
    if not aws.call("autoscaling", "describe_lifecycle_hooks", **call)["LifecycleHooks"]:
        raise Refusal("ValidationError", f"there is no life cycle hook {ident}")
    return {"defaultResult": inputs.get("defaultResult") or "ABANDON", "name": ident}


def _lifecycle_hook_delete(aws: Aws, ident: str, outputs: Props) -> None:
    call = {"AutoScalingGroupName": outputs["autoscalingGroupName"], "LifecycleHookName": ident}
    aws.call("autoscaling", "delete_lifecycle_hook", **call)


def _lifecycle_hook_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIFECYCLE_HOOK_LIMITS)
    if inputs.get("notificationTargetArn") and inputs.get("roleArn") is None:
        yield Complaint("roleArn", "who is to notify a target needs a role")


LIFECYCLE_HOOK = Kind(
    token="aws:autoscaling/lifecycleHook:LifecycleHook",
    inputs=updates("defaultResult", "heartbeatTimeout", "lifecycleTransition", "notificationMetadata")
    | updates("notificationTargetArn", "roleArn")
    | replaces("autoscalingGroupName", "name"),
    computed=frozenset({"defaultResult", "name"}),
    naming=Naming(longest=255),
    create=_lifecycle_hook_create,
    read=_lifecycle_hook_read,
    update=_lifecycle_hook_update,
    delete=_lifecycle_hook_delete,
    complaints=_lifecycle_hook_complaints,
    note="no machine waits for a hook",
)
