"""Replication of a file system to another region, or to another file system."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, Support, replaces
from bedplate.rehearsal.kinds.fake_store import forget, keep, kept, new_id
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_TOKEN = "aws:efs/replicationConfiguration:ReplicationConfiguration"  # noqa: S105  # a type, not a secret


def _create(aws: Aws, inputs: Props) -> str:
    source, destination = inputs["sourceFileSystemId"], inputs["destination"]
    aws.call("efs", "describe_file_systems", FileSystemId=source)
    there = aws.elsewhere(destination.get("region") or aws.region)
    target = destination.get("fileSystemId")
    if target:
        there.call("efs", "describe_file_systems", FileSystemId=target)
    if f"{aws.region}/{source}" in aws.fakes(_TOKEN):
        raise Refusal("ReplicationAlreadyExists", f"{source} is replicated already", key="sourceFileSystemId")
    if key := destination.get("kmsKeyId"):
        there.call("kms", "describe_key", KeyId=key)
    made = {**destination, "fileSystemId": target or new_id("fs"), "region": there.region, "status": "ENABLED"}
    keep(aws, _TOKEN, source, {"destination": made, "made": datetime.now(UTC).isoformat(timespec="seconds")})
    return str(source)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = kept(aws, _TOKEN, ident, "ReplicationNotFound")
    arn = aws.arn("elasticfilesystem", f"file-system/{ident}")
    return {
        "creationTime": found["made"],
        "destination": found["destination"],
        "originalSourceFileSystemArn": arn,
        "sourceFileSystemArn": arn,
        "sourceFileSystemRegion": aws.region,
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    forget(aws, _TOKEN, ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    destination = inputs.get("destination")
    if isinstance(destination, dict) and not destination.keys() & {"availabilityZoneName", "fileSystemId", "region"}:
        yield Complaint("destination", "names a region, a zone or a file system")


FILE_SYSTEM_REPLICATION = Kind(
    token=_TOKEN,
    inputs=replaces("destination", "sourceFileSystemId"),
    create=_create,
    read=_read,
    delete=_delete,
    complaints=_complaints,
    support=Support.FAKED,
    note="moto has no replication of file systems; the copy that AWS makes, and keeps afterwards, is not modelled",
)
