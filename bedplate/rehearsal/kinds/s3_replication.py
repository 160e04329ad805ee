"""Replication of a bucket's objects to buckets of other regions.

What AWS asks for before it takes a configuration: Amazon S3 user guide, "Requirements and considerations for
replication", 2026-07.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, Text, inside
from bedplate.rehearsal.placement import structure
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_ON_OFF = {"status": Choice(("Enabled", "Disabled"))}
_QUARTER = {"minutes": Number(15, 15)}  # the one delay that S3 promises
_LIMITS: Mapping[str, Mapping[str, Limit]] = {
    "rules": {**_ON_OFF, "id": Text(0, 255), "priority": Number(0, 2147483647)},
    "rules.deleteMarkerReplication": _ON_OFF,
    "rules.destination.metrics": _ON_OFF,
    "rules.destination.metrics.eventThreshold": _QUARTER,
    "rules.destination.replicationTime": _ON_OFF,
    "rules.destination.replicationTime.time": _QUARTER,
    "rules.sourceSelectionCriteria.replicaModifications": _ON_OFF,
    "rules.sourceSelectionCriteria.sseKmsEncryptedObjects": _ON_OFF,
}
_RENAMES = {"id": "ID", "replicaKmsKeyId": "ReplicaKmsKeyID"}
_BUCKET_ARN = "arn:aws:s3:::"


def _put(aws: Aws, inputs: Props) -> None:
    _require_versions(aws, inputs["bucket"], "Versioning must be 'Enabled' on the bucket")
    _require_role(aws, inputs["role"])
    for rule in inputs["rules"]:
        _require_destination(aws, rule["destination"])
    shape: Any = aws.shape("s3", "put_bucket_replication").members["ReplicationConfiguration"]
    wanted = {"role": inputs["role"], "rules": [_as_sent(rule) for rule in inputs["rules"]]}
    config = structure(shape, wanted, _RENAMES)
    aws.call("s3", "put_bucket_replication", Bucket=inputs["bucket"], ReplicationConfiguration=config)


def _require_versions(aws: Aws, bucket: str, told: str) -> None:
    if aws.call("s3", "get_bucket_versioning", Bucket=bucket).get("Status") != "Enabled":
        raise Refusal("InvalidRequest", f"{told} {bucket}")


def _require_role(aws: Aws, arn: str) -> None:
    """Refuse a role that is not there, or that S3 may not take: S3 takes the configuration, and copies nothing."""
    role = aws.call("iam", "get_role", RoleName=str(arn).rpartition("/")[2])["Role"]
    if "s3.amazonaws.com" not in str(role["AssumeRolePolicyDocument"]):
        raise Refusal("InvalidRequest", f"{arn} does not trust s3.amazonaws.com", key="role")


def _require_destination(aws: Aws, destination: Props) -> None:
    bucket = str(destination["bucket"]).removeprefix(_BUCKET_ARN)
    try:
        _require_versions(aws, bucket, "Destination bucket must have versioning enabled:")
    except Refusal as refusal:
        if refusal.code == "NoSuchBucket":
            raise Refusal("InvalidRequest", f"Destination bucket must exist: {bucket}") from None
        raise
    if key := (destination.get("encryptionConfiguration") or {}).get("replicaKmsKeyId"):
        # Of the destination's region: its ARN says which.
        aws.elsewhere(str(key).split(":")[3]).call("kms", "describe_key", KeyId=key)


def _as_sent(rule: Props) -> dict[str, Any]:
    """Return a rule as the provider sends it: with a filter it has a priority, without one a prefix."""
    if (given := rule.get("filter")) is None:
        return {"prefix": "", **rule}
    return {"priority": 0, **rule, "filter": _filter(given)}


def _filter(given: Props) -> dict[str, Any]:
    both = given.get("and")
    if not both:
        return dict(given) or {"prefix": ""}
    tags = [{"key": key, "value": value} for key, value in sorted((both.get("tags") or {}).items())]
    return {"and": {**both, "tags": tags}}


def _create(aws: Aws, inputs: Props) -> str:
    aws.call("s3", "head_bucket", Bucket=inputs["bucket"])
    _put(aws, inputs)
    return str(inputs["bucket"])


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _put(aws, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call("s3", "get_bucket_replication", Bucket=ident)
    return {"bucket": ident}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("s3", "delete_bucket_replication", Bucket=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    for path, limits in _LIMITS.items():
        yield from inside(inputs, path, limits)
    given = inputs.get("rules")
    rules = [rule for rule in given if isinstance(rule, Mapping)] if isinstance(given, list) else []
    for number, rule in enumerate(rules):
        yield from (Complaint(f"rules[{number}]", reason) for reason in _faults(rule))
    ranks = [rule.get("priority") or 0 for rule in rules]
    if is_known(ranks) and len(set(ranks)) < len(ranks):
        yield Complaint("rules", f"rules need priorities of their own, and have {ranks}")


def _faults(rule: Props) -> Iterator[str]:
    """Yield what does not go together in a rule."""
    newer, marks = rule.get("filter") is not None, rule.get("deleteMarkerReplication") is not None
    if newer != marks:
        yield "a rule with a filter says what becomes of delete markers, and no other does"
    destination, criteria = rule.get("destination"), rule.get("sourceSelectionCriteria")
    if not is_known(destination):
        return
    if not str(destination.get("bucket")).startswith(_BUCKET_ARN):
        yield f"the destination is the ARN of a bucket, not {destination.get('bucket')!r}"
    encrypted = bool(destination.get("encryptionConfiguration"))
    if encrypted != bool(isinstance(criteria, Mapping) and criteria.get("sseKmsEncryptedObjects")):
        yield "a key for the copies and sseKmsEncryptedObjects need one another"
    if destination.get("replicationTime") and not destination.get("metrics"):
        yield "replicationTime needs metrics"


BUCKET_REPLICATION = Kind(
    token="aws:s3/bucketReplicationConfig:BucketReplicationConfig",
    inputs=updates("role", "rules") | replaces("bucket"),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="objects are not copied; moto tells no filters back",
)
