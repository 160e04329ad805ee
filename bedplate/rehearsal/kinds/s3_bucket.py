"""S3 buckets."""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address
from types import MappingProxyType
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, Text, beyond, chosen_name, inside, tag_pairs, undoing
from bedplate.rehearsal.placement import placed, structure
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_APART = ("content", "contentBase64", "forceDestroy", "tags", "kmsKeyId", "etag", "sourceHash")


def _put(aws: Aws, inputs: Props) -> str:
    text, coded = inputs.get("content"), inputs.get("contentBase64")
    body = b64decode(coded) if coded is not None else str(text or "").encode()
    params = placed(aws, ("s3", "put_object"), inputs, apart=_APART)
    if inputs.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=inputs["kmsKeyId"])
        params |= {"SSEKMSKeyId": inputs["kmsKeyId"], "ServerSideEncryption": "aws:kms"}
    aws.call("s3", "put_object", Body=body, **params)
    _tag_object(aws, inputs)
    return f"{inputs['bucket']}/{inputs['key']}"


def _tag_object(aws: Aws, inputs: Props) -> None:
    where = {"Bucket": inputs["bucket"], "Key": inputs["key"]}
    if inputs.get("tags"):
        aws.call("s3", "put_object_tagging", **where, Tagging={"TagSet": tag_pairs(inputs["tags"])})
    else:
        aws.call("s3", "delete_object_tagging", **where)


def _s3_object_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if {**old, "tags": None} != {**new, "tags": None}:
        _put(aws, new)
    _tag_object(aws, new)


def _s3_object_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    bucket, _, key = ident.partition("/")
    found = aws.call("s3", "head_object", Bucket=bucket, Key=key)
    version = found.get("VersionId", "")
    return {
        "arn": f"arn:aws:s3:::{bucket}/{key}",
        "contentType": found.get("ContentType", ""),
        "etag": inputs.get("etag") or found["ETag"].strip('"'),
        "serverSideEncryption": found.get("ServerSideEncryption", "AES256"),
        "storageClass": found.get("StorageClass", "STANDARD"),
        "versionId": "" if version == "null" else version,
    }


def _s3_object_delete(aws: Aws, ident: str, outputs: Props) -> None:
    bucket, _, key = ident.partition("/")
    found = aws.call("s3", "list_object_versions", Bucket=bucket, Prefix=key)
    for one in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]:
        if one["Key"] == key:
            aws.call("s3", "delete_object", Bucket=bucket, Key=key, VersionId=one["VersionId"])


def _s3_object_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"key": Text(1, 1024)})


