"""Settings of S3 buckets that are separate resources: versioning, encryption, policy, lifecycle and others.

Each setting has one call to put it, one to read it and one to remove it: `bucket_setting` makes its row.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import call_with
from bedplate.rehearsal.kinds.iam import (
    BUCKET_FORM,
    allows_everyone,
    check_policy,
    foreign_resources,
    require_principals,
)
from bedplate.rehearsal.kinds.limits import Absent, Choice, Limit, Number, check_limits, check_nested, checks
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

_ACTIONS = (
    "abortIncompleteMultipartUpload",
    "expiration",
    "noncurrentVersionExpiration",
)
_UNMODELLED = dict.fromkeys(("noncurrentVersionTransitions", "transitions"), Absent())
_ACTION_LIMITS: Mapping[str, Mapping[str, Limit]] = {
    "abortIncompleteMultipartUpload": {"daysAfterInitiation": Number(1, math.inf)},
    "expiration": {"days": Number(1, math.inf)},
    "noncurrentVersionExpiration": {"noncurrentDays": Number(1, math.inf)},
}
_MAX_RULES, _MAX_NAME_LENGTH = 1000, 255


def _rule_values(rule: Mapping[str, Any]) -> dict[str, Any]:
    # S3 requires a filter: an empty prefix matches every object.
    return {**rule, "filter": rule.get("filter") or {"prefix": ""}}


def _check_lifecycle(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for too many rules, duplicate or long ids, invalid ages, and rules without an action."""
    rules = inputs.get("rules")
    if not is_known(rules):
        return
    names = [rule["id"] for rule in rules]
    if len(rules) > _MAX_RULES:
        yield InvalidInput("rules", f"has {len(rules)} rules, at most {_MAX_RULES} are allowed")
    for number, rule in enumerate(rules):
        if names.count(rule["id"]) > 1 or len(rule["id"]) > _MAX_NAME_LENGTH:
            yield InvalidInput(
                f"rules[{number}].id",
                f"{rule['id'][:40]} must be unique and have at most {_MAX_NAME_LENGTH} characters",
            )
        if rule.get("status") not in ("Enabled", "Disabled"):
            yield InvalidInput(f"rules[{number}].status", "must be 'Enabled' or 'Disabled'")
        for error in (*check_limits(rule, _UNMODELLED), *_check_ages(rule)):
            yield InvalidInput(f"rules[{number}].{error.key}", error.reason)
        if not any(rule.get(action) for action in _ACTIONS):
            yield InvalidInput(f"rules[{number}]", "must have an action (MalformedXML)")


def _check_ages(rule: Mapping[str, Any]) -> Iterator[InvalidInput]:
    """Yield an error for each invalid age of a rule."""
    for action, limits in _ACTION_LIMITS.items():
        yield from check_nested(rule, action, limits)
    expiry = rule.get("expiration") or {}
    if sum(bool(expiry.get(key)) for key in ("date", "days", "expiredObjectDeleteMarker")) != 1 and expiry:
        yield InvalidInput("expiration", "must set one of days, date, expiredObjectDeleteMarker (MalformedXML)")


def bucket_setting(
    token: str,
    setting: str,
    values: Callable[[Aws, Props], Props],
    remove_call: tuple[str, Mapping[str, Any]] | None = None,
    **options: Any,  # noqa: ANN401
) -> ResourceKind:
    """Return the row of a setting with the calls `put_*`, `get_*` and, unless another call removes it, `delete_*`.

    `values` returns what is put, in the names of the schema.
    """
    remove_operation, removed = remove_call or (f"delete_{setting}", {})

    def put_setting(aws: Aws, inputs: Props) -> None:
        aws.call("s3", "head_bucket", Bucket=inputs["bucket"])
        call_with(aws, ("s3", f"put_{setting}"), values(aws, inputs), Bucket=inputs["bucket"])

    def create(aws: Aws, inputs: Props) -> str:
        put_setting(aws, inputs)
        return str(inputs["bucket"])

    def update(aws: Aws, ident: str, old: Props, new: Props) -> None:
        put_setting(aws, new)

    def read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
        if not aws.call("s3", f"get_{setting}", Bucket=ident).keys() - {"ResponseMetadata"}:
            raise ResourceError("NotFound", f"The bucket {ident} does not have this setting")
        return {"bucket": ident}

    def delete(aws: Aws, ident: str, outputs: Props) -> None:
        aws.call("s3", remove_operation, Bucket=ident, **removed)

    return ResourceKind(token=token, create=create, read=read, update=update, delete=delete, **options)


