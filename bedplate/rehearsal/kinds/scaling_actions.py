"""Scheduled actions and lifecycle hooks of Auto Scaling groups, and options of a group that have separate calls.

Cron expressions are checked, never run. Source: EC2 Auto Scaling user guide, "Recurring schedules".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5
from zoneinfo import ZoneInfo, available_timezones

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import aws_names, call_with, deletes, existing
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, check_nested, checks
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# Each field: name, minimum, maximum, and the names that its numbers can have.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_FIELD_PATTERN = re.compile(r"(?P<from>\*|[0-9A-Z]+)(-(?P<to>[0-9A-Z]+))?(/(?P<step>[0-9]+))?")


def cron_error(expression: str) -> str:
    """Return why a cron expression is invalid, or an empty string."""
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        return f"{expression!r} has {len(fields)} fields, {len(_FIELDS)} are required"
    errors = (_field_error(text, *field) for text, field in zip(fields, _FIELDS, strict=True))
    return next((error for error in errors if error), "")


def _field_error(text: str, name: str, minimum: int, maximum: int, names: tuple[str, ...]) -> str:
    for item in text.upper().split(","):
        match = _FIELD_PATTERN.fullmatch(item)
        if match is None or match["step"] == "0":
            return f"{text!r} is not a valid {name}"
        bounds = [_number(bound, minimum, names) for bound in (match["from"], match["to"]) if bound and bound != "*"]
        if not all(minimum <= bound <= maximum for bound in bounds) or bounds != sorted(bounds):
            return f"{text!r} is not a valid {name}: write {minimum} to {maximum}, ranges in ascending order"
    return ""


def _number(text: str, minimum: int, names: tuple[str, ...]) -> int:
    """Return the number of a value or name; for an unknown name, the minimum minus one."""
    if text.isdecimal():
        return int(text)
    return names.index(text) + minimum if text in names else minimum - 1


def set_group_options(aws: Aws, name: str, old: Props, new: Props) -> None:
    """Change the metrics and suspended processes of a group to those of the new inputs."""
    group = {"AutoScalingGroupName": name}
    metrics = new.get("enabledMetrics") or []
    if sorted(metrics) != sorted(old.get("enabledMetrics") or []):
        aws.call("autoscaling", "enable_metrics_collection", **group, Metrics=metrics, Granularity="1Minute")
    before, after = set(old.get("suspendedProcesses") or []), set(new.get("suspendedProcesses") or [])
    if resumed := sorted(before - after):
        aws.call("autoscaling", "resume_processes", **group, ScalingProcesses=resumed)
    if suspended := sorted(after - before):
        aws.call("autoscaling", "suspend_processes", **group, ScalingProcesses=suspended)


def add_hooks(aws: Aws, name: str, hooks: Iterable[Mapping[str, Any]]) -> None:
    """Add lifecycle hooks to a group."""
    for hook in hooks:
        renames = {"name": "LifecycleHookName"}
        call_with(aws, ("autoscaling", "put_lifecycle_hook"), hook, renames=renames, AutoScalingGroupName=name)


def delete_hooks(aws: Aws, name: str) -> None:
    """Delete all lifecycle hooks of a group; AWS does so with the group, moto does not."""
    hooks = aws.call("autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=name)["LifecycleHooks"]
    for hook in hooks:
        call = {"AutoScalingGroupName": name, "LifecycleHookName": hook["LifecycleHookName"]}
        aws.call("autoscaling", "delete_lifecycle_hook", **call)


_GROUP = {"autoscalingGroupName": "AutoScalingGroupName"}


def require_group(aws: Aws, name: str) -> None:
    """Raise ResourceError if a group does not exist."""
    message = f"AutoScalingGroup name not found: {name}"
    existing(groups_named(aws, name), "ValidationError", message, "autoscalingGroupName")


def groups_named(aws: Aws, name: str) -> list[dict[str, Any]]:
    """Return the description of a group in a list, which is empty if the group does not exist."""
    reply = aws.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[name])
    groups: list[dict[str, Any]] = reply["AutoScalingGroups"]
    return groups


# --- Scheduled actions

_UNCHANGED = -1
_SIZES = aws_names("minSize", "maxSize", "desiredCapacity")
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# The rehearsal assumes that every action runs within a day.
_NEXT_RUN = timedelta(hours=12)
_LIMITS = {
    "scheduledActionName": Text(1, 255, r"[^:]+", "no colon"),
    **dict.fromkeys(_SIZES, Number(_UNCHANGED, 10000)),
}


def _check_schedule(inputs: Props) -> Iterator[InvalidInput]:
    yield from _check_times(inputs)
    yield from _check_sizes(inputs)
    recurrence, zone = inputs.get("recurrence"), inputs.get("timeZone")
    if isinstance(recurrence, str) and is_known(recurrence) and (reason := cron_error(recurrence)):
        yield InvalidInput("recurrence", f"{reason} (ValidationError)")
    # Without the IANA database on this machine the set is empty.
    if is_known(zone) and zone not in (available_timezones() or {zone}):
        yield InvalidInput("timeZone", f"{zone} is not a time zone of the IANA database (ValidationError)")


def _check_times(inputs: Props) -> Iterator[InvalidInput]:
    if not any(inputs.get(key) for key in ("recurrence", "startTime")):
        yield InvalidInput("recurrence", "is required unless startTime is set")
    values = {key: inputs.get(key) for key in ("startTime", "endTime")}
    times = {key: _parse_time(text) for key, text in values.items() if is_known(text)}
    for key, time in times.items():
        if time is None:
            yield InvalidInput(key, f"{values[key]} must have the form YYYY-MM-DDTHH:MM:SSZ")
    start, end = times.get("startTime"), times.get("endTime")
    if start is not None and end is not None and end <= start:
        yield InvalidInput("endTime", "must be after startTime (ValidationError)")


def _parse_time(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _check_sizes(inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for contradictory sizes, or when no size changes."""
    values = [inputs.get(key) for key in _SIZES]
    sizes = [0 if value is None else value for value in values]
    if not all(isinstance(size, int | float) and is_known(size) for size in sizes):
        return
    minimum, maximum, desired = sizes
    if all(size == _UNCHANGED for size in sizes):
        yield InvalidInput("minSize", "or another size must change (ValidationError)")
    elif _UNCHANGED not in (minimum, maximum) and minimum > maximum:
        yield InvalidInput("minSize", f"{minimum} is larger than maxSize {maximum} (ValidationError)")
    elif desired != _UNCHANGED and (desired < minimum or desired > maximum != _UNCHANGED):
        yield InvalidInput(
            "desiredCapacity", f"{desired} is not between minSize {minimum} and maxSize {maximum} (ValidationError)"
        )


