"""Auto Scaling groups: how many machines there are, of what, and where."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bedplate.rehearsal.kind import Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import NETWORK_INTERFACE, SECURITY_GROUP, SUBNET, described
from bedplate.rehearsal.kinds.launch_template import group_ids, unstartable
from bedplate.rehearsal.kinds.limits import chosen_name, kept, undoing
from bedplate.rehearsal.kinds.placement_groups import TOKEN as PLACEMENT_GROUP
from bedplate.rehearsal.kinds.placement_groups import UNKNOWN_GROUP, refuse_unoffered
from bedplate.rehearsal.kinds.scaling_actions import add_hooks, drop_hooks, set_extras
from bedplate.rehearsal.kinds.scaling_limits import scaling_complaints
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal


def interfaces(aws: Aws, data: Mapping[str, Any], inputs: Props, zones: Collection[str]) -> list[dict[str, Any]]:
    """Return the interfaces that launch data names, as EC2 describes them; refuse a group they do not fit."""
    named = [nic["NetworkInterfaceId"] for nic in data.get("NetworkInterfaces") or [] if nic.get("NetworkInterfaceId")]
    if not named:
        return []
    if inputs.get("vpcZoneIdentifiers"):
        told = "a launch template that names a network interface goes with availability zones, not with subnets"
        raise Refusal("ValidationError", told, key="vpcZoneIdentifiers")
    if inputs["maxSize"] > 1:
        told = f"{named[0]} serves one machine at a time, and the group may have {inputs['maxSize']}"
        raise Refusal("ValidationError", told, key="maxSize")
    found = [described(aws, NETWORK_INTERFACE, ident) for ident in named]
    for interface in found:
        if interface["AvailabilityZone"] not in zones:
            told = f"{interface['NetworkInterfaceId']} is in {interface['AvailabilityZone']}, not in the group's zones"
            raise Refusal("ValidationError", told, key="availabilityZones")
    return found


def refuse_unfit(aws: Aws, inputs: Props) -> None:
    """Refuse a group that could start no machine: template, version, image, types, zones, networks."""
    subnets = [described(aws, SUBNET, ident) for ident in inputs.get("vpcZoneIdentifiers") or []]
    zones = {subnet["AvailabilityZone"] for subnet in subnets} or set(inputs.get("availabilityZones") or [])
    policy = (inputs.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}
    spec = policy.get("launchTemplateSpecification") or inputs.get("launchTemplate") or {}
    data = _data(aws, spec)
    kept = interfaces(aws, data, inputs, zones)
    networks = {place["VpcId"] for place in (*subnets, *kept)} or _default_network(aws)
    if len(networks) > 1:
        raise Refusal("ValidationError", "The subnets are of more than one VPC", key="vpcZoneIdentifiers")
    if policy and data.get("InstanceMarketOptions"):
        _refuse("The market of a mixed instances policy is its own: the template may have no InstanceMarketOptions")
    types = _types(policy.get("overrides") or [], data)
    if not data.get("ImageId") or not types:
        _refuse(f"The launch template {_name(spec)} has no image or no instance type")
    if reason := _unresolvable(data, types, inputs):
        _refuse(reason)
    named = [one for one in types if one]
    refuse_unoffered(aws, named, zones)
    if reason := unstartable(aws, inputs, data, named, zones):
        _refuse(reason)
    _refuse_strange_groups(aws, group_ids(data), networks)


def _default_network(aws: Aws) -> set[str]:
    """Return where machines go that are given zones and no subnets."""
    only = [{"Name": "isDefault", "Values": ["true"]}]
    return {vpc["VpcId"] for vpc in aws.call("ec2", "describe_vpcs", Filters=only)["Vpcs"]}


def _name(spec: Mapping[str, Any]) -> str:
    found = (spec.get(key) for key in ("launchTemplateId", "id", "launchTemplateName", "name"))
    return next((str(value) for value in found if value), "")


def _data(aws: Aws, spec: Mapping[str, Any]) -> dict[str, Any]:
    by_id = spec.get("launchTemplateId") or spec.get("id")
    which = {"LaunchTemplateId": by_id} if by_id else {"LaunchTemplateName": _name(spec)}
    versions = [str(spec.get("version") or "$Default")]
    if not re.fullmatch(r"\d+|\$Default|\$Latest", versions[0]):
        _refuse(f"{versions[0]} is no version: give a number, $Default or $Latest")
    try:
        found = aws.call("ec2", "describe_launch_template_versions", **which, Versions=versions)
    except Refusal as error:
        _refuse(error.message)
    listed = found["LaunchTemplateVersions"]
    if not listed:
        _refuse(f"{_name(spec)} has no version {versions[0]}")
    data: dict[str, Any] = listed[0]["LaunchTemplateData"]
    return data


def _types(overrides: Iterable[Mapping[str, Any]], data: Mapping[str, Any]) -> list[str]:
    """Return the instance types of a group; an empty one stands for types chosen by requirements."""
    own = data.get("InstanceType") or ("" if data.get("InstanceRequirements") else None)
    listed = ["" if one.get("instanceRequirements") else one.get("instanceType") or own for one in overrides]
    return [one for one in (listed or [own]) if one is not None]


def _unresolvable(data: Mapping[str, Any], types: Iterable[str], inputs: Props) -> str:
    """Return why a parameter cannot stand for the image, which a refresh would say only when it begins.

    Source: EC2 Auto Scaling user guide, "Use AWS Systems Manager parameters instead of AMI IDs in launch templates".
    """
    if not str(data.get("ImageId")).startswith("resolve:ssm:"):
        return ""
    preferences = (inputs.get("instanceRefresh") or {}).get("preferences") or {}
    if "" in types:
        return "Its image is a parameter: that goes with no instance requirements"
    return "Its image is a parameter: that goes with no skipMatching" if preferences.get("skipMatching") else ""


def _refuse_strange_groups(aws: Aws, groups: Iterable[str], networks: Iterable[str]) -> None:
    for group in groups:
        home = described(aws, SECURITY_GROUP, group)["VpcId"]
        if home not in networks:
            _refuse(f"The security group {group} is of {home}, not of the subnets' VPC")


def _refuse(reason: str) -> None:
    raise Refusal("ValidationError", f"You must use a valid fully-formed launch template. {reason}")


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
