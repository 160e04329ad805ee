"""Parts of the world that are no part of the network, made by plain AWS calls under names that nobody has."""

import json
from itertools import count
from typing import Any

from tests.support.world import TRUST, World

IMAGE = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
_numbers = count(1)


def fresh(prefix: str) -> str:
    """Return a name that nobody has."""
    return f"{prefix}-{next(_numbers)}"


def document(action: str, resource: str = "*", **more: object) -> str:
    """Return a policy that allows one action."""
    statement = {"Effect": "Allow", "Action": action, "Resource": resource, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def open_policy(action: str, resource: str = "*") -> str:
    """Return a policy on a resource that denies one action to everybody."""
    statement = {"Effect": "Deny", "Action": action, "Resource": resource, "Principal": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def key_policy(action: str) -> str:
    """Return a policy that leaves a key to its account, but for one action."""
    owner = {"AWS": "arn:aws:iam::111122223333:root"}
    kept = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": owner}
    return json.dumps({"Version": "2012-10-17", "Statement": [kept, *json.loads(open_policy(action))["Statement"]]})


def trust(**more: object) -> str:
    """Return a role's trust in EC2."""
    return json.dumps({**TRUST, **more})


def role_name(world: World) -> str:
    """Return the name of a role."""
    return world.role.rpartition("/")[2]


def managed_policy(world: World) -> str:
    """Make a policy; return its ARN."""
    call = {"PolicyName": fresh("policy"), "PolicyDocument": document("s3:GetObject")}
    return world.made("create_policy", "Policy.Arn", "iam", **call)


def profile(world: World) -> str:
    """Make an instance profile; return its name."""
    path = "InstanceProfile.InstanceProfileName"
    return world.made("create_instance_profile", path, "iam", InstanceProfileName=fresh("profile"))


def key(world: World, **params: object) -> str:
    """Make a KMS key; return its ARN."""
    return world.made("create_key", "KeyMetadata.Arn", "kms", **params)


def bucket(world: World) -> str:
    """Make a bucket; return its name."""
    name = fresh("bucket")
    place: Any = {"LocationConstraint": world.aws.region}
    world.aws.call("s3", "create_bucket", Bucket=name, CreateBucketConfiguration=place)
    return name


def file_system(world: World) -> str:
    """Make a file system; return its id."""
    return world.made("create_file_system", "FileSystemId", "efs", CreationToken=fresh("token"))


def zone(world: World) -> str:
    """Make a private zone of the world's VPC; return its id."""
    return world.made(
        "create_hosted_zone",
        "HostedZone.Id",
        "route53",
        Name=f"{fresh('lab')}.internal",
        CallerReference=fresh("call"),
        HostedZoneConfig={"Comment": "", "PrivateZone": True},
        VPC={"VPCRegion": world.aws.region, "VPCId": world.vpc},
    ).rpartition("/")[2]


def template(world: World, kind: str = "m7i.large", groups: list[str] | None = None) -> str:
    """Make a launch template, with the world's security group unless others are given; return its id."""
    wanted = [world.group] if groups is None else groups
    data = {"InstanceType": kind, "ImageId": IMAGE, "SecurityGroupIds": wanted}
    path, name = "LaunchTemplate.LaunchTemplateId", fresh("template")
    return world.made("create_launch_template", path, LaunchTemplateName=name, LaunchTemplateData=data)


def scaling_group(world: World) -> str:
    """Make an Auto Scaling group of no machines; return its name."""
    name = fresh("group")
    call: dict[str, Any] = {
        "AutoScalingGroupName": name,
        "MinSize": 0,
        "MaxSize": 2,
        "LaunchTemplate": {"LaunchTemplateId": template(world)},
        "VPCZoneIdentifier": world.subnet,
    }
    world.aws.call("autoscaling", "create_auto_scaling_group", **call)
    return name


def placement_group(world: World) -> str:
    """Note a placement group, of which moto has no model; return its name."""
    name = fresh("placement")
    world.aws.fakes("aws:ec2/placementGroup:PlacementGroup")[f"{world.aws.region}/{name}"] = {}
    return name


def key_pair(world: World) -> str:
    """Make a key pair; return its name."""
    return world.made("create_key_pair", "KeyName", KeyName=fresh("pair"))


def image(world: World) -> str:
    """Return the id of an image that exists."""
    return str(world.aws.call("ec2", "describe_images", Owners=["099720109477"])["Images"][0]["ImageId"])


def secret(world: World) -> str:
    """Make a secret; return its ARN."""
    return world.made("create_secret", "ARN", "secretsmanager", Name=fresh("secret"))


def text(policy: object) -> str:
    """Return a policy that AWS gives as a mapping in the form of the texts above."""
    return json.dumps(policy)