def _create_schedule(aws: Aws, inputs: Props) -> str:
    next_run = (aws.now + _NEXT_RUN).strftime(_TIME_FORMAT)
    _put_schedule(aws, {}, {"startTime": next_run, **inputs})
    return str(inputs["scheduledActionName"])


def _put_schedule(aws: Aws, old: Props, new: Props) -> None:
    require_group(aws, new["autoscalingGroupName"])
    # AWS checks times only in the call: an action that has run is not put again.
    for key in ("startTime", "endTime"):
        _refuse_past(key, new.get(key), datetime.now(UTC))
    _refuse_same_time(aws, new)
    sizes = {key: _size(new.get(key), old.get(key)) for key in _SIZES}
    parameters = {key: value for key, value in {**new, **sizes}.items() if value != _UNCHANGED}
    call_with(aws, ("autoscaling", "put_scheduled_update_group_action"), parameters)


def _refuse_past(key: str, value: str | None, now: datetime) -> None:
    time = _parse_time(value)
    if time is not None and time <= now:
        bound = "start" if key == "startTime" else "end"
        raise ResourceError("ValidationError", f"Given {bound} time is in the past: {value}", key=key)


def _refuse_same_time(aws: Aws, new: Props) -> None:
    """Raise ResourceError if another action of the group has the same time, which must be unique."""
    group, name = new["autoscalingGroupName"], new["scheduledActionName"]
    own = {
        "StartTime": _parse_time(new["startTime"]),
        "Recurrence": new.get("recurrence"),
        "TimeZone": new.get("timeZone"),
    }
    reply = aws.call("autoscaling", "describe_scheduled_actions", AutoScalingGroupName=group)
    for other in reply["ScheduledUpdateGroupActions"]:
        if other["ScheduledActionName"] != name and (_falls_on(own, other) or _falls_on(other, own)):
            raise ResourceError("ValidationError", f"{other['ScheduledActionName']} has the same time", key="startTime")


