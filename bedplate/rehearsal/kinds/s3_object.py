"""Objects that a program itself puts into an S3 bucket."""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Text, beyond
from bedplate.rehearsal.kinds.tagging import tag_pairs
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws

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


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if {**old, "tags": None} != {**new, "tags": None}:
        _put(aws, new)
    _tag_object(aws, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
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


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    bucket, _, key = ident.partition("/")
    found = aws.call("s3", "list_object_versions", Bucket=bucket, Prefix=key)
    for one in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]:
        if one["Key"] == key:
            aws.call("s3", "delete_object", Bucket=bucket, Key=key, VersionId=one["VersionId"])


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
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
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="content given in place; files and assets as a source are refused",
)
