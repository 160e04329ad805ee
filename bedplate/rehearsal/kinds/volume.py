"""EBS volumes that are resources of their own."""

from functools import partial
from typing import Any

from bedplate.rehearsal.kind import Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import call_with, copied, deletes
from bedplate.rehearsal.kinds.limits import Choice, Number, check_required, checks
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError

_LIMITS = {
    "size": Number(1, 65_536),
    "type": Choice(("gp2", "gp3", "sc1", "st1", "standard")),
}
_SETTINGS = ("size", "type")
_RENAMES = {"type": "VolumeType"}


def _create(aws: Aws, inputs: Props) -> str:
    zones = {zone["ZoneName"] for zone in aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]}
    if inputs["availabilityZone"] not in zones:
        message = f"The zone '{inputs['availabilityZone']}' does not exist in {aws.region}."
        raise ResourceError("InvalidZone.NotFound", message, key="availabilityZone")
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
    inputs=updates(*_SETTINGS, "tags") | replaces("availabilityZone", "encrypted"),
    computed=frozenset({"encrypted", "size", "type"}),
    create=_create,
    read=_read,
    update=_update,
    delete=deletes("ec2", "delete_volume", "VolumeId"),
    complaints=checks(_LIMITS, partial(check_required, keys=("size",))),
)
