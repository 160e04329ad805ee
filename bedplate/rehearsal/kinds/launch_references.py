"""What a launch template or an instance names and must find: AWS tells of the missing only when machines start."""

from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kinds.described import SECURITY_GROUP, SUBNET, require
from bedplate.rehearsal.kinds.ec2_offer import refuse_unknown_type
from bedplate.rehearsal.kinds.fake_store import kept
from bedplate.rehearsal.kinds.placement_group import TOKEN as PLACEMENT_GROUP
from bedplate.rehearsal.kinds.placement_group import UNKNOWN_GROUP
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_PUBLIC = "/aws/service/"  # parameters that AWS and others publish, of which moto knows a few


def refuse_unmet(aws: Aws, data: Mapping[str, Any]) -> None:
    """Refuse launch data, in EC2's form, that names what does not exist in this region."""
    if data.get("ImageId"):
        _require_image(aws, data["ImageId"])
    if data.get("InstanceType"):
        refuse_unknown_type(aws, data["InstanceType"])
    if data.get("KeyName"):
        aws.call("ec2", "describe_key_pairs", KeyNames=[data["KeyName"]])
    require(aws, SECURITY_GROUP, *group_ids(data))
    nics = data.get("NetworkInterfaces") or []
    require(aws, SUBNET, *(nic["SubnetId"] for nic in nics if nic.get("SubnetId")))
    _require_profile(aws, data.get("IamInstanceProfile") or {})
    _require_keys(aws, data)
    group = (data.get("Placement") or {}).get("GroupName")
    if group:
        kept(aws, PLACEMENT_GROUP, group, UNKNOWN_GROUP)


def group_ids(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield every security group that launch data names, by id."""
    yield from data.get("SecurityGroupIds") or []
    for nic in data.get("NetworkInterfaces") or []:
        yield from nic.get("Groups") or []


def _require_image(aws: Aws, image: str) -> None:
    parameter = image.removeprefix("resolve:ssm:").partition(":")[0]
    if image.startswith("ami-"):
        aws.call("ec2", "describe_images", ImageIds=[image])
    elif parameter == image:
        raise Refusal("InvalidAMIID.Malformed", f'Invalid id: "{image}" (expecting "ami-...")', key="imageId")
    elif not parameter.startswith(_PUBLIC):
        aws.call("ssm", "get_parameter", Name=parameter)


def _require_profile(aws: Aws, profile: Mapping[str, Any]) -> None:
    name = profile.get("Name") or str(profile.get("Arn") or "").rpartition("/")[2]
    if name:
        try:
            aws.call("iam", "get_instance_profile", InstanceProfileName=name)
        except Refusal:
            said = f"Invalid IAM Instance Profile {name}"
            raise Refusal("InvalidParameterValue", said, key="iamInstanceProfile") from None


def _require_keys(aws: Aws, data: Mapping[str, Any]) -> None:
    for mapping in data.get("BlockDeviceMappings") or []:
        key = (mapping.get("Ebs") or {}).get("KmsKeyId")
        if key:
            aws.call("kms", "describe_key", KeyId=key)
