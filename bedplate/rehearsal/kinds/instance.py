"""EC2 instances that are not in an Auto Scaling group, and EBS volumes."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, capitalized, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import aws_names, call_parameters, call_with, copied, deletes
from bedplate.rehearsal.kinds.launch_template import VOLUME_TYPES, check_user_data, plain_user_data, require_launch_data
from bedplate.rehearsal.kinds.limits import Choice, Number, check_either, check_exclusive, checks, rollback
from bedplate.rehearsal.kinds.placement_groups import require_offered
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- Instances

_SEPARATE = (
    "associatePublicIpAddress",
    "availabilityZone",
    "ebsBlockDevices",
    "forceDestroy",
    "getPasswordData",
    "rootBlockDevice",
    "sourceDestCheck",
    "tags",
    "userDataBase64",
    "userDataReplaceOnChange",
)
_RENAMES = {"ami": "ImageId", "privateIp": "PrivateIpAddress", "vpcSecurityGroupIds": "SecurityGroupIds"}
# Inputs that ModifyInstanceAttribute changes.
_ATTRIBUTES = aws_names("disableApiStop", "disableApiTermination", "instanceType", "sourceDestCheck", "userData")
_WHILE_STOPPED = frozenset({"instanceType", "userData"})
_ROOT_DEVICE = "/dev/sda1"
_DEVICE_INPUTS = ("deleteOnTermination", "encrypted", "iops", "kmsKeyId", "throughput", "volumeSize", "volumeType")


def _check_instance(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from check_exclusive(inputs, "userData", "userDataBase64")
    yield from check_user_data(inputs, "userDataBase64")
    for key in ("ami", "instanceType"):
        if inputs.get(key) is None:
            yield InvalidInput(key, "is required: launch templates are not modelled for single instances")


def _create_instance(aws: Aws, inputs: Props) -> str:
    params = _params(aws, inputs)
    require_launch_data(aws, params)
    if inputs.get("subnetId") and inputs.get("instanceType"):
        zone = ec2.lasting(aws, ec2.SUBNET, inputs["subnetId"])["AvailabilityZone"]
        require_offered(aws, [inputs["instanceType"]], [zone])
        aws.simulation.faults.check_capacity(inputs["instanceType"], zone)
    response = aws.call(
        "ec2", "run_instances", MinCount=1, MaxCount=1, **ec2.tag_specifications("instance", inputs), **params
    )
    ident: str = response["Instances"][0]["InstanceId"]
    with rollback(lambda: _delete_instance(aws, ident, inputs)):
        _modify_attributes(aws, ident, {**inputs, "sourceDestCheck": True}, inputs)
    return ident


def _params(aws: Aws, inputs: Props) -> dict[str, Any]:
    profile, zone = inputs.get("iamInstanceProfile"), inputs.get("availabilityZone")
    blocks = {
        "blockDeviceMappings": _devices(inputs) or None,
        "iamInstanceProfile": {"name": profile} if profile else None,
        "monitoring": {"enabled": bool(inputs.get("monitoring"))},
        "placement": {"availabilityZone": zone} if zone else None,
        "userData": plain_user_data(inputs),
    }
    return call_parameters(aws, ("ec2", "run_instances"), {**inputs, **blocks}, apart=_SEPARATE, renames=_RENAMES)


def _devices(inputs: Props) -> list[dict[str, Any]]:
    root = [_device(_ROOT_DEVICE, inputs["rootBlockDevice"])] if inputs.get("rootBlockDevice") else []
    return [*root, *(_device(block["deviceName"], block) for block in inputs.get("ebsBlockDevices") or [])]


def _device(name: str, block: Props) -> dict[str, Any]:
    settings = {capitalized(key): block[key] for key in _DEVICE_INPUTS if block.get(key) is not None}
    return {"DeviceName": name, "Ebs": {"DeleteOnTermination": True, **settings}}


def _modify_attributes(aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Change attributes with one call each; stop the instance for those that require it."""
    changed = {key: new[key] for key in _ATTRIBUTES if new.get(key) is not None and old.get(key) != new[key]}
    if changed.keys() & _WHILE_STOPPED:
        aws.call("ec2", "stop_instances", InstanceIds=[ident])
    for key, value in changed.items():
        aws.call("ec2", "modify_instance_attribute", InstanceId=ident, **{_ATTRIBUTES[key]: {"Value": value}})
    if changed.keys() & _WHILE_STOPPED:
        aws.call("ec2", "start_instances", InstanceIds=[ident])
    groups = new.get("vpcSecurityGroupIds")
    if groups and "vpcSecurityGroupIds" in old and sorted(groups) != sorted(old["vpcSecurityGroupIds"] or []):
        aws.call("ec2", "modify_instance_attribute", InstanceId=ident, Groups=groups)


