"""What an Auto Scaling group has by calls of its own: metrics, suspended processes, warm pool, first hooks."""

from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws


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
