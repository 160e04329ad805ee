"""Auto Scaling groups: checks that their launch templates can launch, and the group itself."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bedplate.rehearsal.kind import Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import call_parameters, copied, existing
from bedplate.rehearsal.kinds.launch_template import group_ids, launch_error
from bedplate.rehearsal.kinds.limits import rollback
from bedplate.rehearsal.kinds.placement_groups import require_offered
from bedplate.rehearsal.kinds.scaling_actions import add_hooks, delete_hooks, groups_named, set_group_options
from bedplate.rehearsal.kinds.scaling_limits import check_group
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError


def named_interfaces(aws: Aws, data: Mapping[str, Any], inputs: Props, zones: Collection[str]) -> list[dict[str, Any]]:
    """Return the interfaces that launch data name, as EC2 describes them; raise ResourceError if unusable."""
    interface_ids = [
        nic["NetworkInterfaceId"] for nic in data.get("NetworkInterfaces") or [] if nic.get("NetworkInterfaceId")
    ]
    if not interface_ids:
        return []
    if inputs.get("vpcZoneIdentifiers"):
        message = "A launch template with a network interface requires availabilityZones, not subnets"
        raise ResourceError("ValidationError", message, key="vpcZoneIdentifiers")
    if inputs["maxSize"] > 1:
        message = f"{interface_ids[0]} can be attached to one instance, and maxSize is {inputs['maxSize']}"
        raise ResourceError("ValidationError", message, key="maxSize")
    descriptions = [ec2.described(aws, ec2.NETWORK_INTERFACE, ident) for ident in interface_ids]
    for interface in descriptions:
        if interface["AvailabilityZone"] not in zones:
            message = (
                f"{interface['NetworkInterfaceId']} is in {interface['AvailabilityZone']}, not in the group's zones"
            )
            raise ResourceError("ValidationError", message, key="availabilityZones")
    return descriptions


def require_launchable(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for a group that cannot launch instances: wrong template, image, types, zones or networks."""
    subnets = [ec2.lasting(aws, ec2.SUBNET, ident) for ident in inputs.get("vpcZoneIdentifiers") or []]
    zones = {subnet["AvailabilityZone"] for subnet in subnets} or set(inputs.get("availabilityZones") or [])
    policy = (inputs.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}
    spec = policy.get("launchTemplateSpecification") or inputs.get("launchTemplate") or {}
    data = _launch_data(aws, spec)
    fixed = named_interfaces(aws, data, inputs, zones)
    vpcs = {resource["VpcId"] for resource in (*subnets, *fixed)} or _default_network(aws)
    if len(vpcs) > 1:
        raise ResourceError("ValidationError", "The subnets are in more than one VPC", key="vpcZoneIdentifiers")
    if policy and data.get("InstanceMarketOptions"):
        _raise_invalid("With a mixed instances policy the template must not have InstanceMarketOptions")
    types = _instance_types(policy.get("overrides") or [], data)
    if not data.get("ImageId") or not types:
        _raise_invalid(f"The launch template {_template_name(spec)} has no image or no instance type")
    # AWS reports it only in a refresh of the instances. Source: EC2 Auto Scaling user guide, "Use AWS Systems Manager
    # parameters instead of AMI IDs in launch templates".
    if "" in types and str(data["ImageId"]).startswith("resolve:ssm:"):
        _raise_invalid("An image from an SSM parameter cannot be used with instance requirements")
    names = [name for name in types if name]
    require_offered(aws, names, zones)
    if reason := launch_error(aws, inputs, data, names, zones):
        _raise_invalid(reason)
    _require_vpc_groups(aws, group_ids(data), vpcs)


def _default_network(aws: Aws) -> set[str]:
    """Return the default VPC, which a group with zones and without subnets uses."""
    return {vpc["VpcId"] for vpc in ec2.matching(aws, ec2.VPC, {"isDefault": "true"})}


def _template_name(spec: Mapping[str, Any]) -> str:
    candidates = (spec.get(key) for key in ("launchTemplateId", "id", "launchTemplateName", "name"))
    return next((str(value) for value in candidates if value), "")


