"""What AWS refuses of machines, storage, names and keys and moto lets pass: each row is a specimen with one fault."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from tests.testlab.kinds import world as services
from tests.testlab.kinds.world import World

_GHOST_KEY = "arn:aws:kms:us-west-2:111122223333:key/11111111-2222-3333-4444-555555555555"
_GHOST_SUBNET = "subnet-0123456789abcdef0"
_GHOST_ROLE = "arn:aws:iam::111122223333:role/ghost"
_TEMPLATE, _GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
_BUCKET, _PARAMETER = "aws:s3/bucket:Bucket", "aws:ssm/parameter:Parameter"
_RULES = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"


def _mixed(template: str) -> dict[str, Any]:
    return {"launchTemplate": {"id": template}}


def _trusting() -> str:
    return services.document("sts:AssumeRole", Principal={"AWS": _GHOST_ROLE})


def _long(size: int) -> str:
    return services.document("s3:GetObject", "r" * size)


def _foreign(world: World) -> str:
    home = world.made("create_security_group", "GroupId", GroupName="far", Description="far", VpcId=world.far_vpc)
    return services.template(world, groups=[home])


def _twin(world: World) -> dict[str, Any]:
    held = world.aws.call("route53", "get_hosted_zone", Id=services.zone(world))["HostedZone"]["Name"]
    return {"name": held, "vpcs": [{"vpcId": world.vpc}]}


# Token, inputs in the place of the specimen's, the input that is complained about.
COMPLAINTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("aws:iam/role:Role", {"name": "r" * 65}, "name"),
    ("aws:iam/role:Role", {"assumeRolePolicy": "{}"}, "assumeRolePolicy"),
    ("aws:iam/role:Role", {"maxSessionDuration": 60}, "maxSessionDuration"),
    ("aws:iam/instanceProfile:InstanceProfile", {"name": "p" * 129}, "name"),
    ("aws:kms/key:Key", {"deletionWindowInDays": 5}, "deletionWindowInDays"),
    ("aws:kms/alias:Alias", {"name": "data"}, "name"),
    ("aws:kms/alias:Alias", {"name": "alias/aws/data"}, "name"),
    (_PARAMETER, {"name": "lab/fact"}, "name"),
    (_PARAMETER, {"value": "v" * 4097}, "value"),
    (_PARAMETER, {"value": None}, "value"),
    (_PARAMETER, {"type": "Secret"}, "type"),
    ("aws:secretsmanager/secret:Secret", {"recoveryWindowInDays": 5}, "recoveryWindowInDays"),
    ("aws:secretsmanager/secretVersion:SecretVersion", {"secretString": None}, "secretString"),
    (_TEMPLATE, {"name": "ab"}, "name"),
    (_TEMPLATE, {"userData": "#!/bin/sh"}, "userData"),
    (_TEMPLATE, {"userData": b64encode(b"x" * 16385).decode()}, "userData"),
    (_TEMPLATE, {"metadataOptions": {"httpTokens": "always"}}, "metadataOptions.httpTokens"),
    (_TEMPLATE, {"metadataOptions": {"httpPutResponseHopLimit": 65}}, "metadataOptions.httpPutResponseHopLimit"),
    (_TEMPLATE, {"blockDeviceMappings": [{"ebs": {"volumeType": "gp9"}}]}, "blockDeviceMappings.ebs.volumeType"),
    (_TEMPLATE, {"tagSpecifications": [{"resourceType": "disk"}]}, "tagSpecifications.resourceType"),
    (_TEMPLATE, {"networkInterfaces": [{"deviceIndex": 0}]}, "vpcSecurityGroupIds"),
    (_GROUP, {"name": "g" * 256}, "name"),
    (_GROUP, {"minSize": 4}, "minSize"),
    (_GROUP, {"desiredCapacity": 9}, "desiredCapacity"),
    (_GROUP, {"launchTemplate": None}, "launchTemplate"),
    (_GROUP, {"vpcZoneIdentifiers": None}, "vpcZoneIdentifiers"),
    (_GROUP, {"availabilityZones": ["us-west-2a"]}, "availabilityZones"),
    (_GROUP, {"suspendedProcesses": ["Sleep"]}, "suspendedProcesses"),
    (_GROUP, {"terminationPolicies": ["Random"]}, "terminationPolicies"),
    (_GROUP, {"healthCheckType": "PING"}, "healthCheckType"),
    ("aws:autoscaling/lifecycleHook:LifecycleHook", {"heartbeatTimeout": 10}, "heartbeatTimeout"),
    ("aws:autoscaling/schedule:Schedule", {"recurrence": None}, "recurrence"),
    ("aws:ec2/instance:Instance", {"ami": None}, "ami"),
    ("aws:ec2/placementGroup:PlacementGroup", {"strategy": "near", "partitionCount": None}, "strategy"),
    ("aws:ec2/placementGroup:PlacementGroup", {"strategy": "cluster"}, "partitionCount"),
    ("aws:efs/fileSystem:FileSystem", {"performanceMode": "fast"}, "performanceMode"),
    ("aws:efs/fileSystem:FileSystem", {"encrypted": False}, "encrypted"),
    ("aws:efs/fileSystem:FileSystem", {"throughputMode": "provisioned"}, "provisionedThroughputInMibps"),
    ("aws:efs/mountTarget:MountTarget", {"securityGroups": ["sg-1"] * 6}, "securityGroups"),
    ("aws:efs/backupPolicy:BackupPolicy", {"backupPolicy": {"status": "ON"}}, "backupPolicy.status"),
    (_BUCKET, {"bucket": "Lab"}, "bucket"),
    (_BUCKET, {"bucket": "lab_data"}, "bucket"),
    (_BUCKET, {"bucket": "10.0.0.1"}, "bucket"),
    (_BUCKET, {"bucket": "lab..data"}, "bucket"),
    (_BUCKET, {"bucket": "xn--lab"}, "bucket"),
    (_BUCKET, {"bucket": "b" * 64}, "bucket"),
    ("aws:s3/bucketPolicy:BucketPolicy", {"policy": "{}"}, "policy"),
    (_RULES, {"rules": [{"id": "a", "status": "Enabled"}]}, "rules[0]"),
    (_RULES, {"rules": [{"id": "a", "status": "on", "expiration": {"days": 1}}]}, "rules[0].status"),
    ("aws:route53/record:Record", {"ttl": None}, "ttl"),
    ("aws:route53/record:Record", {"type": "HOST"}, "type"),
    ("aws:route53/record:Record", {"weightedRoutingPolicies": [{"weight": 1}]}, "setIdentifier"),
    ("aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 8}, "retentionInDays"),
    ("aws:sns/topic:Topic", {"fifoTopic": True}, "name"),
    ("aws:sns/topic:Topic", {"contentBasedDeduplication": True}, "contentBasedDeduplication"),
    ("aws:cloudwatch/metricAlarm:MetricAlarm", {"comparisonOperator": "Above"}, "comparisonOperator"),
    ("aws:cloudwatch/metricAlarm:MetricAlarm", {"metricName": None}, "metricName"),
    ("aws:budgets/budget:Budget", {"timeUnit": "WEEKLY"}, "timeUnit"),
    ("aws:budgets/budget:Budget", {"limitUnit": None}, "limitUnit"),
)


# Token, what spoils the specimen's inputs in a world, AWS's code.
REFUSALS: tuple[tuple[str, str, Callable[[World], dict[str, Any]], str], ...] = (
    ("trust in a ghost", "aws:iam/role:Role", lambda _: {"assumeRolePolicy": _trusting()}, "MalformedPolicyDocument"),
    ("inline policy too long", "aws:iam/rolePolicy:RolePolicy", lambda _: {"policy": _long(11000)}, "LimitExceeded"),
    ("role of no account", "aws:iam/rolePolicy:RolePolicy", lambda _: {"role": "ghost"}, "NoSuchEntity"),
    ("profile of a ghost", "aws:iam/instanceProfile:InstanceProfile", lambda _: {"role": "ghost"}, "NoSuchEntity"),
    ("alias of a ghost", "aws:kms/alias:Alias", lambda _: {"targetKeyId": _GHOST_KEY}, "NotFoundException"),
    ("parameter under a ghost's key", _PARAMETER, lambda _: {"keyId": _GHOST_KEY}, "InvalidKeyId"),
    ("unknown type", _TEMPLATE, lambda _: {"instanceType": "p5.49xlarge"}, "InvalidParameterValue"),
    ("unknown group", _TEMPLATE, lambda _: {"vpcSecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
    ("unknown image", _TEMPLATE, lambda _: {"imageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
    ("no image at all", _TEMPLATE, lambda _: {"imageId": "ubuntu"}, "InvalidAMIID.Malformed"),
    ("unknown parameter", _TEMPLATE, lambda _: {"imageId": "resolve:ssm:/lab/none"}, "ParameterNotFound"),
    ("unknown key pair", _TEMPLATE, lambda _: {"keyName": "none"}, "InvalidKeyPair.NotFound"),
    ("unknown profile", _TEMPLATE, lambda _: {"iamInstanceProfile": {"name": "none"}}, "InvalidParameterValue"),
    (
        "unknown disk key",
        _TEMPLATE,
        lambda _: {"blockDeviceMappings": [{"deviceName": "/dev/sda1", "ebs": {"kmsKeyId": _GHOST_KEY}}]},
        "NotFoundException",
    ),
    (
        "unknown placement group",
        _TEMPLATE,
        lambda _: {"placement": {"groupName": "none"}},
        "InvalidPlacementGroup.Unknown",
    ),
    ("unknown template", _GROUP, lambda _: _mixed("lt-0123456789abcdef0"), "ValidationError"),
    (
        "unknown version",
        _GROUP,
        lambda world: {"launchTemplate": {"id": services.template(world), "version": "7"}},
        "ValidationError",
    ),
    (
        "unknown subnet",
        _GROUP,
        lambda _: {"vpcZoneIdentifiers": [_GHOST_SUBNET]},
        "InvalidSubnetID.NotFound",
    ),
    (
        "type not in the zone",
        _GROUP,
        lambda world: _mixed(services.template(world, "u7in-32tb.224xlarge")),
        "ValidationError",
    ),
    ("foreign security group", _GROUP, lambda world: _mixed(_foreign(world)), "ValidationError"),
    ("name that is taken", _GROUP, lambda world: {"name": services.scaling_group(world)}, "AlreadyExists"),
    (
        "hook of no group",
        "aws:autoscaling/lifecycleHook:LifecycleHook",
        lambda _: {"autoscalingGroupName": "none"},
        "ValidationError",
    ),
    (
        "schedule of no group",
        "aws:autoscaling/schedule:Schedule",
        lambda _: {"autoscalingGroupName": "none"},
        "ValidationError",
    ),
    (
        "type not in the subnet's zone",
        "aws:ec2/instance:Instance",
        lambda _: {"instanceType": "p9.large"},
        "InvalidParameterValue",
    ),
    (
        "file system under a ghost's key",
        "aws:efs/fileSystem:FileSystem",
        lambda _: {"kmsKeyId": _GHOST_KEY},
        "NotFoundException",
    ),
    (
        "target in no subnet",
        "aws:efs/mountTarget:MountTarget",
        lambda _: {"subnetId": _GHOST_SUBNET},
        "SubnetNotFound",
    ),
    (
        "target with no group",
        "aws:efs/mountTarget:MountTarget",
        lambda _: {"securityGroups": ["sg-0123456789abcdef0"]},
        "SecurityGroupNotFound",
    ),
    ("bucket that is there", _BUCKET, lambda world: {"bucket": services.bucket(world)}, "BucketAlreadyOwnedByYou"),
    ("policy of no bucket", "aws:s3/bucketPolicy:BucketPolicy", lambda _: {"bucket": "no-such-bucket"}, "404"),
    ("policy for a ghost", "aws:s3/bucketPolicy:BucketPolicy", lambda _: {"policy": _trusting()}, "MalformedPolicy"),
    ("zone of no VPC", "aws:route53/zone:Zone", lambda _: {"vpcs": [{"vpcId": "vpc-0123"}]}, "InvalidVPCId"),
    ("VPC with the name already", "aws:route53/zone:Zone", _twin, "ConflictingDomainExists"),
    ("record of no zone", "aws:route53/record:Record", lambda _: {"zoneId": "Z0123"}, "NoSuchHostedZone"),
    (
        "group under a ghost's key",
        "aws:cloudwatch/logGroup:LogGroup",
        lambda _: {"kmsKeyId": _GHOST_KEY},
        "NotFoundException",
    ),
    ("topic under a ghost's key", "aws:sns/topic:Topic", lambda _: {"kmsMasterKeyId": _GHOST_KEY}, "NotFoundException"),
)


_DEFECTS_POLICIES_BUCKET, _KEY, _INLINE = (
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:kms/key:Key",
    "aws:iam/rolePolicy:RolePolicy",
)
_ROLE, _ENDPOINT = "aws:iam/role:Role", "aws:ec2/vpcEndpoint:VpcEndpoint"
_EC2 = {"Service": "ec2.amazonaws.com"}
_ACCOUNT = {"AWS": "arn:aws:iam::111122223333:root"}


def _trust(**more: object) -> dict[str, Any]:
    return {"assumeRolePolicy": services.trust(Statement=[{"Effect": "Allow", "Action": "sts:AssumeRole", **more}])}


def _policy(action: str = "s3:GetObject", resource: str = "*", **more: object) -> dict[str, Any]:
    return {"policy": services.document(action, resource, **more)}


def _of_another_year() -> dict[str, Any]:
    return {"policy": json.dumps({**json.loads(services.document("s3:GetObject")), "Version": "2020-01-01"})}


def _opened(world: World) -> dict[str, Any]:
    bucket = services.bucket(world)
    shut = {"BlockPublicPolicy": True}
    world.aws.call("s3", "put_public_access_block", Bucket=bucket, PublicAccessBlockConfiguration=shut)
    return {"bucket": bucket, **_policy(resource=f"arn:aws:s3:::{bucket}/*", Principal="*")}


# Token, inputs in the place of the specimen's, the input that is complained about.
DEFECTS_POLICIES_COMPLAINTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (_INLINE, _policy(Principal="*"), "policy"),
    (_INLINE, _policy(Sid="read-all"), "policy"),
    (_INLINE, _policy(Conditions={}), "policy"),
    (_INLINE, _policy(resource=""), "policy"),
    (_INLINE, _of_another_year(), "policy"),
    (_INLINE, {"policy": '{"Statement": ["all"]}'}, "policy"),
    (_ROLE, _trust(), "assumeRolePolicy"),
    (_ROLE, _trust(Principal=_EC2, Resource="*"), "assumeRolePolicy"),
    (_ROLE, _trust(Principal=_EC2, Action="s3:GetObject"), "assumeRolePolicy"),
    (_ROLE, _trust(Principal={"AWS": "arn:aws:iam::1111:root"}), "assumeRolePolicy"),
    (_DEFECTS_POLICIES_BUCKET, _policy(), "policy"),
    (_DEFECTS_POLICIES_BUCKET, _policy("ec2:RunInstances", Principal=_ACCOUNT), "policy"),
    (_KEY, _policy("kms:*"), "policy"),
    (_KEY, _policy("kms:*", Principal={"AWS": "everybody"}), "policy"),
)
# Token, what spoils the specimen's inputs in a world, AWS's code.
DEFECTS_POLICIES_REFUSALS: tuple[tuple[str, str, Callable[[World], dict[str, Any]], str], ...] = (
    (
        "key nobody controls",
        _KEY,
        lambda _: _policy("kms:Describe*", Principal=_ACCOUNT),
        "MalformedPolicyDocumentException",
    ),
    (
        "policy for another bucket",
        _DEFECTS_POLICIES_BUCKET,
        lambda _: _policy(resource="arn:aws:s3:::elsewhere/*", Principal=_ACCOUNT),
        "MalformedPolicy",
    ),
    ("public policy on a shut bucket", _DEFECTS_POLICIES_BUCKET, _opened, "AccessDenied"),
)