def _read_instance(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    instance = aws.call("ec2", "describe_instances", InstanceIds=[ident])["Reservations"][0]["Instances"][0]
    if instance["State"]["Name"] in ("shutting-down", "terminated"):
        raise ResourceError("InvalidInstanceID.NotFound", f"The instance ID '{ident}' does not exist")
    interfaces = instance.get("NetworkInterfaces") or [{}]
    return {
        **copied(instance, "instanceType", "subnetId", ami="ImageId", privateDns="PrivateDnsName"),
        **copied(instance, privateIp="PrivateIpAddress", publicDns="PublicDnsName", publicIp="PublicIpAddress"),
        "arn": aws.arn("ec2", f"instance/{ident}"),
        "availabilityZone": instance["Placement"]["AvailabilityZone"],
        "instanceState": instance["State"]["Name"],
        "primaryNetworkInterfaceId": interfaces[0].get("NetworkInterfaceId", ""),
        "sourceDestCheck": inputs.get("sourceDestCheck", True),
        "tenancy": instance["Placement"].get("Tenancy") or "default",
        "vpcSecurityGroupIds": sorted(group["GroupId"] for group in instance.get("SecurityGroups", [])),
    }


def _update_instance(aws: Aws, ident: str, old: Props, new: Props) -> None:
    require_launch_data(aws, _params(aws, new))
    # Encoded: moto decodes user data once more in this call than in RunInstances.
    before, after = ({**props, "userData": b64encode(plain_user_data(props) or b"")} for props in (old, new))
    _modify_attributes(aws, ident, before, after)
    _set_profile(aws, ident, old.get("iamInstanceProfile"), new.get("iamInstanceProfile"))
    if new.get("metadataOptions") and old.get("metadataOptions") != new["metadataOptions"]:
        call_with(aws, ("ec2", "modify_instance_metadata_options"), new["metadataOptions"], InstanceId=ident)
    ec2.retag(aws, ident, old, new)


def _set_profile(aws: Aws, ident: str, old: str | None, new: str | None) -> None:
    if old == new:
        return
    filters = [{"Name": "instance-id", "Values": [ident]}]
    response = aws.call("ec2", "describe_iam_instance_profile_associations", Filters=filters)
    for association in response["IamInstanceProfileAssociations"]:
        aws.call("ec2", "disassociate_iam_instance_profile", AssociationId=association["AssociationId"])
    if new:
        profile = {"Name": new}
        aws.call("ec2", "associate_iam_instance_profile", InstanceId=ident, IamInstanceProfile=profile)


_delete_instance = deletes("ec2", "terminate_instances", "InstanceIds")


INSTANCE = ResourceKind(
    token="aws:ec2/instance:Instance",
    inputs=updates("disableApiStop", "disableApiTermination", "forceDestroy", "getPasswordData")
    | updates("iamInstanceProfile", "instanceType", "metadataOptions", "monitoring", "sourceDestCheck", "tags")
    | updates("userData", "userDataBase64", "userDataReplaceOnChange", "vpcSecurityGroupIds")
    | replaces("ami", "associatePublicIpAddress", "availabilityZone", "ebsBlockDevices", "keyName")
    | replaces("privateIp", "rootBlockDevice", "subnetId"),
    defaults={
        "forceDestroy": False,
        "getPasswordData": False,
        "sourceDestCheck": True,
        "userDataReplaceOnChange": False,
    },
    computed=frozenset({"associatePublicIpAddress", "availabilityZone", "disableApiStop"})
    | {"disableApiTermination", "ebsBlockDevices", "iamInstanceProfile", "keyName", "metadataOptions"}
    | {"monitoring", "privateIp", "rootBlockDevice", "subnetId", "userData", "userDataBase64"}
    | {"vpcSecurityGroupIds"},
    sets=frozenset({"ebsBlockDevices", "vpcSecurityGroupIds"}),
    changed_by_update=frozenset({"publicDns", "publicIp"}),
    create=_create_instance,
    read=_read_instance,
    update=_update_instance,
    delete=_delete_instance,
    complaints=_check_instance,
    note="a change of volumes replaces the instance, a change of user data never does",
)


# --- EBS volumes

_VOLUME_LIMITS = {
    "iops": Number(100, 256_000),
    "size": Number(1, 65_536),
    "throughput": Number(125, 2000),
    "type": Choice(VOLUME_TYPES),
}
# Volume types that take the input. Source: EC2 API reference, CreateVolume.
_TYPES_WITH = {"iops": ("gp3", "io1", "io2"), "throughput": ("gp3",)}
_VOLUME_SETTINGS = ("iops", "size", "throughput", "type")
_VOLUME_RENAMES = {"type": "VolumeType"}


def _check_volume(inputs: Props) -> Iterator[InvalidInput]:
    yield from check_either(inputs, "size", "snapshotId")
    if inputs.get("kmsKeyId") and not inputs.get("encrypted"):
        yield InvalidInput("kmsKeyId", "requires encrypted to be true")
    for key, types in _TYPES_WITH.items():
        volume_type = inputs.get("type") or "gp2"
        if inputs.get(key) is not None and is_known(volume_type) and volume_type not in types:
            yield InvalidInput(key, f"is allowed for {', '.join(types)}, not for {volume_type}")
    if inputs.get("type") in ("io1", "io2") and inputs.get("iops") is None:
        yield InvalidInput("iops", f"is required for {inputs['type']}")
    for key in ("finalSnapshot", "outpostArn"):
        if inputs.get(key):
            yield InvalidInput(key, "is not modelled by the rehearsal")


def _create_volume(aws: Aws, inputs: Props) -> str:
    zones = {zone["ZoneName"] for zone in aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]}
    if inputs["availabilityZone"] not in zones:
        message = f"The zone '{inputs['availabilityZone']}' does not exist in {aws.region}."
        raise ResourceError("InvalidZone.NotFound", message, key="availabilityZone")
    if inputs.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=inputs["kmsKeyId"])
    apart = ("finalSnapshot", "tags")
    response = call_with(aws, ("ec2", "create_volume"), inputs, apart=apart, renames=_VOLUME_RENAMES)
    return ec2.tag(aws, response["VolumeId"], inputs)


