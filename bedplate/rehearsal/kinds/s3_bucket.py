"""S3 objects, buckets and replication between buckets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import call_with
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Limit,
    Number,
    Text,
    check_nested,
    checks,
    is_ipv4_address,
    rollback,
    tag_pairs,
)
from bedplate.rehearsal.kinds.s3_settings import bucket_setting
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- Objects


def _create_object(aws: Aws, inputs: Props) -> str:
    body = str(inputs.get("content") or "").encode()
    call_with(aws, ("s3", "put_object"), inputs, apart=("content", "tags"), Body=body)
    _retag(aws, "object", inputs, Bucket=inputs["bucket"], Key=inputs["key"])
    return f"{inputs['bucket']}/{inputs['key']}"


def _retag(aws: Aws, noun: str, inputs: Props, **target: str) -> None:
    """Give a bucket or an object exactly the tags of the inputs."""
    if inputs.get("tags"):
        aws.call("s3", f"put_{noun}_tagging", **target, Tagging={"TagSet": tag_pairs(inputs["tags"])})
    else:
        aws.call("s3", f"delete_{noun}_tagging", **target)


def _read_object(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    bucket, _, key = ident.partition("/")
    response = aws.call("s3", "head_object", Bucket=bucket, Key=key)
    version = response.get("VersionId", "")
    return {
        "arn": f"arn:aws:s3:::{bucket}/{key}",
        "contentType": response.get("ContentType", ""),
        "etag": response["ETag"].strip('"'),
        "serverSideEncryption": response.get("ServerSideEncryption", "AES256"),
        "storageClass": response.get("StorageClass", "STANDARD"),
        "versionId": "" if version == "null" else version,
    }


def _update_object(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if {**old, "tags": None} != {**new, "tags": None}:
        _create_object(aws, new)
    _retag(aws, "object", new, Bucket=new["bucket"], Key=new["key"])


def _delete_object(aws: Aws, ident: str, outputs: Props) -> None:
    bucket, _, key = ident.partition("/")
    _delete_versions(aws, bucket, key)


def _delete_versions(aws: Aws, bucket: str, key: str = "") -> None:
    """Delete the versions of an object; without a key, those of all objects."""
    response = aws.call("s3", "list_object_versions", Bucket=bucket, Prefix=key)
    for version in [*response.get("Versions", []), *response.get("DeleteMarkers", [])]:
        if key in ("", version["Key"]):
            aws.call("s3", "delete_object", Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])
    if response.get("IsTruncated") and not key:
        _delete_versions(aws, bucket)


BUCKET_OBJECT = ResourceKind(
    token="aws:s3/bucketObjectv2:BucketObjectv2",
    inputs=updates("content", "contentType", "tags") | replaces("bucket", "key"),
    computed=frozenset({"contentType"}),
    changed_by_update=frozenset({"etag", "versionId"}),
    create=_create_object,
    read=_read_object,
    update=_update_object,
    delete=_delete_object,
    complaints=checks({"key": Text(1, 1024)}),
    note="`content` only: files and assets as a source are refused",
)


# --- Buckets

# S3 user guide, "General purpose bucket naming rules".
_NAME_PATTERN = r"[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9]"
# S3 blocks public access to every new bucket; moto does not.
_BLOCK_PUBLIC_ACCESS = dict.fromkeys(
    ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
)
_RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
_RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def _check_bucket(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    name = inputs.get("bucket")
    if not is_known(name):
        return
    is_valid = re.fullmatch(_NAME_PATTERN, name) and ".." not in name and not is_ipv4_address(name)
    if not is_valid or name.startswith(_RESERVED_PREFIXES) or name.endswith(_RESERVED_SUFFIXES):
        yield InvalidInput("bucket", f"{name} must be 3 to 63 lower-case letters, digits and .- (InvalidBucketName)")


def _create_bucket(aws: Aws, inputs: Props) -> str:
    name = str(inputs["bucket"])
    _require_unused_name(aws, name)
    configuration = {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    aws.call("s3", "create_bucket", Bucket=name, **({} if aws.region == "us-east-1" else configuration))
    with rollback(lambda: _delete_bucket(aws, name, inputs)):
        aws.call("s3", "put_public_access_block", Bucket=name, PublicAccessBlockConfiguration=_BLOCK_PUBLIC_ACCESS)
        _retag(aws, "bucket", inputs, Bucket=name)
    return name


def _require_unused_name(aws: Aws, name: str) -> None:
    """Raise ResourceError for a bucket of this account; only in us-east-1 the call itself would succeed."""
    if name in [bucket["Name"] for bucket in aws.call("s3", "list_buckets")["Buckets"]]:
        raise ResourceError(
            "BucketAlreadyOwnedByYou", f"The bucket {name} already exists in this account", key="bucket"
        )


def _read_bucket(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call("s3", "head_bucket", Bucket=ident)
    status = aws.call("s3", "get_bucket_versioning", Bucket=ident).get("Status")
    return {
        **bucket_names(ident, aws.region),
        "bucket": ident,
        "requestPayer": "BucketOwner",
        "versioning": {"enabled": status == "Enabled", "mfaDelete": False},
    }


def bucket_names(bucket: str, region: str) -> dict[str, str]:
    """Return the outputs that follow from the name and the region of a bucket."""
    return {
        "arn": f"arn:aws:s3:::{bucket}",
        "bucketDomainName": f"{bucket}.s3.amazonaws.com",
        "bucketRegion": region,
        "bucketRegionalDomainName": f"{bucket}.s3.{region}.amazonaws.com",
    }


def _update_bucket(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("tags") != new.get("tags"):
        _retag(aws, "bucket", new, Bucket=ident)


def _delete_bucket(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("forceDestroy"):
        _delete_versions(aws, ident)
    aws.call("s3", "delete_bucket", Bucket=ident)


BUCKET = ResourceKind(
    token="aws:s3/bucket:Bucket",
    inputs=updates("forceDestroy", "tags") | replaces("bucket"),
    defaults={"forceDestroy": False},
    naming=Naming(key="bucket", longest=63, lower=True),
    create=_create_bucket,
    read=_read_bucket,
    update=_update_bucket,
    delete=_delete_bucket,
    complaints=_check_bucket,
    note="versioning, encryption, policy and other settings are separate resources, not inputs",
)


# --- Replication

_ON_OFF = {"status": Choice(("Enabled", "Disabled"))}
_DELAY = {"minutes": Number(15, 15)}  # the only value that S3 takes
_REPLICATION_LIMITS: Mapping[str, Mapping[str, Limit]] = {
    "rules": {**_ON_OFF, "id": Text(0, 255), "priority": Number(0, 2147483647)},
    "rules.deleteMarkerReplication": _ON_OFF,
    "rules.destination.metrics": _ON_OFF,
    "rules.destination.metrics.eventThreshold": _DELAY,
    "rules.destination.replicationTime": _ON_OFF,
    "rules.destination.replicationTime.time": _DELAY,
    "rules.sourceSelectionCriteria.replicaModifications": _ON_OFF,
    "rules.sourceSelectionCriteria.sseKmsEncryptedObjects": _ON_OFF,
}
_BUCKET_ARN = "arn:aws:s3:::"


def _check_replication(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    for path, limits in _REPLICATION_LIMITS.items():
        yield from check_nested(inputs, path, limits)
    value = inputs.get("rules")
    rules = [rule for rule in value if isinstance(rule, Mapping)] if isinstance(value, list) else []
    for number, rule in enumerate(rules):
        yield from (InvalidInput(f"rules[{number}]", reason) for reason in _rule_errors(rule))
    priorities = [rule.get("priority") or 0 for rule in rules]
    if is_known(priorities) and len(set(priorities)) < len(priorities):
        yield InvalidInput("rules", f"must have different priorities, not {priorities}")


def _rule_errors(rule: Props) -> Iterator[str]:
    """Yield an error for each invalid combination of fields in a rule."""
    has_filter, has_markers = rule.get("filter") is not None, rule.get("deleteMarkerReplication") is not None
    if has_filter != has_markers:
        yield "must set filter and deleteMarkerReplication together"
    destination, criteria = rule.get("destination"), rule.get("sourceSelectionCriteria")
    if not is_known(destination):
        return
    if not str(destination.get("bucket")).startswith(_BUCKET_ARN):
        yield f"must have the ARN of a bucket as destination, not {destination.get('bucket')!r}"
    encrypted = bool(destination.get("encryptionConfiguration"))
    if encrypted != bool(isinstance(criteria, Mapping) and criteria.get("sseKmsEncryptedObjects")):
        yield "must set encryptionConfiguration and sseKmsEncryptedObjects together"
    if destination.get("replicationTime") and not destination.get("metrics"):
        yield "must set metrics with replicationTime"


def _replication(aws: Aws, inputs: Props) -> Props:
    """Return the rules that are put; raise ResourceError if S3 would not copy."""
    _require_versioning(aws, inputs["bucket"], "Versioning must be 'Enabled' on the bucket")
    _require_role(aws, inputs["role"])
    for rule in inputs["rules"]:
        _require_destination(aws, rule["destination"])
    rules = [_rule_values(rule) for rule in inputs["rules"]]
    return {"replicationConfiguration": {"role": inputs["role"], "rules": rules}}


def _require_versioning(aws: Aws, bucket: str, message: str) -> None:
    if aws.call("s3", "get_bucket_versioning", Bucket=bucket).get("Status") != "Enabled":
        raise ResourceError("InvalidRequest", f"{message} {bucket}")


def _require_role(aws: Aws, arn: str) -> None:
    """Raise ResourceError for a role that does not exist, or does not trust S3: S3 would accept it and copy nothing."""
    role = aws.call("iam", "get_role", RoleName=str(arn).rpartition("/")[2])["Role"]
    if "s3.amazonaws.com" not in str(role["AssumeRolePolicyDocument"]):
        raise ResourceError("InvalidRequest", f"{arn} does not trust s3.amazonaws.com", key="role")


def _require_destination(aws: Aws, destination: Props) -> None:
    bucket = str(destination["bucket"]).removeprefix(_BUCKET_ARN)
    try:
        _require_versioning(aws, bucket, "Destination bucket must have versioning enabled:")
    except ResourceError as refusal:
        if refusal.code == "NoSuchBucket":
            raise ResourceError("InvalidRequest", f"Destination bucket must exist: {bucket}") from None
        raise
    if key := (destination.get("encryptionConfiguration") or {}).get("replicaKmsKeyId"):
        # The key is in the region of the destination: its ARN has it.
        aws.in_region(str(key).split(":")[3]).call("kms", "describe_key", KeyId=key)


def _rule_values(rule: Props) -> dict[str, Any]:
    """Return a rule as the provider sends it: a priority with a filter, a prefix without one."""
    if (block := rule.get("filter")) is None:
        return {"prefix": "", **rule}
    return {"priority": 0, **rule, "filter": block or {"prefix": ""}}


BUCKET_REPLICATION = bucket_setting(
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig",
    "bucket_replication",
    _replication,
    inputs=updates("role", "rules") | replaces("bucket"),
    complaints=_check_replication,
    note="objects are not copied; moto does not return filters",
)
