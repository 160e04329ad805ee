"""Fixtures of launch templates, Auto Scaling groups, volumes and placement groups."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.simulation import Aws
from tests.testlab.kinds import world as services
from tests.testlab.kinds.world import IMAGE, KindFixture, World, fresh
from tests.testlab.rehearsal.live import describe_by_call, describe_by_id, describe_fakes, id_list, stable_reply


def _script(word: str) -> str:
    return b64encode(f"#!/bin/sh\necho {word}\n".encode()).decode()


def _template(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    call = {"LaunchTemplateId": ident, "Versions": ["$Latest"]}
    latest = aws.call("ec2", "describe_launch_template_versions", **call)["LaunchTemplateVersions"]
    # The version number does not depend on an input.
    versions = [{key: value for key, value in version.items() if key != "VersionNumber"} for version in latest]
    tags = aws.call("ec2", "describe_tags", Filters=[{"Name": "resource-id", "Values": [ident]}])["Tags"]
    return stable_reply([versions, tags, aws.call("ec2", "describe_launch_templates", LaunchTemplateIds=[ident])])


def _interfaces(world: World) -> list[dict[str, Any]]:
    card = {"interfaceType": "efa", "securityGroups": [world.group], "deleteOnTermination": "true"}
    return [
        {**card, "deviceIndex": 0, "networkCardIndex": 0, "subnetId": world.subnet},
        {**card, "deviceIndex": 1, "networkCardIndex": 1},
    ]


def _template_changes(world: World) -> dict[str, Any]:
    ebs = {"volumeSize": 80, "volumeType": "gp3", "throughput": 250, "encrypted": "true"}
    reserved = {"capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}}
    return {
        "blockDeviceMappings": [{"deviceName": "/dev/sda1", "ebs": {**ebs, "kmsKeyId": services.key(world)}}],
        "capacityReservationSpecification": reserved,
        "iamInstanceProfile": {"name": services.profile(world)},
        "imageId": services.image(world),
        "instanceInitiatedShutdownBehavior": "terminate",
        "instanceMarketOptions": {"marketType": "spot"},
        "instanceType": "c7i.large",
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
        "monitoring": {"enabled": True},
        "networkInterfaces": _interfaces(world),
        "placement": {"groupName": services.placement_group(world)},
        "tagSpecifications": [{"resourceType": "volume", "tags": {"Name": "disk"}}],
        "userData": _script("two"),
        "vpcSecurityGroupIds": [world.other_group],
        "updateDefaultVersion": True,
    }


def _group(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    response = aws.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[ident])
    (group,) = response["AutoScalingGroups"]
    hooks = aws.call("autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=ident)["LifecycleHooks"]
    machines = [instance["InstanceType"] for instance in group.pop("Instances")]
    return stable_reply([group, machines, hooks, group.get("VPCZoneIdentifier", "").split(",")])


def _scaled(world: World) -> dict[str, Any]:
    return {
        "name": fresh("pool"),
        "minSize": 1,
        "maxSize": 3,
        "launchTemplate": {"id": services.template(world), "version": "1"},
        "vpcZoneIdentifiers": [world.subnet],
        "initialLifecycleHooks": [
            {"name": "hold", "lifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "defaultResult": "CONTINUE"}
        ],
        "terminationPolicies": ["NewestInstance"],
        "capacityRebalance": True,
    }


def _scaled_changes(world: World) -> dict[str, Any]:
    return {
        "minSize": 2,
        "maxSize": 7,
        "desiredCapacity": 4,
        "launchTemplate": {"id": services.template(world), "version": "1"},
        "vpcZoneIdentifiers": [world.subnet, world.other_subnet],
        "healthCheckType": "ELB",
        "healthCheckGracePeriod": 60,
        "protectFromScaleIn": True,
        "enabledMetrics": ["GroupMinSize"],
        "suspendedProcesses": ["AZRebalance"],
    }


# Inputs that moto does not store, or that only the provider uses.
_NOT_RETURNED = frozenset(
    {
        "capacityRebalance",
        "defaultInstanceWarmup",
        "instanceMaintenancePolicy",
        "tags",
        "terminationPolicies",
        "waitForCapacityTimeout",
    }
)


def _mixed(world: World, *types: str) -> dict[str, Any]:
    spec = {"launchTemplateId": services.template(world), "version": "1"}
    distribution = {"onDemandPercentageAboveBaseCapacity": 0, "spotAllocationStrategy": "price-capacity-optimized"}
    return {
        "instancesDistribution": distribution,
        "launchTemplate": {
            "launchTemplateSpecification": spec,
            "overrides": [{"instanceType": name} for name in types],
        },
    }


MACHINES = (
    KindFixture(
        "aws:ec2/launchTemplate:LaunchTemplate",
        inputs=lambda world: {
            "name": fresh("template"),
            "imageId": IMAGE,
            "instanceType": "m7i.large",
            "userData": _script("one"),
            "vpcSecurityGroupIds": [world.group],
            "metadataOptions": {"httpTokens": "required", "instanceMetadataTags": "enabled"},
            "tagSpecifications": [{"resourceType": "instance", "tags": {"Name": "machine"}}],
        },
        changes=_template_changes,
        read_back=_template,
    ),
    KindFixture(
        "aws:ec2/launchTemplate:LaunchTemplate",
        variant="with EFA",
        inputs=lambda world: {
            "name": fresh("template"),
            "instanceType": "m7i.metal-48xl",
            "networkInterfaces": _interfaces(world),
        },
        read_back=_template,
    ),
    KindFixture(
        "aws:autoscaling/group:Group",
        inputs=_scaled,
        changes=_scaled_changes,
        read_back=_group,
        not_returned=frozenset({"tags", "waitForCapacityTimeout"}),
    ),
    KindFixture(
        "aws:autoscaling/group:Group",
        variant="mixed",
        inputs=lambda world: {
            "name": fresh("pool"),
            "minSize": 0,
            "maxSize": 3,
            "mixedInstancesPolicy": _mixed(world, "m7i.large"),
            "vpcZoneIdentifiers": [world.subnet],
            "tags": [{"key": "Name", "value": "pooled", "propagateAtLaunch": True}],
        },
        changes=lambda world: {"mixedInstancesPolicy": _mixed(world, "m7i.large", "c7i.large")},
        read_back=_group,
        not_returned=_NOT_RETURNED,
    ),
    KindFixture(
        "aws:autoscaling/group:Group",
        variant="in the default network",
        inputs=lambda world: {
            "name": fresh("pool"),
            "minSize": 0,
            "maxSize": 3,
            "launchTemplate": {"id": services.template(world, groups=[])},
            "availabilityZones": [f"{world.aws.region}a"],
        },
        changes=lambda world: {"availabilityZones": [f"{world.aws.region}a", f"{world.aws.region}b"]},
        read_back=_group,
        not_returned=frozenset({"tags"}),
    ),
    KindFixture(
        "aws:autoscaling/lifecycleHook:LifecycleHook",
        inputs=lambda world: {
            "name": "hold",
            "autoscalingGroupName": services.scaling_group(world),
            "lifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
        },
        changes={
            "defaultResult": "CONTINUE",
            "heartbeatTimeout": 60,
            "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        },
        read_back=describe_by_call(
            "autoscaling",
            "describe_lifecycle_hooks",
            AutoScalingGroupName=lambda _ident, inputs: inputs["autoscalingGroupName"],
            LifecycleHookNames=id_list,
        ),
    ),
    KindFixture(
        "aws:autoscaling/schedule:Schedule",
        inputs=lambda world: {
            "scheduledActionName": "night",
            "autoscalingGroupName": services.scaling_group(world),
            "recurrence": "0 22 * * *",
            "minSize": 0,
        },
        changes={
            "maxSize": 9,
            "desiredCapacity": 5,
            "minSize": 1,
            "recurrence": "0 23 * * MON-FRI",
            "timeZone": "Europe/Stockholm",
        },
        read_back=describe_by_call(
            "autoscaling",
            "describe_scheduled_actions",
            AutoScalingGroupName=lambda _ident, inputs: inputs["autoscalingGroupName"],
            ScheduledActionNames=id_list,
        ),
        not_returned=frozenset({"endTime", "startTime"}),
    ),
    KindFixture(
        "aws:ebs/volume:Volume",
        inputs=lambda world: {
            "availabilityZone": f"{world.aws.region}a",
            "encrypted": True,
            "size": 21,
            "type": "gp3",
        },
        changes={"size": 34, "type": "gp2"},
        read_back=describe_by_id(ec2.VOLUME),
    ),
    KindFixture(
        "aws:ec2/placementGroup:PlacementGroup",
        inputs=lambda _world: {"name": fresh("near"), "strategy": "partition"},
        read_back=describe_fakes,
    ),
)