BUCKET_OBJECT = Kind(
    token="aws:s3/bucketObjectv2:BucketObjectv2",
    inputs=updates("bucketKeyEnabled", "cacheControl", "content", "contentBase64", "contentDisposition")
    | updates("contentEncoding", "contentLanguage", "contentType", "etag", "forceDestroy", "kmsKeyId")
    | updates("metadata", "serverSideEncryption", "sourceHash", "storageClass", "tags")
    | replaces("bucket", "key"),
    defaults={"forceDestroy": False},
    computed=frozenset({"bucketKeyEnabled", "contentType", "etag", "kmsKeyId", "serverSideEncryption"})
    | {"storageClass"},
    moves=frozenset({"etag", "versionId"}),
    create=_put,
    read=_s3_object_read,
    update=_s3_object_update,
    delete=_s3_object_delete,
    complaints=_s3_object_complaints,
    note="content given in place; files and assets as a source are refused",
)


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
_NAME = r"[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9]"
# S3 shuts every new bucket to the public; moto leaves it open.
_BORN_SHUT = dict.fromkeys(("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True)
_BAD_STARTS = ("xn--", "sthree-", "amzn-s3-demo-")
_BAD_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def _create(aws: Aws, inputs: Props) -> str:
    name = chosen_name(inputs, "bucket")
    _refuse_taken(aws, name)
    place = {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    lock = {"ObjectLockEnabledForBucket": True} if inputs.get("objectLockEnabled") else {}
    aws.call("s3", "create_bucket", Bucket=name, **({} if aws.region == "us-east-1" else place), **lock)
    with undoing(lambda: _delete(aws, name, inputs)):
        aws.call("s3", "put_public_access_block", Bucket=name, PublicAccessBlockConfiguration=_BORN_SHUT)
        _retag(aws, name, inputs)
    return name


def _refuse_taken(aws: Aws, name: str) -> None:
    """Refuse a name that the account has: us-east-1 alone would answer as if it had just made the bucket."""
    if name in [bucket["Name"] for bucket in aws.call("s3", "list_buckets")["Buckets"]]:
        raise Refusal("BucketAlreadyOwnedByYou", f"bucket {name} exists and is yours", key="bucket")


def _retag(aws: Aws, name: str, inputs: Props) -> None:
    if inputs.get("tags"):
        aws.call("s3", "put_bucket_tagging", Bucket=name, Tagging={"TagSet": tag_pairs(inputs["tags"])})
    else:
        aws.call("s3", "delete_bucket_tagging", Bucket=name)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("tags") != new.get("tags"):
        _retag(aws, ident, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call("s3", "head_bucket", Bucket=ident)
    status = aws.call("s3", "get_bucket_versioning", Bucket=ident).get("Status")
    return {
        "arn": f"arn:aws:s3:::{ident}",
        "bucket": ident,
        "bucketDomainName": f"{ident}.s3.amazonaws.com",
        "bucketRegion": aws.region,
        "bucketRegionalDomainName": f"{ident}.s3.{aws.region}.amazonaws.com",
        "hostedZoneId": S3_ZONES.get(aws.region, ""),
        "objectLockEnabled": bool(inputs.get("objectLockEnabled")),
        "requestPayer": "BucketOwner",
        "versioning": {"enabled": status == "Enabled", "mfaDelete": False},
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("forceDestroy"):
        _empty(aws, ident)
    aws.call("s3", "delete_bucket", Bucket=ident)


def _empty(aws: Aws, ident: str) -> None:
    found = aws.call("s3", "list_object_versions", Bucket=ident)
    for one in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]:
        aws.call("s3", "delete_object", Bucket=ident, Key=one["Key"], VersionId=one["VersionId"])
    if found.get("IsTruncated"):
        _empty(aws, ident)


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except AddressValueError:
        return False
    return True


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    name = inputs.get("bucket")
    if not is_known(name):
        return
    sound = re.fullmatch(_NAME, name) and ".." not in name and not _is_address(name)
    if not sound or name.startswith(_BAD_STARTS) or name.endswith(_BAD_ENDS):
        yield Complaint("bucket", f"InvalidBucketName: {name} (3 to 63 of lower-case letters, digits and .-)")


BUCKET = Kind(
    token="aws:s3/bucket:Bucket",
    inputs=updates("forceDestroy", "tags") | replaces("bucket", "bucketPrefix", "objectLockEnabled"),
    defaults={"forceDestroy": False},
    computed=frozenset({"bucket", "bucketPrefix", "objectLockEnabled"}),
    naming=Naming(key="bucket", longest=63, lower=True),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="versioning, encryption, policy and the like by their own resources, not by the bucket's inputs",
)


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


def _s3_replication_put(aws: Aws, inputs: Props) -> None:
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


def _s3_replication_create(aws: Aws, inputs: Props) -> str:
    aws.call("s3", "head_bucket", Bucket=inputs["bucket"])
    _s3_replication_put(aws, inputs)
    return str(inputs["bucket"])


def _s3_replication_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _s3_replication_put(aws, new)


def _s3_replication_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call("s3", "get_bucket_replication", Bucket=ident)
    return {"bucket": ident}


def _s3_replication_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("s3", "delete_bucket_replication", Bucket=ident)


def _s3_replication_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
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
    create=_s3_replication_create,
    read=_s3_replication_read,
    update=_s3_replication_update,
    delete=_s3_replication_delete,
    complaints=_s3_replication_complaints,
    note="objects are not copied; moto tells no filters back",
)
