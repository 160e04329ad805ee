"""Auto Scaling groups: how many machines there are, of what, and where."""

from typing import Any

from bedplate.rehearsal.kind import Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.fake_store import kept
from bedplate.rehearsal.kinds.placement_group import TOKEN as PLACEMENT_GROUP
from bedplate.rehearsal.kinds.placement_group import UNKNOWN_GROUP
from bedplate.rehearsal.kinds.scaling_extras import add_hooks, drop_hooks, set_extras
from bedplate.rehearsal.kinds.scaling_limits import scaling_complaints
from bedplate.rehearsal.kinds.scaling_template import refuse_unfit
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_SERVICE = "autoscaling"
# What the provider keeps to itself, and what goes by calls of its own.
_PROVIDERS_OWN = (
    "forceDelete",
    "forceDeleteWarmPool",
    "ignoreFailedScalingActivities",
    "instanceRefresh",
    "minElbCapacity",
    "waitForCapacityTimeout",
    "waitForElbCapacity",
)
_BY_OTHER_CALLS = ("enabledMetrics", "initialLifecycleHooks", "metricsGranularity", "suspendedProcesses", "warmPool")
_APART = (*_PROVIDERS_OWN, *_BY_OTHER_CALLS, "name", "namePrefix", "tags", "vpcZoneIdentifiers")
_PLAIN = (
    "availabilityZoneDistribution",
    "capacityRebalance",
    "capacityReservationSpecification",
    "context",
    "defaultCooldown",
    "defaultInstanceWarmup",
    "desiredCapacity",
    "desiredCapacityType",
    "healthCheckGracePeriod",
    "healthCheckType",
    "instanceLifecyclePolicy",
    "instanceMaintenancePolicy",
    "launchTemplate",
    "maxInstanceLifetime",
    "maxSize",
    "minSize",
    "mixedInstancesPolicy",
    "placementGroup",
    "protectFromScaleIn",
    "serviceLinkedRoleArn",
    "terminationPolicies",
)
_RENAMES = {
    "launchTemplate.id": "LaunchTemplateId",
    "launchTemplate.name": "LaunchTemplateName",
    "protectFromScaleIn": "NewInstancesProtectedFromScaleIn",
}


def _params(aws: Aws, operation: str, inputs: Props, *apart: str) -> dict[str, Any]:
    found = placed(aws, (_SERVICE, operation), inputs, apart=(*_APART, *apart), renames=_RENAMES)
    if inputs.get("vpcZoneIdentifiers"):
        found["VPCZoneIdentifier"] = ",".join(inputs["vpcZoneIdentifiers"])
    return found


def _create(aws: Aws, inputs: Props) -> str:
    name = chosen_name(inputs)
    if aws.call(_SERVICE, "describe_auto_scaling_groups", AutoScalingGroupNames=[name])["AutoScalingGroups"]:
        raise Refusal("AlreadyExists", f"AutoScalingGroup by this name already exists: {name}", key="name")
    _refuse_unfit(aws, inputs)
    params = _params(aws, "create_auto_scaling_group", inputs)
    hooks = inputs.get("initialLifecycleHooks") or []
    # As the provider does: a group that has hooks is made without machines, so that they hold the first ones too.
    waiting = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0} if hooks else {}
    tags = _tags(name, inputs)
    aws.call(_SERVICE, "create_auto_scaling_group", AutoScalingGroupName=name, Tags=tags, **params | waiting)
    with undoing(lambda: _delete(aws, name, inputs)):
        add_hooks(aws, name, hooks)
        if hooks:
            sizes = {key: params[key] for key in waiting if key in params}
            aws.call(_SERVICE, "update_auto_scaling_group", AutoScalingGroupName=name, **sizes)
        set_extras(aws, name, {}, inputs)
    return name


def _refuse_unfit(aws: Aws, inputs: Props) -> None:
    if inputs.get("placementGroup"):
        kept(aws, PLACEMENT_GROUP, inputs["placementGroup"], UNKNOWN_GROUP)
    refuse_unfit(aws, inputs)


