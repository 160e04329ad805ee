"""EBS volumes that live by themselves."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import VOLUME as NOUN
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.limits import Choice, Number, beyond
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

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


def _create(aws: Aws, inputs: Props) -> str:
    zones = {each["ZoneName"] for each in aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]}
    if inputs["availabilityZone"] not in zones:
        told = f"The zone '{inputs['availabilityZone']}' does not exist in {aws.region}."
        raise Refusal("InvalidZone.NotFound", told, key="availabilityZone")
    if inputs.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=inputs["kmsKeyId"])
    renames = {"type": "VolumeType"}
    params = placed(aws, ("ec2", "create_volume"), inputs, apart=("finalSnapshot", "tags"), renames=renames)
    return tag(aws, str(aws.call("ec2", "create_volume", **params)["VolumeId"]), inputs)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if (new.get("size") or 0) < (old.get("size") or 0):
        told = f"New size cannot be smaller than existing size of {old['size']:g} GiB"
        raise Refusal("InvalidParameterValue", told, key="size")
    changed = {_NAMES[key]: new[key] for key in _SHAPE if new.get(key) is not None and new.get(key) != old.get(key)}
    if changed:
        whole = {name: value if name == "VolumeType" else int(value) for name, value in changed.items()}
        aws.call("ec2", "modify_volume", VolumeId=ident, **whole)
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
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


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_volume", VolumeId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
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
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