_VERSIONING_LIMITS = {
    "status": Choice(("Enabled", "Suspended", "Disabled")),
    "mfaDelete": Choice(("Enabled", "Disabled")),
}
BUCKET_VERSIONING = bucket_setting(
    "aws:s3/bucketVersioning:BucketVersioning",
    "bucket_versioning",
    lambda _, inputs: {"versioningConfiguration": inputs["versioningConfiguration"]},
    # Versioning can be suspended, never removed.
    ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "Suspended"}}),
    inputs=updates("versioningConfiguration") | replaces("bucket"),
    complaints=checks({}, partial(check_nested, path="versioningConfiguration", limits=_VERSIONING_LIMITS)),
)


def _encryption(aws: Aws, inputs: Props) -> Props:
    for rule in inputs["rules"]:
        key = (rule.get("applyServerSideEncryptionByDefault") or {}).get("kmsMasterKeyId")
        if key:
            # S3 accepts a key that does not exist, and then refuses to store objects.
            aws.call("kms", "describe_key", KeyId=key)
    return {"serverSideEncryptionConfiguration": {"rules": inputs["rules"]}}


def _check_encryption(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    path = "rules.applyServerSideEncryptionByDefault"
    yield from check_nested(inputs, path, {"sseAlgorithm": Choice(("AES256", "aws:kms", "aws:kms:dsse"))})
    rules = inputs.get("rules")
    for rule in rules if is_known(rules) else []:
        default = rule.get("applyServerSideEncryptionByDefault") or {}
        if default.get("sseAlgorithm") == "AES256" and default.get("kmsMasterKeyId"):
            yield InvalidInput(f"{path}.kmsMasterKeyId", "conflicts with sseAlgorithm AES256")


BUCKET_ENCRYPTION = bucket_setting(
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "bucket_encryption",
    _encryption,
    inputs=updates("rules") | replaces("bucket"),
    sets=frozenset({"rules"}),
    complaints=_check_encryption,
)

_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
BUCKET_PUBLIC_ACCESS_BLOCK = bucket_setting(
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    "public_access_block",
    lambda _, inputs: {"publicAccessBlockConfiguration": {key: bool(inputs.get(key)) for key in _BLOCKS}},
    inputs=updates(*_BLOCKS) | replaces("bucket"),
    defaults=dict.fromkeys(_BLOCKS, False),
)

_OWNERSHIP_LIMITS = {"objectOwnership": Choice(("BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"))}
BUCKET_OWNERSHIP_CONTROLS = bucket_setting(
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
    "bucket_ownership_controls",
    lambda _, inputs: {"ownershipControls": {"rules": [inputs["rule"]]}},
    inputs=updates("rule") | replaces("bucket"),
    complaints=checks({}, partial(check_nested, path="rule", limits=_OWNERSHIP_LIMITS)),
)


def _policy(aws: Aws, inputs: Props) -> Props:
    document, bucket = inputs["policy"], inputs["bucket"]
    require_principals(aws, document, "MalformedPolicy")
    if foreign := foreign_resources(document, f"arn:aws:s3:::{bucket}"):
        raise ResourceError("MalformedPolicy", f"Policy has invalid resource: {foreign[0]}", key="policy")
    if allows_everyone(document) and _blocks_public_policy(aws, bucket):
        message = "public policies are prevented by the BlockPublicPolicy setting in S3 Block Public Access"
        raise ResourceError("AccessDenied", message, key="policy")
    return {"policy": document}


def _blocks_public_policy(aws: Aws, bucket: str) -> bool:
    """Tell whether a bucket refuses public policies."""
    try:
        configuration = aws.call("s3", "get_public_access_block", Bucket=bucket)["PublicAccessBlockConfiguration"]
    except ResourceError:
        return False
    return bool(configuration["BlockPublicPolicy"])


BUCKET_POLICY = bucket_setting(
    "aws:s3/bucketPolicy:BucketPolicy",
    "bucket_policy",
    _policy,
    inputs=updates("policy") | replaces("bucket"),
    complaints=checks({}, partial(check_policy, form=BUCKET_FORM)),
)

BUCKET_LIFECYCLE = bucket_setting(
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    "bucket_lifecycle_configuration",
    lambda _, inputs: {"lifecycleConfiguration": {"rules": list(map(_rule_values, inputs["rules"]))}},
    ("delete_bucket_lifecycle", {}),
    inputs=updates("rules") | replaces("bucket"),
    complaints=_check_lifecycle,
)
