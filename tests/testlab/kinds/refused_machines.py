"""Machines and storage that AWS refuses and moto accepts: one invalid change of a fixture in each row."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from tests.testlab.kinds import world as services
from tests.testlab.kinds.world import World

_TEMPLATE, _GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
_FILES, _TARGET = "aws:efs/fileSystem:FileSystem", "aws:efs/mountTarget:MountTarget"
_RULES = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
_ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
_VOLUME = "aws:ebs/volume:Volume"
_HOOK, _SCHEDULE = "aws:autoscaling/lifecycleHook:LifecycleHook", "aws:autoscaling/schedule:Schedule"
_OVERRIDES = "mixedInstancesPolicy.launchTemplate.overrides"
_REQUIREMENTS, _DISTRIBUTION = f"{_OVERRIDES}.instanceRequirements", "mixedInstancesPolicy.instancesDistribution"
_VALID_REQUIREMENTS = {"vcpuCount": {"min": 2, "max": 8}, "memoryMib": {"min": 4096}}
_LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
_DISKS, _CARDS = "blockDeviceMappings.ebs", "networkInterfaces"
_UNKNOWN_KEY = "arn:aws:kms:us-west-2:111122223333:key/11111111-2222-3333-4444-555555555555"


def _mixed(*overrides: dict[str, Any], **distribution: object) -> dict[str, Any]:
    policy = {"launchTemplate": {"overrides": list(overrides)}, "instancesDistribution": distribution}
    return {"launchTemplate": None, "mixedInstancesPolicy": policy}


def _with_requirements(**changes: object) -> dict[str, Any]:
    return _mixed({"instanceRequirements": {**_VALID_REQUIREMENTS, **changes}})


def _hooks(*names: str, seconds: int = 60) -> dict[str, Any]:
    hooks = [{"name": name, "lifecycleTransition": _LAUNCHING, "heartbeatTimeout": seconds} for name in names]
    return {"initialLifecycleHooks": hooks}


def _full_group(world: World) -> dict[str, Any]:
    """Return a group with the maximum number of hooks."""
    group = services.scaling_group(world)
    for number in range(50):
        call = {"LifecycleHookName": f"hook-{number}", "LifecycleTransition": _LAUNCHING}
        world.aws.call("autoscaling", "put_lifecycle_hook", AutoScalingGroupName=group, **call)
    return {"autoscalingGroupName": group}


def _disk(**ebs: object) -> dict[str, Any]:
    return {"blockDeviceMappings": [{"deviceName": "/dev/sda1", "ebs": ebs}]}


def _card(**interface: object) -> dict[str, Any]:
    return _cards(interface)


def _cards(*interfaces: dict[str, Any]) -> dict[str, Any]:
    return {"vpcSecurityGroupIds": None, "networkInterfaces": list(interfaces)}


def _rule(**actions: object) -> dict[str, Any]:
    return {"rules": [{"id": "a", "status": "Enabled", "filter": {"prefix": ""}, **actions}]}


def _encrypted(algorithm: str, **more: str) -> dict[str, Any]:
    return {"rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": algorithm, **more}}]}


def _reserved(**target: str) -> dict[str, Any]:
    return {"capacityReservationSpecification": {"capacityReservationTarget": target}}


def _placed(purchase: dict[str, Any]) -> dict[str, Any]:
    return {"placement": {"groupName": "near"}, **purchase}


def _two_markets(world: World) -> dict[str, Any]:
    data = {"InstanceType": "m7i.large", "ImageId": services.IMAGE, "InstanceMarketOptions": {"MarketType": "spot"}}
    path, name = "LaunchTemplate.LaunchTemplateId", services.fresh("template")
    template = world.create("create_launch_template", path, LaunchTemplateName=name, LaunchTemplateData=data)
    spec = {"launchTemplateSpecification": {"launchTemplateId": template}}
    return {"launchTemplate": None, "mixedInstancesPolicy": {"launchTemplate": spec}}


def _chosen_by_size(world: World) -> dict[str, Any]:
    spec = {"launchTemplateId": services.template(world)}
    chosen = [{"instanceRequirements": _VALID_REQUIREMENTS}]
    policy = {"launchTemplate": {"launchTemplateSpecification": spec, "overrides": chosen}}
    return {"launchTemplate": None, "mixedInstancesPolicy": policy}


def _far_group(world: World) -> str:
    return world.create("create_security_group", "GroupId", GroupName="far", Description="far", VpcId=world.far_vpc)


# Type, invalid inputs that replace valid ones, and the input that the error names.
MACHINE_INPUTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (_GROUP, {"waitForCapacityTimeout": "ten minutes"}, "waitForCapacityTimeout"),
    (_GROUP, {"healthCheckGracePeriod": -1}, "healthCheckGracePeriod"),
    (_GROUP, _mixed({"instanceType": "m7i.large", "weightedCapacity": "2"}), f"{_OVERRIDES}.weightedCapacity"),
    (_GROUP, _mixed({"instanceType": "m7i.large"}, {"instanceType": "m7i.large"}), "mixedInstancesPolicy"),
    (_GROUP, _mixed(*({"instanceType": f"m7i.{n}xlarge"} for n in range(41))), "mixedInstancesPolicy"),
    (_GROUP, _mixed(spotMaxPrice="cheap"), "mixedInstancesPolicy.instancesDistribution.spotMaxPrice"),
    (_GROUP, _mixed(spotInstancePools=3), f"{_DISTRIBUTION}.spotInstancePools"),
    (_VOLUME, {"size": None}, "size"),
    (_VOLUME, {"size": 70_000}, "size"),
    (_VOLUME, {"type": "fast"}, "type"),
    (_GROUP, _with_requirements(vcpuCount={"max": 8}), f"{_REQUIREMENTS}.vcpuCount"),
    (_GROUP, _with_requirements(memoryMib=None), f"{_REQUIREMENTS}.memoryMib"),
    (_GROUP, _with_requirements(memoryMib={"min": 4096, "max": 2048}), f"{_REQUIREMENTS}.memoryMib"),
    (_GROUP, _with_requirements(bareMetal="never"), f"{_REQUIREMENTS}.bareMetal"),
    (_GROUP, _with_requirements(cpuManufacturers=["arm"]), f"{_REQUIREMENTS}.cpuManufacturers"),
    (_GROUP, _with_requirements(instanceGenerations=["next"]), f"{_REQUIREMENTS}.instanceGenerations"),
    (
        _GROUP,
        _with_requirements(allowedInstanceTypes=["m7i.*"], excludedInstanceTypes=["m6i.*"]),
        f"{_REQUIREMENTS}.allowedInstanceTypes",
    ),
    (_GROUP, _mixed({"instanceRequirements": _VALID_REQUIREMENTS}, {"instanceType": "m7i.large"}), _OVERRIDES),
    (
        _GROUP,
        _mixed({"instanceRequirements": _VALID_REQUIREMENTS}, onDemandAllocationStrategy="prioritized"),
        f"{_DISTRIBUTION}.onDemandAllocationStrategy",
    ),
    (_GROUP, _hooks("ready", "ready"), "initialLifecycleHooks"),
    (_GROUP, _hooks("ready", seconds=29), "initialLifecycleHooks.heartbeatTimeout"),
    (_HOOK, {"heartbeatTimeout": 29}, "heartbeatTimeout"),
    (_HOOK, {"heartbeatTimeout": 7201}, "heartbeatTimeout"),
    (_SCHEDULE, {"recurrence": "0 22 * *"}, "recurrence"),
    (_SCHEDULE, {"recurrence": "60 22 * * *"}, "recurrence"),
    (_SCHEDULE, {"recurrence": "0 22 * * FRI-MON"}, "recurrence"),
    (_SCHEDULE, {"recurrence": "0 22 * * NIL"}, "recurrence"),
    (_SCHEDULE, {"recurrence": "*/0 22 * * *"}, "recurrence"),
    (_SCHEDULE, {"recurrence": None}, "recurrence"),
    (_SCHEDULE, {"timeZone": "Europe/Zurick"}, "timeZone"),
    (_SCHEDULE, {"startTime": "2099-01-01"}, "startTime"),
    (_SCHEDULE, {"startTime": "2099-01-02T00:00:00Z", "endTime": "2099-01-01T00:00:00Z"}, "endTime"),
    (_SCHEDULE, {"minSize": 3, "maxSize": 2, "desiredCapacity": -1}, "minSize"),
    (_SCHEDULE, {"minSize": 1}, "minSize"),
    (_SCHEDULE, {"minSize": 1, "maxSize": 2, "desiredCapacity": 3}, "desiredCapacity"),
    (_SCHEDULE, {"minSize": -1, "maxSize": -1, "desiredCapacity": -1}, "minSize"),
    (_SCHEDULE, {"minSize": -2}, "minSize"),
    (_TEMPLATE, _disk(encrypted="yes"), f"{_DISKS}.encrypted"),
    (_TEMPLATE, _disk(deleteOnTermination="no"), f"{_DISKS}.deleteOnTermination"),
    (_TEMPLATE, _disk(throughput=100), f"{_DISKS}.throughput"),
    (_TEMPLATE, _disk(volumeType="gp2", throughput=250), f"{_DISKS}.throughput"),
    (_TEMPLATE, _disk(volumeType="gp3", throughput=751), f"{_DISKS}.throughput"),
    (_TEMPLATE, _disk(volumeType="gp3", volumeSize=20, iops=10001), f"{_DISKS}.iops"),
    (_TEMPLATE, _disk(kmsKeyId=_UNKNOWN_KEY), f"{_DISKS}.kmsKeyId"),
    (_TEMPLATE, _card(associatePublicIpAddress="never"), f"{_CARDS}.associatePublicIpAddress"),
    (_TEMPLATE, _card(interfaceType="fast"), f"{_CARDS}.interfaceType"),
    (_TEMPLATE, _cards({}, {}), _CARDS),
    (_TEMPLATE, _cards({"interfaceType": "efa-only"}), _CARDS),
    (_TEMPLATE, _cards({"deviceIndex": 1}), _CARDS),
    (_TEMPLATE, _cards({"associatePublicIpAddress": "true"}, {"deviceIndex": 1}), _CARDS),
    (_TEMPLATE, _card(ipv6AddressCount=1), f"{_CARDS}.ipv6AddressCount"),
    (_TEMPLATE, _placed({"instanceMarketOptions": {"marketType": "capacity-block"}}), "placement.groupName"),
    (_TEMPLATE, _placed(_reserved(capacityReservationId="cr-0123456789abcdef0")), "placement.groupName"),
    (_TEMPLATE, {"userData": b64encode(b"#" * 16385).decode()}, "userData"),
    (_TEMPLATE, {"tagSpecifications": [{"resourceType": "image", "tags": {}}]}, "tagSpecifications.resourceType"),
    (_TEMPLATE, {"instanceMarketOptions": {"marketType": "cheap"}}, "instanceMarketOptions.marketType"),
    (_TEMPLATE, {"placement": {"tenancy": "default"}}, "placement.tenancy"),
    (
        _TEMPLATE,
        _reserved(capacityReservationId="cr-1"),
        "capacityReservationSpecification.capacityReservationTarget.capacityReservationId",
    ),
    (
        _TEMPLATE,
        {"tagSpecifications": [{"resourceType": "instance", "tags": {"aws:pool": "a"}}]},
        "tagSpecifications.tags.aws:pool",
    ),
    (_FILES, {"lifecyclePolicies": [{"transitionToIa": "AFTER_31_DAYS"}]}, "lifecyclePolicies.transitionToIa"),
    (_FILES, {"lifecyclePolicies": [{"transitionToIa": "AFTER_1_DAY"}] * 2}, "lifecyclePolicies"),
    (
        _FILES,
        {"lifecyclePolicies": [{"transitionToIa": "AFTER_1_DAY", "transitionToArchive": "AFTER_90_DAYS"}]},
        "lifecyclePolicies",
    ),
    (_RULES, _rule(expiration={"days": 0, "expiredObjectDeleteMarker": True}), "rules[0].expiration.days"),
    (_RULES, _rule(expiration={"days": 1, "date": "2030-01-01T00:00:00Z"}), "rules[0].expiration"),
    (
        _RULES,
        _rule(transitions=[{"days": 90, "storageClass": "GLACIER"}], expiration={"days": 400}),
        "rules[0].transitions",
    ),
    (_ENCRYPTION, _encrypted("AES"), "rules.applyServerSideEncryptionByDefault.sseAlgorithm"),
    (_ENCRYPTION, _encrypted("AES256", kmsMasterKeyId="k"), "rules.applyServerSideEncryptionByDefault.kmsMasterKeyId"),
    (
        "aws:s3/bucketVersioning:BucketVersioning",
        {"versioningConfiguration": {"status": "On"}},
        "versioningConfiguration.status",
    ),
    (
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        {"rule": {"objectOwnership": "Mine"}},
        "rule.objectOwnership",
    ),
    ("aws:route53/zone:Zone", {"name": "lab..internal"}, "name"),
    ("aws:route53/zone:Zone", {"name": f"{'a' * 64}.internal"}, "name"),
)
# Id, type, changes that make the inputs invalid, and the error code of AWS.
MACHINE_CALLS: tuple[tuple[str, str, Callable[[World], dict[str, Any]], str], ...] = (
    ("volume in an unknown zone", _VOLUME, lambda _world: {"availabilityZone": "us-west-2z"}, "InvalidZone.NotFound"),
    ("two markets", _GROUP, _two_markets, "ValidationError"),
    ("requirements with an image parameter", _GROUP, _chosen_by_size, "ValidationError"),
    (
        "invalid version",
        _GROUP,
        lambda world: {"launchTemplate": {"id": services.template(world), "version": "newest"}},
        "ValidationError",
    ),
    ("51st hook", _HOOK, _full_group, "LimitExceeded"),
    ("start in the past", _SCHEDULE, lambda _: {"startTime": "2020-01-01T00:00:00Z"}, "ValidationError"),
    ("end in the past", _SCHEDULE, lambda _: {"endTime": "2020-01-01T00:00:00Z"}, "ValidationError"),
    (
        "target with a group of another VPC",
        _TARGET,
        lambda world: {"securityGroups": [_far_group(world)]},
        "SecurityGroupNotFound",
    ),
)
