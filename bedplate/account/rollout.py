"""The roll-out of an image to running workers: instance refreshes of Auto Scaling groups, with checkpoints.

A refresh replaces machines a few at a time. The old ones drain themselves before they end. A new one that does not pass
its health gate is terminated by its lifecycle hook; the refresh then fails, and AWS rolls the group back.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from bedplate.account.client import AwsClient
from bedplate.errors import PartialError
from bedplate.plan.pools import PoolPlan

CHECKPOINTS, CHECKPOINT_SECONDS = (10, 50, 100), 600
"""Percentages of a group at which a refresh waits, and how long."""
_HEALTHY = 90
# Source: the API page of InstanceRefresh.
_ENDED = ("Successful", "Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful")
_ROLLED_BACK = "RollbackSuccessful"


@dataclass(frozen=True, slots=True)
class Rollout:
    """The last instance refresh of a pool: AWS's status, the percentage of replaced machines, and AWS's reason."""

    pool: str
    region: str
    status: str
    percent: int = 0
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it replaces no more machines."""
        return self.status in _ENDED

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without replacing all machines."""
        return self.has_ended and self.status != "Successful"


@dataclass(frozen=True, slots=True)
class PoolRollout:
    """The Auto Scaling group of a pool as the target of a roll-out."""

    client: AwsClient
    fleet: str
    pool: PoolPlan

    @property
    def _name(self) -> dict[str, str]:
        return {"AutoScalingGroupName": f"{self.fleet}-{self.pool.name}"}

    def start(self, image: str) -> str:
        """Start replacing machines that run on another image; return what happens in one sentence."""
        group = self._group()
        ids = [member["InstanceId"] for member in group.get("Instances", ())]
        outdated = [ident for ident, used in self._images(ids).items() if used != image]
        if not outdated:
            return f"{self.pool.name}: no machine runs on another image"
        template = _template_of(group)
        version = self._version_with(template, image)
        can_roll_back = version != template["Version"]
        preferences = {
            "MinHealthyPercentage": _HEALTHY,
            "SkipMatching": True,
            "CheckpointPercentages": list(CHECKPOINTS),
            "CheckpointDelay": CHECKPOINT_SECONDS,
            # Machines of a fabric run jobs of several machines: they end with their job, not by a refresh.
            "ScaleInProtectedInstances": "Ignore",
            "AutoRollback": can_roll_back,
        }
        desired = _desired(group, {**template, "Version": version})
        self._call("start_instance_refresh", DesiredConfiguration=desired, Preferences=preferences, Strategy="Rolling")
        back = "rolls back if a new one fails" if can_roll_back else "without rollback: `up` has changed the group"
        return f"{self.pool.name}: replacing {len(outdated)} of {len(ids)} machines, {back}"

    def end(self) -> bool:
        """Roll a running refresh back; return whether there was one. Raises PartialError if AWS cannot."""
        last = self.last()
        if last is None or last.has_ended:
            return False
        self._call("rollback_instance_refresh")
        return True

    def last(self) -> Rollout | None:
        """Return the last refresh; None for a group without one, or before its deployment."""
        if not self._group():
            return None
        refreshes = self._call("describe_instance_refreshes", MaxRecords=1)["InstanceRefreshes"]
        if not refreshes:
            return None
        status, percent = refreshes[0]["Status"], int(refreshes[0].get("PercentageComplete", 0))
        return Rollout(self.pool.name, self.pool.region, status, percent, refreshes[0].get("StatusReason", ""))

    def _group(self) -> dict[str, Any]:
        names = [self._name["AutoScalingGroupName"]]
        query = {"AutoScalingGroupNames": names}
        groups = self.client.call("autoscaling", self.pool.region, "describe_auto_scaling_groups", **query)
        group: dict[str, Any] = next(iter(groups["AutoScalingGroups"]), {})
        return group

    def _images(self, instances: list[str]) -> Mapping[str, str]:
        query = [{"Name": "instance-id", "Values": instances}]
        if not instances:
            return {}
        pages = self.client.pages("ec2", self.pool.region, "describe_instances", Filters=query)
        entries = (
            entry for page in pages for reservation in page["Reservations"] for entry in reservation["Instances"]
        )
        return {entry["InstanceId"]: entry["ImageId"] for entry in entries}

    def _version_with(self, template: Mapping[str, str], image: str) -> str:
        """Return the version of the launch template with an image: the group's own, or a new one."""
        query = {"LaunchTemplateId": template["LaunchTemplateId"]}
        versions = {**query, "Versions": [template["Version"]]}
        (own,) = self._ec2("describe_launch_template_versions", **versions)["LaunchTemplateVersions"]
        if own["LaunchTemplateData"].get("ImageId") == image:
            return template["Version"]
        # With the same token, EC2 creates no second version.
        token = sha256(f"{template} {image}".encode()).hexdigest()
        source = {"SourceVersion": str(own["VersionNumber"]), "LaunchTemplateData": {"ImageId": image}}
        reply = self._ec2("create_launch_template_version", **query, **source, ClientToken=token)
        return str(reply["LaunchTemplateVersion"]["VersionNumber"])

    def _ec2(self, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        return self.client.call("ec2", self.pool.region, operation, **params)

    def _call(self, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        try:
            return self.client.call("autoscaling", self.pool.region, operation, **self._name, **params)
        except PartialError as error:
            if "InstanceRefreshInProgress" not in error.what:
                raise
            fix = "`bedplate image list` shows it; `bedplate image rollback KIND` ends it"
            raise PartialError(f"{self.pool.name}: a roll-out is in progress", fix=fix) from None


def _template_of(group: Mapping[str, Any]) -> dict[str, str]:
    """Return id and version of a group's launch template."""
    policy = group.get("MixedInstancesPolicy")
    spec = policy["LaunchTemplate"]["LaunchTemplateSpecification"] if policy else group["LaunchTemplate"]
    return {"LaunchTemplateId": spec["LaunchTemplateId"], "Version": spec["Version"]}


def _desired(group: Mapping[str, Any], template: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration to reach: the group's own with another launch template."""
    policy = group.get("MixedInstancesPolicy")
    if policy is None:
        return {"LaunchTemplate": dict(template)}
    launch = {**policy["LaunchTemplate"], "LaunchTemplateSpecification": dict(template)}
    return {"MixedInstancesPolicy": {**policy, "LaunchTemplate": launch}}


def last_rollouts(client: AwsClient, fleet: str, pools: Iterable[PoolPlan]) -> Iterator[Rollout]:
    """Yield the last refresh of each pool that has one."""
    for pool in pools:
        rollout = PoolRollout(client, fleet, pool).last()
        if rollout:
            yield rollout
