"""S3 buckets."""

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.s3_regions import S3_ZONES
from bedplate.rehearsal.kinds.tagging import tag_pairs
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

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