def _launch_data(aws: Aws, spec: Mapping[str, Any]) -> dict[str, Any]:
    by_id = spec.get("launchTemplateId") or spec.get("id")
    template = {"LaunchTemplateId": by_id} if by_id else {"LaunchTemplateName": _template_name(spec)}
    versions = [str(spec.get("version") or "$Default")]
    if not re.fullmatch(r"\d+|\$Default|\$Latest", versions[0]):
        _raise_invalid(f"{versions[0]} is not a version: write a number, $Default or $Latest")
    try:
        response = aws.call("ec2", "describe_launch_template_versions", **template, Versions=versions)
    except ResourceError as error:
        _raise_invalid(error.message)
    template_versions = response["LaunchTemplateVersions"]
    if not template_versions:
        _raise_invalid(f"The launch template {_template_name(spec)} has no version {versions[0]}")
    data: dict[str, Any] = template_versions[0]["LaunchTemplateData"]
    return data


def _instance_types(overrides: Iterable[Mapping[str, Any]], data: Mapping[str, Any]) -> list[str]:
    """Return the instance types of a group; an empty string means types chosen by requirements."""
    default = data.get("InstanceType")
    instance_types = [
        "" if override.get("instanceRequirements") else override.get("instanceType") or default
        for override in overrides
    ]
    return [name for name in (instance_types or [default]) if name is not None]


def _require_vpc_groups(aws: Aws, groups: Iterable[str], vpcs: Iterable[str]) -> None:
    for group in groups:
        vpc = ec2.lasting(aws, ec2.SECURITY_GROUP, group)["VpcId"]
        if vpc not in vpcs:
            _raise_invalid(f"The security group {group} is in {vpc}, not in the VPC of the subnets")


def _raise_invalid(reason: str) -> None:
    raise ResourceError("ValidationError", f"You must use a valid fully-formed launch template. {reason}")


_SERVICE = "autoscaling"
# Inputs that only the provider uses, or that have separate calls.
_SEPARATE_CALLS = ("enabledMetrics", "initialLifecycleHooks", "suspendedProcesses")
_SEPARATE = (*_SEPARATE_CALLS, "name", "tags", "vpcZoneIdentifiers", "waitForCapacityTimeout")
_SIMPLE_INPUTS = (
    "capacityRebalance",
    "defaultInstanceWarmup",
    "desiredCapacity",
    "healthCheckGracePeriod",
    "healthCheckType",
    "instanceMaintenancePolicy",
    "launchTemplate",
    "maxSize",
    "minSize",
    "mixedInstancesPolicy",
    "protectFromScaleIn",
    "terminationPolicies",
)
_RENAMES = {
    "launchTemplate.id": "LaunchTemplateId",
    "launchTemplate.name": "LaunchTemplateName",
    "protectFromScaleIn": "NewInstancesProtectedFromScaleIn",
}


def _create(aws: Aws, inputs: Props) -> str:
    name = str(inputs["name"])
    if groups_named(aws, name):
        raise ResourceError("AlreadyExists", f"AutoScalingGroup by this name already exists: {name}", key="name")
    require_launchable(aws, inputs)
    params = _group_parameters(aws, "create_auto_scaling_group", inputs)
    hooks = inputs.get("initialLifecycleHooks") or []
    # As the provider does: a group with hooks is created empty, so that the hooks apply to its first instances too.
    zero_sizes = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0} if hooks else {}
    tags = _tags(name, inputs)
    aws.call(_SERVICE, "create_auto_scaling_group", AutoScalingGroupName=name, Tags=tags, **params | zero_sizes)
    with rollback(lambda: _delete(aws, name, inputs)):
        add_hooks(aws, name, hooks)
        if hooks:
            sizes = {key: params[key] for key in zero_sizes if key in params}
            aws.call(_SERVICE, "update_auto_scaling_group", AutoScalingGroupName=name, **sizes)
        set_group_options(aws, name, {}, inputs)
    return name


def _group_parameters(aws: Aws, operation: str, inputs: Props, *separate: str) -> dict[str, Any]:
    parameters = call_parameters(aws, (_SERVICE, operation), inputs, apart=(*_SEPARATE, *separate), renames=_RENAMES)
    if inputs.get("vpcZoneIdentifiers"):
        parameters["VPCZoneIdentifier"] = ",".join(inputs["vpcZoneIdentifiers"])
    return parameters