def _tags(name: str, inputs: Props) -> list[dict[str, Any]]:
    target = {"ResourceId": name, "ResourceType": "auto-scaling-group"}
    return [
        {**target, "Key": tag["key"], "Value": tag["value"], "PropagateAtLaunch": bool(tag["propagateAtLaunch"])}
        for tag in inputs.get("tags") or []
    ]


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _refuse_unfit(aws, new)
    # Whoever scales the group owns its desired capacity: it is sent only when the program changes it.
    same = old.get("desiredCapacity") == new.get("desiredCapacity")
    params = _params(aws, "update_auto_scaling_group", new, *(["desiredCapacity"] if same else []))
    aws.call(_SERVICE, "update_auto_scaling_group", AutoScalingGroupName=ident, **params)
    gone = {tag["key"] for tag in old.get("tags") or []} - {tag["key"] for tag in new.get("tags") or []}
    if gone:
        drop = [{"ResourceId": ident, "ResourceType": "auto-scaling-group", "Key": key} for key in sorted(gone)]
        aws.call(_SERVICE, "delete_tags", Tags=drop)
    if new.get("tags"):
        aws.call(_SERVICE, "create_or_update_tags", Tags=_tags(ident, new))
    set_extras(aws, ident, old, new)


def _found(aws: Aws, ident: str) -> dict[str, Any]:
    call = {"AutoScalingGroupNames": [ident]}
    groups = aws.call(_SERVICE, "describe_auto_scaling_groups", **call)["AutoScalingGroups"]
    if not groups:
        raise Refusal("ValidationError", f"there is no Auto Scaling group {ident}")
    found: dict[str, Any] = groups[0]
    return found


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = _found(aws, ident)
    template = found.get("LaunchTemplate") if inputs.get("launchTemplate") else None
    spec = {
        "id": (template or {}).get("LaunchTemplateId", ""),
        "name": (template or {}).get("LaunchTemplateName", ""),
        "version": (template or {}).get("Version", ""),
    }
    return {
        "arn": found["AutoScalingGroupARN"],
        "availabilityZones": sorted(found["AvailabilityZones"]),
        "defaultCooldown": inputs.get("defaultCooldown") or found["DefaultCooldown"],
        "desiredCapacity": found["DesiredCapacity"],
        "healthCheckType": found["HealthCheckType"],
        "name": ident,
        "serviceLinkedRoleArn": found["ServiceLinkedRoleARN"],
        **({"launchTemplate": spec} if template else {}),
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    machines = [machine["InstanceId"] for machine in _found(aws, ident)["Instances"]]
    if machines:
        call = {"AutoScalingGroupName": ident, "InstanceIds": machines, "ProtectedFromScaleIn": False}
        aws.call(_SERVICE, "set_instance_protection", **call)
    drop_hooks(aws, ident)
    aws.call(_SERVICE, "delete_auto_scaling_group", AutoScalingGroupName=ident, ForceDelete=True)


GROUP = Kind(
    token="aws:autoscaling/group:Group",
    inputs=updates(*_PLAIN, *_PROVIDERS_OWN, *_BY_OTHER_CALLS, "availabilityZones", "tags", "vpcZoneIdentifiers")
    | replaces("initialLifecycleHooks", "name", "namePrefix"),
    defaults={
        "forceDelete": False,
        "forceDeleteWarmPool": False,
        "healthCheckGracePeriod": 300,
        "ignoreFailedScalingActivities": False,
        "metricsGranularity": "1Minute",
        "protectFromScaleIn": False,
        "waitForCapacityTimeout": "10m",
    },
    computed=frozenset({"availabilityZones", "availabilityZoneDistribution", "capacityReservationSpecification"})
    | {"defaultCooldown", "desiredCapacity", "healthCheckType", "launchTemplate", "mixedInstancesPolicy"}
    | {"name", "namePrefix", "serviceLinkedRoleArn", "vpcZoneIdentifiers"},
    sets=frozenset({"availabilityZones", "enabledMetrics", "initialLifecycleHooks", "suspendedProcesses"})
    | {"tags", "vpcZoneIdentifiers"},
    naming=Naming(longest=255),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=scaling_complaints,
    note="moto starts machines at once, in one subnet, none of them spot; no hook holds them, no refresh is run",
)