def _falls_on(action: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether an action has the time of a recurring one, on any day, or both run once at the same time."""
    if not other.get("Recurrence"):
        return not action.get("Recurrence") and bool(action["StartTime"] == other["StartTime"])
    if action.get("Recurrence"):
        return all(action.get(key) == other.get(key) for key in ("Recurrence", "TimeZone"))
    local = action["StartTime"].astimezone(ZoneInfo(other.get("TimeZone") or "UTC"))
    return bool([str(local.minute), str(local.hour)] == other["Recurrence"].split()[:2])


def _size(size: int | None, previous: int | None) -> int:
    """Return the size that the provider sends: without one, the previous size, and 0 at first."""
    return next((value for value in (size, previous) if value is not None), 0)


def _read_schedule(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    group = inputs["autoscalingGroupName"]
    action = _describe_action(aws, ident, group)
    # moto has no ARN: its UUID is derived from the names.
    digits = uuid5(NAMESPACE_URL, f"{aws.region}/{group}/{ident}")
    name = f"{digits}:autoScalingGroupName/{group}:scheduledActionName/{ident}"
    return {
        "arn": aws.arn("autoscaling", f"scheduledUpdateGroupAction:{name}"),
        "startTime": _start_time(action),
        **{key: action.get(name, _UNCHANGED) for key, name in _SIZES.items()},
    }


def _describe_action(aws: Aws, ident: str, group: str) -> dict[str, Any]:
    call = {"AutoScalingGroupName": group, "ScheduledActionNames": [ident]}
    actions = aws.call("autoscaling", "describe_scheduled_actions", **call)["ScheduledUpdateGroupActions"]
    return existing(actions, "ValidationError", f"The scheduled action {ident} does not exist")


def _start_time(action: Mapping[str, Any]) -> str:
    started: datetime = action["StartTime"]
    return started.strftime(_TIME_FORMAT)


def _update_schedule(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if not new.get("startTime"):
        start = _start_time(_describe_action(aws, ident, new["autoscalingGroupName"]))
        _refuse_past("startTime", start, aws.now)
        new = {**new, "startTime": start}
    _put_schedule(aws, old, new)


SCHEDULE = ResourceKind(
    token="aws:autoscaling/schedule:Schedule",
    inputs=updates("desiredCapacity", "endTime", "maxSize", "minSize", "recurrence", "startTime", "timeZone")
    | replaces("autoscalingGroupName", "scheduledActionName"),
    computed=frozenset({"desiredCapacity", "endTime", "maxSize", "minSize", "startTime", "timeZone"}),
    create=_create_schedule,
    read=_read_schedule,
    update=_update_schedule,
    delete=deletes("autoscaling", "delete_scheduled_action", "ScheduledActionName", outputs=_GROUP),
    complaints=checks(_LIMITS, _check_schedule),
    note="actions never run",
)
_HOOK_LIMITS = {
    "name": Text(1, 255, r"[A-Za-z0-9\-_/]+", "letters, digits and -_/"),
    "defaultResult": Choice(("ABANDON", "CONTINUE")),
    "heartbeatTimeout": Number(30, 7200),
    "lifecycleTransition": Choice(("autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING")),
}
_INITIAL_HOOKS = "initialLifecycleHooks"
_MAX_HOOKS = 50


def check_initial_hooks(inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for each invalid initial hook of a group."""
    hooks = inputs.get(_INITIAL_HOOKS)
    if not isinstance(hooks, list):
        return
    yield from check_nested(inputs, _INITIAL_HOOKS, _HOOK_LIMITS)
    names = [hook["name"] for hook in hooks if is_known(hook) and is_known(hook.get("name"))]
    if len(set(names)) < len(names):
        yield InvalidInput(_INITIAL_HOOKS, "must have different names: a later hook would replace an earlier one")


# --- Lifecycle hooks


def _create_hook(aws: Aws, inputs: Props) -> str:
    group, name = inputs["autoscalingGroupName"], str(inputs["name"])
    require_group(aws, group)
    call = {"AutoScalingGroupName": group}
    existing = aws.call("autoscaling", "describe_lifecycle_hooks", **call)["LifecycleHooks"]
    if len({hook["LifecycleHookName"] for hook in existing} | {name}) > _MAX_HOOKS:
        raise ResourceError("LimitExceeded", f"The group {group} has {_MAX_HOOKS} lifecycle hooks, the maximum")
    _update_hook(aws, name, {}, inputs)
    return name


def _read_hook(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    call = {"AutoScalingGroupName": inputs["autoscalingGroupName"], "LifecycleHookNames": [ident]}
    hooks = aws.call("autoscaling", "describe_lifecycle_hooks", **call)["LifecycleHooks"]
    existing(hooks, "ValidationError", f"The lifecycle hook {ident} does not exist")
    return {"defaultResult": inputs.get("defaultResult") or "ABANDON", "name": ident}


def _update_hook(aws: Aws, ident: str, old: Props, new: Props) -> None:
    group = new["autoscalingGroupName"]
    require_group(aws, group)
    add_hooks(aws, group, [{key: value for key, value in new.items() if key != "autoscalingGroupName"}])


LIFECYCLE_HOOK = ResourceKind(
    token="aws:autoscaling/lifecycleHook:LifecycleHook",
    inputs=updates("defaultResult", "heartbeatTimeout", "lifecycleTransition")
    | replaces("autoscalingGroupName", "name"),
    computed=frozenset({"defaultResult", "name"}),
    naming=Naming(longest=255),
    create=_create_hook,
    read=_read_hook,
    update=_update_hook,
    delete=deletes("autoscaling", "delete_lifecycle_hook", "LifecycleHookName", outputs=_GROUP),
    complaints=checks(_HOOK_LIMITS),
    note="instances do not wait for hooks",
)
