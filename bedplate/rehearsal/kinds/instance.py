"""Single EC2 instances."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import SUBNET, described, retag, tag
from bedplate.rehearsal.kinds.ec2 import VOLUME as NOUN
from bedplate.rehearsal.kinds.launch_template import plain_user_data, refuse_unmet, user_data_complaints
from bedplate.rehearsal.kinds.limits import Choice, Number, beyond, tag_pairs, together, undoing
from bedplate.rehearsal.kinds.placement_groups import refuse_unoffered
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_APART = (
    "ami",
    "associatePublicIpAddress",
    "availabilityZone",
    "disableApiTermination",
    "ebsBlockDevices",
    "forceDestroy",
    "getPasswordData",
    "iamInstanceProfile",
    "monitoring",
    "privateIp",
    "rootBlockDevice",
    "sourceDestCheck",
    "subnetId",
    "tags",
    "userData",
    "userDataBase64",
    "userDataReplaceOnChange",
    "vpcSecurityGroupIds",
)
# Inputs that are changed by ModifyInstanceAttribute.
_VALUES = {
    "disableApiStop": "DisableApiStop",
    "disableApiTermination": "DisableApiTermination",
    "instanceType": "InstanceType",
    "sourceDestCheck": "SourceDestCheck",
    "userData": "UserData",
}
_WHILE_STOPPED = frozenset({"instanceType", "userData"})
_ROOT = "/dev/sda1"
_DEVICE = ("deleteOnTermination", "encrypted", "iops", "kmsKeyId", "throughput", "volumeSize", "volumeType")


def _device(name: str, block: Props) -> dict[str, Any]:
    given = {f"{key[0].upper()}{key[1:]}": block[key] for key in _DEVICE if block.get(key) is not None}
    return {"DeviceName": name, "Ebs": {"DeleteOnTermination": True, **given}}


def _devices(inputs: Props) -> list[dict[str, Any]]:
    root = [_device(_ROOT, inputs["rootBlockDevice"])] if inputs.get("rootBlockDevice") else []
    return [*root, *(_device(one["deviceName"], one) for one in inputs.get("ebsBlockDevices") or [])]


def _params(aws: Aws, inputs: Props) -> dict[str, Any]:
    found = placed(aws, ("ec2", "run_instances"), inputs, apart=_APART)
    wanted = {
        "ImageId": inputs.get("ami"),
        "IamInstanceProfile": {"Name": inputs["iamInstanceProfile"]} if inputs.get("iamInstanceProfile") else None,
        "Monitoring": {"Enabled": bool(inputs.get("monitoring"))},
        "BlockDeviceMappings": _devices(inputs) or None,
        "SecurityGroupIds": inputs.get("vpcSecurityGroupIds"),
        "SubnetId": inputs.get("subnetId"),
        "PrivateIpAddress": inputs.get("privateIp"),
        "UserData": plain_user_data(inputs),
        "DisableApiTermination": inputs.get("disableApiTermination"),
    }
    zone = {"AvailabilityZone": inputs["availabilityZone"]} if inputs.get("availabilityZone") else {}
    placement = {"Placement": {**found.pop("Placement", {}), **zone}} if zone else {}
    return {**found, **{key: value for key, value in wanted.items() if value is not None}, **placement}


def _create(aws: Aws, inputs: Props) -> str:
    params = _params(aws, inputs)
    refuse_unmet(aws, params)
    if inputs.get("subnetId") and inputs.get("instanceType"):
        zone = described(aws, SUBNET, inputs["subnetId"])["AvailabilityZone"]
        refuse_unoffered(aws, [inputs["instanceType"]], [zone])
        aws.simulation.faults.check_capacity(inputs["instanceType"], zone)
    made = aws.call("ec2", "run_instances", MinCount=1, MaxCount=1, **_tagged(inputs), **params)
    ident: str = made["Instances"][0]["InstanceId"]
    with undoing(lambda: _delete(aws, ident, inputs)):
        _change(aws, ident, {**inputs, "sourceDestCheck": True}, inputs)
    return ident


def _tagged(inputs: Props) -> dict[str, Any]:
    specs = [{"ResourceType": "instance", "Tags": tag_pairs(inputs["tags"])}] if inputs.get("tags") else []
    return {"TagSpecifications": specs} if specs else {}


def _change(aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Change what EC2 changes by one call an attribute; some of it only while the machine is stopped."""
    changed = {key: new[key] for key in _VALUES if new.get(key) is not None and old.get(key) != new[key]}
    if changed.keys() & _WHILE_STOPPED:
        aws.call("ec2", "stop_instances", InstanceIds=[ident])
    for key, value in changed.items():
        aws.call("ec2", "modify_instance_attribute", InstanceId=ident, **{_VALUES[key]: {"Value": value}})
    if changed.keys() & _WHILE_STOPPED:
        aws.call("ec2", "start_instances", InstanceIds=[ident])
    groups = new.get("vpcSecurityGroupIds")
    if groups and "vpcSecurityGroupIds" in old and sorted(groups) != sorted(old["vpcSecurityGroupIds"] or []):
        aws.call("ec2", "modify_instance_attribute", InstanceId=ident, Groups=groups)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    refuse_unmet(aws, _params(aws, new))
    # Encoded, for here moto decodes once more than it does when a machine starts.
    before, after = ({**props, "userData": b64encode(plain_user_data(props) or b"")} for props in (old, new))
    _change(aws, ident, before, after)
    _carry(aws, ident, old.get("iamInstanceProfile"), new.get("iamInstanceProfile"))
    if new.get("metadataOptions") and old.get("metadataOptions") != new["metadataOptions"]:
        call = ("ec2", "modify_instance_metadata_options")
        aws.call(*call, InstanceId=ident, **placed(aws, call, new["metadataOptions"]))
    retag(aws, ident, old, new)


