"""EBS volumes that are resources of their own."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import call_with, copied, deletes
from bedplate.rehearsal.kinds.launch_template import VOLUME_TYPES
from bedplate.rehearsal.kinds.limits import Choice, Number, check_required, checks
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

_LIMITS = {
    "iops": Number(100, 256_000),
    "size": Number(1, 65_536),
    "throughput": Number(125, 2000),
    "type": Choice(VOLUME_TYPES),
}
# Volume types that take the input. Source: EC2 API reference, CreateVolume.
_TYPES_WITH = {"iops": ("gp3", "io1", "io2"), "throughput": ("gp3",)}
_SETTINGS = ("iops", "size", "throughput", "type")
_RENAMES = {"type": "VolumeType"}


def _check(inputs: Props) -> Iterator[InvalidInput]:
    yield from check_required(inputs, ("size",))
    if inputs.get("kmsKeyId") and not inputs.get("encrypted"):
        yield InvalidInput("kmsKeyId", "requires encrypted to be true")
    for key, types in _TYPES_WITH.items():
        volume_type = inputs.get("type") or "gp2"
        if inputs.get(key) is not None and is_known(volume_type) and volume_type not in types:
            yield InvalidInput(key, f"is allowed for {', '.join(types)}, not for {volume_type}")
    if inputs.get("type") in ("io1", "io2") and inputs.get("iops") is None:
        yield InvalidInput("iops", f"is required for {inputs['type']}")


def _create(aws: Aws, inputs: Props) -> str:
    zones = {zone["ZoneName"] for zone in aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]}
    if inputs["availabilityZone"] not in zones:
        message = f"The zone '{inputs['availabilityZone']}' does not exist in {aws.region}."
        raise ResourceError("InvalidZone.NotFound", message, key="availabilityZone")
    if inputs.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=inputs["kmsKeyId"])
    response = call_with(aws, ("ec2", "create_volume"), inputs, apart=("tags",), renames=_RENAMES)
    return ec2.tag(aws, response["VolumeId"], inputs)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    volume = ec2.described(aws, ec2.VOLUME, ident)
    return {
        **copied(volume, "encrypted", "kmsKeyId", "size", type="VolumeType"),
        "arn": aws.arn("ec2", f"volume/{ident}"),
        "createTime": volume["CreateTime"].isoformat(),
        "iops": volume.get("Iops") or 0,
        "throughput": volume.get("Throughput") or 0,
    }


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if (new.get("size") or 0) < (old.get("size") or 0):
        message = f"New size cannot be smaller than existing size of {old['size']:g} GiB"
        raise ResourceError("InvalidParameterValue", message, key="size")
    if changed := {key: new[key] for key in _SETTINGS if new.get(key) not in (None, old.get(key))}:
        call_with(aws, ("ec2", "modify_volume"), changed, renames=_RENAMES, VolumeId=ident)
    ec2.retag(aws, ident, old, new)


VOLUME = ResourceKind(
    token="aws:ebs/volume:Volume",
    inputs=updates(*_SETTINGS, "tags") | replaces("availabilityZone", "encrypted", "kmsKeyId"),
    computed=frozenset({"encrypted", "iops", "kmsKeyId", "size", "throughput", "type"}),
    create=_create,
    read=_read,
    update=_update,
    delete=deletes("ec2", "delete_volume", "VolumeId"),
    complaints=checks(_LIMITS, _check),
)
