"""IAM, machines, storage and DNS that AWS refuses and moto accepts: one invalid change of a fixture in each row."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from tests.testlab.kinds import world as services
from tests.testlab.kinds.world import World

_UNKNOWN_KEY = "arn:aws:kms:us-west-2:111122223333:key/11111111-2222-3333-4444-555555555555"
_UNKNOWN_SUBNET = "subnet-0123456789abcdef0"
_UNKNOWN_ROLE = "arn:aws:iam::111122223333:role/ghost"
_TEMPLATE, _GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
_PROVIDER = "aws:iam/openIdConnectProvider:OpenIdConnectProvider"
_BUCKET, _PARAMETER = "aws:s3/bucket:Bucket", "aws:ssm/parameter:Parameter"
_RULES = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"


def _mixed(template: str) -> dict[str, Any]:
    return {"launchTemplate": {"id": template}}


def _unknown_principal() -> str:
    return services.document("sts:AssumeRole", Principal={"AWS": _UNKNOWN_ROLE})


def _long_policy(size: int) -> str:
    return services.document("s3:GetObject", "r" * size)


def _foreign_template(world: World) -> str:
    group = world.create("create_security_group", "GroupId", GroupName="far", Description="far", VpcId=world.far_vpc)
    return services.template(world, groups=[group])


def _same_name(world: World) -> dict[str, Any]:
    name = world.aws.call("route53", "get_hosted_zone", Id=services.zone(world))["HostedZone"]["Name"]
    return {"name": name, "vpcs": [{"vpcId": world.vpc}]}


# Type, invalid inputs that replace valid ones, and the input that the error names.
SERVICE_INPUTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("aws:iam/role:Role", {"name": "r" * 65}, "name"),
    ("aws:iam/role:Role", {"assumeRolePolicy": "{}"}, "assumeRolePolicy"),
    ("aws:iam/instanceProfile:InstanceProfile", {"name": "p" * 129}, "name"),
    (_PROVIDER, {"url": "http://issuer.example"}, "url"),
    (_PROVIDER, {"clientIdLists": [f"client-{number}" for number in range(101)]}, "clientIdLists"),
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
    ("aws:ec2/placementGroup:PlacementGroup", {"strategy": "near"}, "strategy"),
    ("aws:efs/fileSystem:FileSystem", {"encrypted": False}, "encrypted"),
    ("aws:efs/fileSystem:FileSystem", {"throughputMode": "provisioned"}, "throughputMode"),
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
    ("aws:route53/record:Record", {"records": ["10.20.0.5", "web.lab"]}, "records"),
    ("aws:route53/record:Record", {"type": "AAAA"}, "records"),
    ("aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 8}, "retentionInDays"),
    ("aws:cloudwatch/metricAlarm:MetricAlarm", {"comparisonOperator": "Above"}, "comparisonOperator"),
    ("aws:cloudwatch/metricAlarm:MetricAlarm", {"metricName": None}, "metricName"),
    ("aws:ecr/repository:Repository", {"name": "Lab/base"}, "name"),
    ("aws:ecr/repository:Repository", {"imageTagMutability": "ALWAYS"}, "imageTagMutability"),
    ("aws:budgets/budget:Budget", {"timeUnit": "WEEKLY"}, "timeUnit"),
    ("aws:budgets/budget:Budget", {"limitUnit": None}, "limitUnit"),
)


# Id, type, changes that make the inputs invalid, and the error code of AWS.
SERVICE_CALLS: tuple[tuple[str, str, Callable[[World], dict[str, Any]], str], ...] = (
    (
        "trust in an unknown role",
        "aws:iam/role:Role",
        lambda _: {"assumeRolePolicy": _unknown_principal()},
        "MalformedPolicyDocument",
    ),
    (
        "inline policy too large",
        "aws:iam/rolePolicy:RolePolicy",
        lambda _: {"policy": _long_policy(11000)},
        "LimitExceeded",
    ),
    ("unknown role", "aws:iam/rolePolicy:RolePolicy", lambda _: {"role": "ghost"}, "NoSuchEntity"),
    (
        "profile with an unknown role",
        "aws:iam/instanceProfile:InstanceProfile",
        lambda _: {"role": "ghost"},
        "NoSuchEntity",
    ),
    ("alias of an unknown key", "aws:kms/alias:Alias", lambda _: {"targetKeyId": _UNKNOWN_KEY}, "NotFoundException"),
    ("parameter with an unknown key", _PARAMETER, lambda _: {"keyId": _UNKNOWN_KEY}, "InvalidKeyId"),
    ("unknown type", _TEMPLATE, lambda _: {"instanceType": "p5.49xlarge"}, "InvalidParameterValue"),
    ("unknown group", _TEMPLATE, lambda _: {"vpcSecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
    ("unknown image", _TEMPLATE, lambda _: {"imageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
    ("image id without ami-", _TEMPLATE, lambda _: {"imageId": "ubuntu"}, "InvalidAMIID.Malformed"),
    ("unknown parameter", _TEMPLATE, lambda _: {"imageId": "resolve:ssm:/lab/none"}, "ParameterNotFound"),
    ("unknown profile", _TEMPLATE, lambda _: {"iamInstanceProfile": {"name": "none"}}, "InvalidParameterValue"),
    (
        "unknown disk key",
        _TEMPLATE,
        lambda _: {"blockDeviceMappings": [{"deviceName": "/dev/sda1", "ebs": {"kmsKeyId": _UNKNOWN_KEY}}]},
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
        lambda _: {"vpcZoneIdentifiers": [_UNKNOWN_SUBNET]},
        "InvalidSubnetID.NotFound",
    ),
    (
        "type not in the zone",
        _GROUP,
        lambda world: _mixed(services.template(world, "u7in-32tb.224xlarge")),
        "ValidationError",
    ),
    ("group of another VPC", _GROUP, lambda world: _mixed(_foreign_template(world)), "ValidationError"),
    ("existing name", _GROUP, lambda world: {"name": services.scaling_group(world)}, "AlreadyExists"),
    (
        "hook of an unknown group",
        "aws:autoscaling/lifecycleHook:LifecycleHook",
        lambda _: {"autoscalingGroupName": "none"},
        "ValidationError",
    ),
    (
        "schedule of an unknown group",
        "aws:autoscaling/schedule:Schedule",
        lambda _: {"autoscalingGroupName": "none"},
        "ValidationError",
    ),
    (
        "file system with an unknown key",
        "aws:efs/fileSystem:FileSystem",
        lambda _: {"kmsKeyId": _UNKNOWN_KEY},
        "NotFoundException",
    ),
    (
        "target in an unknown subnet",
        "aws:efs/mountTarget:MountTarget",
        lambda _: {"subnetId": _UNKNOWN_SUBNET},
        "SubnetNotFound",
    ),
    (
        "target with an unknown group",
        "aws:efs/mountTarget:MountTarget",
        lambda _: {"securityGroups": ["sg-0123456789abcdef0"]},
        "SecurityGroupNotFound",
    ),
    ("existing bucket", _BUCKET, lambda world: {"bucket": services.bucket(world)}, "BucketAlreadyOwnedByYou"),
    ("policy of an unknown bucket", "aws:s3/bucketPolicy:BucketPolicy", lambda _: {"bucket": "no-such-bucket"}, "404"),
    (
        "policy for an unknown role",
        "aws:s3/bucketPolicy:BucketPolicy",
        lambda _: {"policy": _unknown_principal()},
        "MalformedPolicy",
    ),
    ("zone of an unknown VPC", "aws:route53/zone:Zone", lambda _: {"vpcs": [{"vpcId": "vpc-0123"}]}, "InvalidVPCId"),
    ("VPC with a zone of this name", "aws:route53/zone:Zone", _same_name, "ConflictingDomainExists"),
    ("record in an unknown zone", "aws:route53/record:Record", lambda _: {"zoneId": "Z0123"}, "NoSuchHostedZone"),
    (
        "topic with an unknown key",
        "aws:sns/topic:Topic",
        lambda _: {"kmsMasterKeyId": _UNKNOWN_KEY},
        "NotFoundException",
    ),
)


_BUCKET_POLICY, _KEY, _INLINE = (
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:kms/key:Key",
    "aws:iam/rolePolicy:RolePolicy",
)
_ROLE = "aws:iam/role:Role"
_EC2 = {"Service": "ec2.amazonaws.com"}
_ACCOUNT = {"AWS": "arn:aws:iam::111122223333:root"}


def _trust(**more: object) -> dict[str, Any]:
    return {"assumeRolePolicy": services.trust(Statement=[{"Effect": "Allow", "Action": "sts:AssumeRole", **more}])}


def _policy(action: str = "s3:GetObject", resource: str = "*", **more: object) -> dict[str, Any]:
    return {"policy": services.document(action, resource, **more)}


def _unknown_version() -> dict[str, Any]:
    return {"policy": json.dumps({**json.loads(services.document("s3:GetObject")), "Version": "2020-01-01"})}


def _public_policy(world: World) -> dict[str, Any]:
    bucket = services.bucket(world)
    configuration = {"BlockPublicPolicy": True}
    world.aws.call("s3", "put_public_access_block", Bucket=bucket, PublicAccessBlockConfiguration=configuration)
    return {"bucket": bucket, **_policy(resource=f"arn:aws:s3:::{bucket}/*", Principal="*")}


# Type, invalid inputs that replace valid ones, and the input that the error names.
POLICY_INPUTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (_INLINE, _policy(Principal="*"), "policy"),
    (_INLINE, _policy(Sid="read-all"), "policy"),
    (_INLINE, _policy(Conditions={}), "policy"),
    (_INLINE, _policy(resource=""), "policy"),
    (_INLINE, _unknown_version(), "policy"),
    (_INLINE, {"policy": '{"Statement": ["all"]}'}, "policy"),
    (_ROLE, _trust(), "assumeRolePolicy"),
    (_ROLE, _trust(Principal=_EC2, Resource="*"), "assumeRolePolicy"),
    (_ROLE, _trust(Principal=_EC2, Action="s3:GetObject"), "assumeRolePolicy"),
    (_ROLE, _trust(Principal={"AWS": "arn:aws:iam::1111:root"}), "assumeRolePolicy"),
    (_BUCKET_POLICY, _policy(), "policy"),
    (_BUCKET_POLICY, _policy("ec2:RunInstances", Principal=_ACCOUNT), "policy"),
    (_KEY, _policy("kms:*"), "policy"),
    (_KEY, _policy("kms:*", Principal={"AWS": "everybody"}), "policy"),
)
# Id, type, changes that make the inputs invalid, and the error code of AWS.
POLICY_CALLS: tuple[tuple[str, str, Callable[[World], dict[str, Any]], str], ...] = (
    (
        "key policy without control",
        _KEY,
        lambda _: _policy("kms:Describe*", Principal=_ACCOUNT),
        "MalformedPolicyDocumentException",
    ),
    (
        "policy for another bucket",
        _BUCKET_POLICY,
        lambda _: _policy(resource="arn:aws:s3:::elsewhere/*", Principal=_ACCOUNT),
        "MalformedPolicy",
    ),
    ("public policy on a blocked bucket", _BUCKET_POLICY, _public_policy, "AccessDenied"),
)