def _carry(aws: Aws, ident: str, old: str | None, new: str | None) -> None:
    if old == new:
        return
    only = [{"Name": "instance-id", "Values": [ident]}]
    held = aws.call("ec2", "describe_iam_instance_profile_associations", Filters=only)
    for one in held["IamInstanceProfileAssociations"]:
        aws.call("ec2", "disassociate_iam_instance_profile", AssociationId=one["AssociationId"])
    if new:
        profile = {"Name": new}
        aws.call("ec2", "associate_iam_instance_profile", InstanceId=ident, IamInstanceProfile=profile)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("ec2", "describe_instances", InstanceIds=[ident])["Reservations"][0]["Instances"][0]
    if found["State"]["Name"] in ("shutting-down", "terminated"):
        raise Refusal("InvalidInstanceID.NotFound", f"The instance ID '{ident}' does not exist")
    nics = found.get("NetworkInterfaces") or [{}]
    return {
        "ami": found["ImageId"],
        "arn": aws.arn("ec2", f"instance/{ident}"),
        "availabilityZone": found["Placement"]["AvailabilityZone"],
        "instanceState": found["State"]["Name"],
        "instanceType": found["InstanceType"],
        "primaryNetworkInterfaceId": nics[0].get("NetworkInterfaceId", ""),
        "privateDns": found.get("PrivateDnsName") or "",
        "privateIp": found.get("PrivateIpAddress") or "",
        "publicDns": found.get("PublicDnsName") or "",
        "publicIp": found.get("PublicIpAddress") or "",
        "sourceDestCheck": inputs.get("sourceDestCheck", True),
        "subnetId": found.get("SubnetId") or "",
        "tenancy": found["Placement"].get("Tenancy") or "default",
        "vpcSecurityGroupIds": sorted(group["GroupId"] for group in found.get("SecurityGroups", [])),
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "terminate_instances", InstanceIds=[ident])


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from together(inputs, "userData", "userDataBase64")
    yield from user_data_complaints(inputs, "userDataBase64")
    for key in ("ami", "instanceType"):
        if inputs.get(key) is None:
            yield Complaint(key, "is missing: the rehearsal starts no single instance from a template")


