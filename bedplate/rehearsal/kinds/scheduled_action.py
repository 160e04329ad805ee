"""Scheduled actions: changes of an Auto Scaling group's sizes, at a moment or again and again.

Sources: Auto Scaling API reference, PutScheduledUpdateGroupAction; the provider's resource, which sends 0 for a size
that is left out and nothing for -1. AWS fills in the start time of an action that recurs, the time of its next run.
The provider keeps that time in the state and sends it with each update, though it is past by then
(github.com/pulumi/pulumi-aws/issues/2473).
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5
from zoneinfo import available_timezones

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cron import cron_fault
from bedplate.rehearsal.kinds.limits import Number, Text, beyond
from bedplate.rehearsal.kinds.scaling_found import require_group
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

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
