"""Auto Scaling groups of moto that also fail, boot slowly and lose replies, and the time of the commands on them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError

from bedplate.plan.fleet import FleetPlan
from bedplate.spec.sites import Use


@dataclass
class ScalingCloud:
    """A boto3 session over moto. Group names have the fleet's prefix."""

    plan: FleetPlan
    empty: dict[str, str] = field(default_factory=dict)
    """The texts of failed launches, by group that launches nothing; an empty text reports nothing."""
    booting: set[str] = field(default_factory=set)
    """Groups whose machines never report ready."""
    lost: set[str] = field(default_factory=set)
    """Operations whose next reply is lost after their effect."""
    before_sleep: Callable[[], None] = lambda: None
    time: float = field(default_factory=lambda: datetime.now(UTC).timestamp())
    requests: list[tuple[str, int]] = field(default_factory=list)
    """Every desired capacity that was set."""
    region_name: str | None = None
    _desired: dict[str, int] = field(default_factory=dict)
    _activities: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=count)

    def deploy(self, use: Use = Use.SSH) -> None:
        """Create the Auto Scaling groups of machines with a use, at their minimum."""
        for pool in (pool for pool in self.plan.pools if pool.use is use):
            client, name = boto3.client("autoscaling", pool.region), f"{self.plan.name}-{pool.name}"
            client.create_launch_configuration(
                LaunchConfigurationName=name, ImageId="ami-12c6146b", InstanceType=pool.types[0]
            )
            client.create_auto_scaling_group(
                AutoScalingGroupName=name,
                LaunchConfigurationName=name,
                MinSize=pool.min,
                MaxSize=pool.max,
                AvailabilityZones=list(pool.zones),
            )

    def client(self, service_name: str, *, region_name: str, config: Config) -> BaseClient:  # noqa: ARG002
        """Return a client of moto; that of Auto Scaling has the faults."""
        client = boto3.client(service_name, region_name)
        return _Scaling(client, self) if service_name == "autoscaling" else client

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.before_sleep()
        self.time += seconds

    def set_desired(self, client: BaseClient, group: str, size: int) -> None:
        """Set the desired capacity; an empty group reports failures in each of its zones."""
        self.requests.append((group, size))
        running = len(_describe(client, group)["Instances"])
        if group in self.empty and size > running:
            self._desired[group] = size
            for zone in _describe(client, group)["AvailabilityZones"] if self.empty[group] else ():
                self.report(group, self.empty[group], zone)
            return
        self._desired.pop(group, None)
        client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=size)

    def report(self, group: str, text: str, zone: str = "", machine: str = "", seconds: float = 0.0) -> None:
        """Add a failed launch, which began some seconds ago, to the activities of a group."""
        activity = {
            "ActivityId": str(next(self._ids)),
            "StatusCode": "Failed",
            "StartTime": datetime.fromtimestamp(self.time - seconds, UTC),
            "EndTime": datetime.fromtimestamp(self.time, UTC),
            "Description": f"Launching a new EC2 instance{f': {machine}' if machine else ''}.  Status Reason: {text}",
            "StatusMessage": text,
            "Details": json.dumps({"Availability Zone": zone}) if zone else "",
        }
        self._activities.setdefault(group, []).insert(0, activity)

    def activities(self, group: str) -> list[dict[str, Any]]:
        """Return the activities of a group, newest first."""
        return list(self._activities.get(group, []))

    def show(self, group: dict[str, Any]) -> dict[str, Any]:
        """Return moto's description of a group with its faults."""
        name = group["AutoScalingGroupName"]
        state = {"LifecycleState": "Pending:Wait"} if name in self.booting else {}
        return group | {
            "DesiredCapacity": self._desired.get(name, group["DesiredCapacity"]),
            "Instances": [instance | state for instance in group["Instances"]],
        }


def _describe(client: BaseClient, group: str) -> dict[str, Any]:
    (description,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    return dict(description)


class _Scaling:
    def __init__(self, client: BaseClient, cloud: ScalingCloud) -> None:
        self._client, self._cloud = client, cloud

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._client, name)

    def set_desired_capacity(self, *, AutoScalingGroupName: str, DesiredCapacity: int, HonorCooldown: bool) -> Any:  # noqa: ANN401, ARG002, N803
        self._cloud.set_desired(self._client, AutoScalingGroupName, DesiredCapacity)
        if "set_desired_capacity" in self._cloud.lost:
            self._cloud.lost.remove("set_desired_capacity")
            raise ConnectTimeoutError(endpoint_url="https://autoscaling.amazonaws.com")
        return {}

    def describe_scaling_activities(self, *, AutoScalingGroupName: str, MaxRecords: int) -> Any:  # noqa: ANN401, N803
        return {"Activities": self._cloud.activities(AutoScalingGroupName)[:MaxRecords]}

    def get_paginator(self, operation: str) -> Any:  # noqa: ANN401
        return _Pages(self._client.get_paginator(operation), self._cloud)


class _Pages:
    def __init__(self, paginator: Any, cloud: ScalingCloud) -> None:  # noqa: ANN401
        self._paginator, self._cloud = paginator, cloud

    def paginate(self, **params: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        for page in self._paginator.paginate(**params):
            yield page | {"AutoScalingGroups": [self._cloud.show(group) for group in page["AutoScalingGroups"]]}