INSTANCE = Kind(
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
    moves=frozenset({"publicDns", "publicIp"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="a simple machine: a change of its volumes replaces it, user data never does",
)


_TYPES = ("gp2", "gp3", "io1", "io2", "sc1", "st1", "standard")
_LIMITS = {
    "iops": Number(100, 256_000),
    "size": Number(1, 65_536),
    "throughput": Number(125, 2000),
    "type": Choice(_TYPES),
}
# Which types take a figure of their own. Source: EC2 API reference, CreateVolume.
_FIGURES = {"iops": ("gp3", "io1", "io2"), "throughput": ("gp3",)}
_SHAPE = ("iops", "size", "throughput", "type")
_NAMES = {"iops": "Iops", "size": "Size", "throughput": "Throughput", "type": "VolumeType"}
_FIXED = ("availabilityZone", "encrypted", "kmsKeyId", "multiAttachEnabled", "snapshotId", "volumeInitializationRate")


def _volume_create(aws: Aws, inputs: Props) -> str:
    zones = {each["ZoneName"] for each in aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]}
    if inputs["availabilityZone"] not in zones:
        told = f"The zone '{inputs['availabilityZone']}' does not exist in {aws.region}."
        raise Refusal("InvalidZone.NotFound", told, key="availabilityZone")
    if inputs.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=inputs["kmsKeyId"])
    renames = {"type": "VolumeType"}
    params = placed(aws, ("ec2", "create_volume"), inputs, apart=("finalSnapshot", "tags"), renames=renames)
    return tag(aws, str(aws.call("ec2", "create_volume", **params)["VolumeId"]), inputs)


def _volume_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if (new.get("size") or 0) < (old.get("size") or 0):
        told = f"New size cannot be smaller than existing size of {old['size']:g} GiB"
        raise Refusal("InvalidParameterValue", told, key="size")
    changed = {_NAMES[key]: new[key] for key in _SHAPE if new.get(key) is not None and new.get(key) != old.get(key)}
    if changed:
        whole = {name: value if name == "VolumeType" else int(value) for name, value in changed.items()}
        aws.call("ec2", "modify_volume", VolumeId=ident, **whole)
    retag(aws, ident, old, new)


def _volume_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    return {
        "arn": aws.arn("ec2", f"volume/{ident}"),
        "createTime": found["CreateTime"].isoformat(),
        "encrypted": found["Encrypted"],
        "iops": found.get("Iops") or 0,
        "kmsKeyId": found.get("KmsKeyId") or "",
        "size": found["Size"],
        "throughput": found.get("Throughput") or 0,
        "type": found["VolumeType"],
    }


def _volume_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_volume", VolumeId=ident)


def _volume_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    if inputs.get("size") is None and inputs.get("snapshotId") is None:
        yield Complaint("size", "one of size and snapshotId must be given")
    if inputs.get("kmsKeyId") and not inputs.get("encrypted"):
        yield Complaint("kmsKeyId", "goes with encrypted: true only")
    for key, types in _FIGURES.items():
        kind = inputs.get("type") or "gp2"
        if inputs.get(key) is not None and is_known(kind) and kind not in types:
            yield Complaint(key, f"goes with the types {', '.join(types)} only, not with {kind}")
    if inputs.get("type") in ("io1", "io2") and inputs.get("iops") is None:
        yield Complaint("iops", f"must be given with {inputs['type']}")
    for key in ("finalSnapshot", "outpostArn"):
        if inputs.get(key):
            yield Complaint(key, "is an input that the rehearsal has no place for")


VOLUME = Kind(
    token="aws:ebs/volume:Volume",
    inputs=updates(*_SHAPE, "finalSnapshot", "tags") | replaces(*_FIXED, "outpostArn"),
    defaults={"finalSnapshot": False},
    computed=frozenset({"encrypted", "iops", "kmsKeyId", "size", "snapshotId", "throughput", "type"})
    | {"volumeInitializationRate"},
    create=_volume_create,
    read=_volume_read,
    update=_volume_update,
    delete=_volume_delete,
    complaints=_volume_complaints,
)
