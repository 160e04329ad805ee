"""What AWS and its provider refuse of an Auto Scaling group's instance refresh; none is ever run.

Sources: the provider's resource aws_autoscaling_group; Auto Scaling API reference, RefreshPreferences.
"""

from collections.abc import Iterator, Mapping

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond
from bedplate.rehearsal.unknown import is_known

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
