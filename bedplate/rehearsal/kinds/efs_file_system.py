"""EFS file systems."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, inside
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_LIMITS = {
    "creationToken": Text(1, 64),
    "performanceMode": Choice(("generalPurpose", "maxIO")),
    "throughputMode": Choice(("bursting", "provisioned", "elastic")),
    "provisionedThroughputInMibps": Number(1, 3414),
}
_IDLE = tuple(f"AFTER_{days}" for days in ("1_DAY", *(f"{n}_DAYS" for n in (7, 14, 30, 60, 90, 180, 270, 365))))
_CYCLE = {
    "transitionToArchive": Choice(_IDLE),
    "transitionToIa": Choice(_IDLE),
    "transitionToPrimaryStorageClass": Choice(("AFTER_1_ACCESS",)),
}
_DEFAULT_KEY = "alias/aws/elasticfilesystem"
_APART = ("creationToken", "lifecyclePolicies", "protection", "tags")
EFS_TAGS = Tagger(service="efs", ident="ResourceId")


def _create(aws: Aws, inputs: Props) -> str:
    if inputs.get("kmsKeyId"):
        _find_key(aws, inputs["kmsKeyId"])
    _find_zone(aws, inputs.get("availabilityZoneName"))
    params = placed(aws, ("efs", "create_file_system"), inputs, apart=_APART)
    token = inputs.get("creationToken") or str(uuid4())
    tags = tag_pairs(inputs.get("tags"))
    ident: str = aws.call("efs", "create_file_system", CreationToken=token, Tags=tags, **params)["FileSystemId"]
    with undoing(lambda: _delete(aws, ident, inputs)):
        _cycle(aws, ident, {}, inputs)
    return ident


def _find_zone(aws: Aws, zone: str | None) -> None:
    found = aws.call("ec2", "describe_availability_zones")["AvailabilityZones"] if zone else []
    if zone and zone not in [each["ZoneName"] for each in found]:
        raise Refusal("UnsupportedAvailabilityZone", f"{aws.region} has no zone {zone}", key="availabilityZoneName")


def _find_key(aws: Aws, key: str) -> None:
    found = aws.call("kms", "describe_key", KeyId=key)["KeyMetadata"]
    if not found["Enabled"]:
        raise Refusal("BadRequest", f"{key} is {found['KeyState']}", key="kmsKeyId")


def _cycle(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = old.get("lifecyclePolicies") or [], new.get("lifecyclePolicies") or []
    if before != after:
        params = placed(aws, ("efs", "put_lifecycle_configuration"), {"lifecyclePolicies": after})
        aws.call("efs", "put_lifecycle_configuration", FileSystemId=ident, **params)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _cycle(aws, ident, old, new)
    EFS_TAGS.retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("efs", "describe_file_systems", FileSystemId=ident)["FileSystems"][0]
    key = found.get("KmsKeyId") or ""
    if found["Encrypted"] and not key:
        key = aws.arn("kms", _DEFAULT_KEY)
    return {
        "arn": found["FileSystemArn"],
        "availabilityZoneId": found.get("AvailabilityZoneId") or "",
        "creationToken": found["CreationToken"],
        "dnsName": f"{ident}.efs.{aws.region}.amazonaws.com",
        "encrypted": found["Encrypted"],
        "kmsKeyId": key,
        "name": found.get("Name") or "",
        "numberOfMountTargets": found["NumberOfMountTargets"],
        "ownerId": aws.account,
        "performanceMode": found["PerformanceMode"],
        "protection": inputs.get("protection") or {"replicationOverwrite": "ENABLED"},
        "sizeInBytes": [{"value": 0, "valueInIa": 0, "valueInStandard": 0}],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("efs", "delete_file_system", FileSystemId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from inside(inputs, "lifecyclePolicies", _CYCLE)
    yield from _cycle_complaints(inputs.get("lifecyclePolicies"))
    if inputs.get("performanceMode") == "maxIO" and inputs.get("throughputMode") == "elastic":
        yield Complaint("throughputMode", "elastic throughput is not for the performanceMode maxIO")
    if inputs.get("kmsKeyId") and inputs.get("encrypted") is not True:
        yield Complaint("encrypted", "encrypted must be true when kmsKeyId is given")
    provisioned = inputs.get("throughputMode") == "provisioned"
    if provisioned != (inputs.get("provisionedThroughputInMibps") is not None):
        yield Complaint("provisionedThroughputInMibps", "goes with the throughputMode provisioned, and only so")


def _cycle_complaints(policies: object) -> Iterator[Complaint]:
    """Yield where a transition is there twice, or does not stand in a policy of its own, as EFS wants it."""
    listed = policies if isinstance(policies, list) and is_known(policies) else []
    named = [[key for key, value in each.items() if value] for each in listed]
    if any(len(keys) != 1 for keys in named) or len({*map(tuple, named)}) < len(named):
        yield Complaint("lifecyclePolicies", "each transition stands once, in a policy of its own")


FILE_SYSTEM = Kind(
    token="aws:efs/fileSystem:FileSystem",
    inputs=updates("lifecyclePolicies", "protection", "provisionedThroughputInMibps", "tags")
    | updates("throughputMode")
    | replaces("availabilityZoneName", "creationToken", "encrypted", "kmsKeyId", "performanceMode"),
    defaults={"throughputMode": "bursting"},
    computed=frozenset({"creationToken", "encrypted", "kmsKeyId", "performanceMode", "protection"}),
    naming=Naming(key="creationToken", longest=64),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="moto has no UpdateFileSystem: throughput and protection are kept by the rehearsal",
)