def _read_volume(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    volume = ec2.described(aws, ec2.VOLUME, ident)
    return {
        **copied(volume, "encrypted", "kmsKeyId", "size", type="VolumeType"),
        "arn": aws.arn("ec2", f"volume/{ident}"),
        "createTime": volume["CreateTime"].isoformat(),
        "iops": volume.get("Iops") or 0,
        "throughput": volume.get("Throughput") or 0,
    }


def _update_volume(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if (new.get("size") or 0) < (old.get("size") or 0):
        message = f"New size cannot be smaller than existing size of {old['size']:g} GiB"
        raise ResourceError("InvalidParameterValue", message, key="size")
    if changed := {key: new[key] for key in _VOLUME_SETTINGS if new.get(key) not in (None, old.get(key))}:
        call_with(aws, ("ec2", "modify_volume"), changed, renames=_VOLUME_RENAMES, VolumeId=ident)
    ec2.retag(aws, ident, old, new)


VOLUME = ResourceKind(
    token="aws:ebs/volume:Volume",
    inputs=updates(*_VOLUME_SETTINGS, "finalSnapshot", "tags")
    | replaces("availabilityZone", "encrypted", "kmsKeyId", "multiAttachEnabled", "outpostArn", "snapshotId")
    | replaces("volumeInitializationRate"),
    defaults={"finalSnapshot": False},
    computed=frozenset({"encrypted", "iops", "kmsKeyId", "size", "snapshotId", "throughput", "type"})
    | {"volumeInitializationRate"},
    create=_create_volume,
    read=_read_volume,
    update=_update_volume,
    delete=deletes("ec2", "delete_volume", "VolumeId"),
    complaints=checks(_VOLUME_LIMITS, _check_volume),
)