def _tags(name: str, inputs: Props) -> list[dict[str, Any]]:
    target = {"ResourceId": name, "ResourceType": "auto-scaling-group"}
    return [
        {**target, "Key": tag["key"], "Value": tag["value"], "PropagateAtLaunch": bool(tag["propagateAtLaunch"])}
        for tag in inputs.get("tags") or []
    ]


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    group = _describe_group(aws, ident)
    template = (group.get("LaunchTemplate") if inputs.get("launchTemplate") else None) or {}
    names = {"id": "LaunchTemplateId", "name": "LaunchTemplateName", "version": "Version"}
    spec = {key: template.get(name, "") for key, name in names.items()}
    return {
        "arn": group["AutoScalingGroupARN"],
        "availabilityZones": sorted(group["AvailabilityZones"]),
        "defaultCooldown": group["DefaultCooldown"],
        **copied(group, "desiredCapacity", "healthCheckType"),
        "name": ident,
        "serviceLinkedRoleArn": group["ServiceLinkedRoleARN"],
        **({"launchTemplate": spec} if template else {}),
    }


def _describe_group(aws: Aws, ident: str) -> dict[str, Any]:
    return existing(groups_named(aws, ident), "ValidationError", f"The Auto Scaling group {ident} does not exist")


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    require_launchable(aws, new)
    # Autoscalers change the desired capacity: it is sent only when the program changes it.
    unchanged = old.get("desiredCapacity") == new.get("desiredCapacity")
    params = _group_parameters(aws, "update_auto_scaling_group", new, *(["desiredCapacity"] if unchanged else []))
    aws.call(_SERVICE, "update_auto_scaling_group", AutoScalingGroupName=ident, **params)
    removed = {tag["key"] for tag in old.get("tags") or []} - {tag["key"] for tag in new.get("tags") or []}
    if removed:
        tags = [{"ResourceId": ident, "ResourceType": "auto-scaling-group", "Key": key} for key in sorted(removed)]
        aws.call(_SERVICE, "delete_tags", Tags=tags)
    if new.get("tags"):
        aws.call(_SERVICE, "create_or_update_tags", Tags=_tags(ident, new))
    set_group_options(aws, ident, old, new)
    if "AZRebalance" not in (new.get("suspendedProcesses") or []):
        _leave_removed_zones(aws, ident)


def _leave_removed_zones(aws: Aws, ident: str) -> None:
    """Replace the instances in zones that a group no longer has; with AZRebalance suspended, AWS leaves them there."""
    group = _describe_group(aws, ident)
    for instance in group["Instances"]:
        if instance["AvailabilityZone"] not in group["AvailabilityZones"]:
            call = {"InstanceId": instance["InstanceId"], "ShouldDecrementDesiredCapacity": False}
            aws.call(_SERVICE, "terminate_instance_in_auto_scaling_group", **call)


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    instance_ids = [instance["InstanceId"] for instance in _describe_group(aws, ident)["Instances"]]
    if instance_ids:
        call = {"AutoScalingGroupName": ident, "InstanceIds": instance_ids, "ProtectedFromScaleIn": False}
        aws.call(_SERVICE, "set_instance_protection", **call)
    delete_hooks(aws, ident)
    aws.call(_SERVICE, "delete_auto_scaling_group", AutoScalingGroupName=ident, ForceDelete=True)


GROUP = ResourceKind(
    token="aws:autoscaling/group:Group",
    inputs=updates(
        *_SIMPLE_INPUTS,
        *_SEPARATE_CALLS,
        "availabilityZones",
        "tags",
        "vpcZoneIdentifiers",
        "waitForCapacityTimeout",
    )
    | replaces("initialLifecycleHooks", "name"),
    defaults={
        "healthCheckGracePeriod": 300,
        "protectFromScaleIn": False,
        "waitForCapacityTimeout": "10m",
    },
    computed=frozenset({"availabilityZones", "desiredCapacity", "healthCheckType", "launchTemplate", "name"})
    | {"mixedInstancesPolicy", "vpcZoneIdentifiers"},
    sets=frozenset({"availabilityZones", "enabledMetrics", "initialLifecycleHooks", "suspendedProcesses"})
    | {"tags", "vpcZoneIdentifiers"},
    naming=Naming(longest=255),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=check_group,
    note="moto launches all instances at once, on demand; hooks do not run",
)
