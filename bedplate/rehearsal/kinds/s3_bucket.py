"""S3 objects, buckets and replication between buckets."""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import call_parameters
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Limit,
    Number,
    Text,
    check_nested,
    checks,
    is_ipv4_address,
    resource_name,
    rollback,
    tag_pairs,
)
from bedplate.rehearsal.kinds.s3_settings import bucket_setting
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- Objects

_SEPARATE = ("content", "contentBase64", "forceDestroy", "tags", "kmsKeyId", "etag", "sourceHash")


def _create_object(aws: Aws, inputs: Props) -> str:
    text, encoded = inputs.get("content"), inputs.get("contentBase64")
    body = b64decode(encoded) if encoded is not None else str(text or "").encode()
    params = call_parameters(aws, ("s3", "put_object"), inputs, apart=_SEPARATE)
    if inputs.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=inputs["kmsKeyId"])
        params |= {"SSEKMSKeyId": inputs["kmsKeyId"], "ServerSideEncryption": "aws:kms"}
    aws.call("s3", "put_object", Body=body, **params)
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
        "etag": inputs.get("etag") or response["ETag"].strip('"'),
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
    inputs=updates("bucketKeyEnabled", "cacheControl", "content", "contentBase64", "contentDisposition")
    | updates("contentEncoding", "contentLanguage", "contentType", "etag", "forceDestroy", "kmsKeyId")
    | updates("metadata", "serverSideEncryption", "sourceHash", "storageClass", "tags")
    | replaces("bucket", "key"),
    defaults={"forceDestroy": False},
    computed=frozenset({"bucketKeyEnabled", "contentType", "etag", "kmsKeyId", "serverSideEncryption"})
    | {"storageClass"},
    changed_by_update=frozenset({"etag", "versionId"}),
    create=_create_object,
    read=_read_object,
    update=_update_object,
    delete=_delete_object,
    complaints=checks({"key": Text(1, 1024)}),
    note="`content` and `contentBase64` only: files and assets as a source are refused",
)


# --- Buckets

S3_ZONES: Mapping[str, str] = MappingProxyType(
    {
        "af-south-1": "Z83WF9RJE8B12",
        "ap-east-1": "ZNB98KWMFR0R6",
        "ap-east-2": "Z064739330DAH7WJVOO93",
        "ap-northeast-1": "Z2M4EHUR26P7ZW",
        "ap-northeast-2": "Z3W03O7B5YMIYP",
        "ap-northeast-3": "Z2YQB5RD63NC85",
        "ap-south-1": "Z11RGJOFQNVJUP",
        "ap-south-2": "Z02976202B4EZMXIPMXF7",
        "ap-southeast-1": "Z3O0J2DXBE1FTB",
        "ap-southeast-2": "Z1WCIGYICN2BYD",
        "ap-southeast-3": "Z01846753K324LI26A3VV",
        "ap-southeast-4": "Z0312387243XT5FE14WFO",
        "ap-southeast-5": "Z08660063OXLMA7F1FJHU",
        "ap-southeast-6": "Z05686083R66JX5C163TC",
        "ap-southeast-7": "Z0031014GXUMRZG6I14G",
        "ca-central-1": "Z1QDHH18159H29",
        "ca-west-1": "Z03565811Z33SLEZTHOUL",
        "eu-central-1": "Z21DNDUVLTQW6Q",
        "eu-central-2": "Z030506016YDQGETNASS",
        "eu-north-1": "Z3BAZG2TWCNX0D",
        "eu-south-1": "Z30OZKI7KPW7MI",
        "eu-south-2": "Z0081959F7139GRJC19J",
        "eu-west-1": "Z1BKCTXD74EZPE",
        "eu-west-2": "Z3GKZC51ZF0DB4",
        "eu-west-3": "Z3R1K369G5AVDG",
        "il-central-1": "Z09640613K4A3MN55U7GU",
        "me-central-1": "Z06143092I8HRXZRUZROF",
        "me-south-1": "Z1MPMWCPA7YB62",
        "mx-central-1": "Z057606446ZNVQJJ8WOP",
        "sa-east-1": "Z7KQH4QJS55SO",
        "us-east-1": "Z3AQBSTGFYJSTF",
        "us-east-2": "Z2O1EMRO9K5GLX",
        "us-west-1": "Z2F56UZL2M1ACD",
        "us-west-2": "Z3BJ6K6RIION7M",
    }
)
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
    name = resource_name(inputs, "bucket")
    _require_unused_name(aws, name)
    configuration = {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    lock = {"ObjectLockEnabledForBucket": True} if inputs.get("objectLockEnabled") else {}
    aws.call("s3", "create_bucket", Bucket=name, **({} if aws.region == "us-east-1" else configuration), **lock)
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
        "objectLockEnabled": bool(inputs.get("objectLockEnabled")),
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
        "hostedZoneId": S3_ZONES.get(region, ""),
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
    inputs=updates("forceDestroy", "tags") | replaces("bucket", "bucketPrefix", "objectLockEnabled"),
    defaults={"forceDestroy": False},
    computed=frozenset({"bucket", "bucketPrefix", "objectLockEnabled"}),
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
    filters = dict(block) or {"prefix": ""}
    if conditions := block.get("and"):
        filters = {"and": {**conditions, "tags": tag_pairs(conditions.get("tags"), ("key", "value"))}}
    return {"priority": 0, **rule, "filter": filters}


BUCKET_REPLICATION = bucket_setting(
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig",
    "bucket_replication",
    _replication,
    inputs=updates("role", "rules") | replaces("bucket"),
    complaints=_check_replication,
    note="objects are not copied; moto does not return filters",
)
