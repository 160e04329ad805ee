"""What is set on an S3 bucket by a resource of its own: one row a setting, all of the same few calls."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, inside, tag_pairs
from bedplate.rehearsal.kinds.policy_document import BUCKET, invites_everybody, malformed, refuse_strangers, strays
from bedplate.rehearsal.placement import structure
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

LIFECYCLE_DEFAULTS = {"transitionDefaultMinimumObjectSize": "all_storage_classes_128K"}
_ACTIONS = (
    "abortIncompleteMultipartUpload",
    "expiration",
    "noncurrentVersionExpiration",
    "noncurrentVersionTransitions",
    "transitions",
)
# S3 user guide, "Transitioning objects": a day is the least, and a month for infrequent access.
_CLASSES = ("DEEP_ARCHIVE", "GLACIER", "GLACIER_IR", "INTELLIGENT_TIERING", "ONEZONE_IA", "STANDARD_IA")
_AGES: Mapping[str, Mapping[str, Limit]] = {
    "abortIncompleteMultipartUpload": {"daysAfterInitiation": Number(1, math.inf)},
    "expiration": {"days": Number(1, math.inf)},
    "noncurrentVersionExpiration": {"noncurrentDays": Number(1, math.inf)},
    "noncurrentVersionTransitions": {"storageClass": Choice(_CLASSES)},
    "transitions": {"storageClass": Choice(_CLASSES)},
}
_IN_USE = {"ONEZONE_IA": 30, "STANDARD_IA": 30}  # days in which S3 moves nothing to these classes
_MOST_RULES, _LONGEST_NAME = 1000, 255


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    # A rule without a filter is for every object, which S3 wants said.
    chosen = dict(rule.get("filter") or {"prefix": rule.get("prefix") or ""})
    both = chosen.get("and")
    if both and both.get("tags"):
        chosen["and"] = {**both, "tags": tag_pairs(both["tags"])}
    return {**{key: value for key, value in rule.items() if key != "prefix"}, "filter": chosen}


def lifecycle_params(aws: Aws, inputs: Props) -> dict[str, Any]:
    """Return the parameters of the call that sets the rules."""
    shape = aws.shape("s3", "put_bucket_lifecycle_configuration")
    wanted = {"lifecycleConfiguration": {"rules": [_rule(rule) for rule in inputs["rules"]]}}
    return structure(shape, wanted, {})


def lifecycle_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    """Yield what S3 refuses of rules: too many, names that are too long or twice there, rules that do nothing."""
    rules = inputs.get("rules")
    if not is_known(rules):
        return
    names = [rule["id"] for rule in rules]
    if len(rules) > _MOST_RULES:
        yield Complaint("rules", f"a bucket has at most {_MOST_RULES} rules")
    for number, rule in enumerate(rules):
        if names.count(rule["id"]) > 1 or len(rule["id"]) > _LONGEST_NAME:
            yield Complaint(f"rules[{number}].id", f"{rule['id'][:40]} is there twice or too long")
        if rule.get("status") not in ("Enabled", "Disabled"):
            yield Complaint(f"rules[{number}].status", "expected one of ['Enabled', 'Disabled']")
        yield from _age_complaints(rule, number)
        if not any(rule.get(action) for action in _ACTIONS):
            yield Complaint(f"rules[{number}]", "MalformedXML: a rule has at least one action")


def _age_complaints(rule: Mapping[str, Any], number: int) -> Iterator[Complaint]:
    """Yield the ages at which a rule may not act, and the classes that there are not."""
    for action, limits in _AGES.items():
        for found in inside(rule, action, limits):
            yield Complaint(f"rules[{number}].{found.key}", found.reason)
    expiry = rule.get("expiration") or {}
    if sum(bool(expiry.get(key)) for key in ("date", "days", "expiredObjectDeleteMarker")) != 1 and expiry:
        yield Complaint(
            f"rules[{number}].expiration", "MalformedXML: give one of days, date, expiredObjectDeleteMarker"
        )
    for move in rule.get("transitions") or []:
        least = _IN_USE.get(str(move.get("storageClass")), 0)
        if move.get("days") is not None and move["days"] < least:
            yield Complaint(
                f"rules[{number}].transitions", f"to {move['storageClass']} at the earliest after {least} days"
            )


Params = Callable[[Aws, Props], dict[str, Any]]
Call = tuple[str, Mapping[str, Any]]


def _setting(token: str, put: tuple[str, Params], read: str, drop: Call, **more: Any) -> Kind:  # noqa: ANN401
    """Return the row of a setting: how it is put, read, and taken back when the resource is deleted."""

    def put_on(aws: Aws, inputs: Props) -> None:
        aws.call("s3", "head_bucket", Bucket=inputs["bucket"])
        aws.call("s3", put[0], Bucket=inputs["bucket"], **put[1](aws, inputs))

    def create(aws: Aws, inputs: Props) -> str:
        put_on(aws, inputs)
        return str(inputs["bucket"])

    def update(aws: Aws, ident: str, old: Props, new: Props) -> None:
        put_on(aws, new)

    def found(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
        if not aws.call("s3", read, Bucket=ident).keys() - {"ResponseMetadata"}:
            raise Refusal("NotFound", f"{ident} has none")
        return {"bucket": ident}

    def delete(aws: Aws, ident: str, outputs: Props) -> None:
        aws.call("s3", drop[0], Bucket=ident, **drop[1])

    return Kind(token=token, create=create, read=found, update=update, delete=delete, **more)


def _within(path: str, limits: Mapping[str, Limit]) -> Callable[[Aws, Props], Iterator[Complaint]]:
    """Return the rules of a setting whose words at a path are of a few."""

    def complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
        yield from inside(inputs, path, limits)

    return complaints


def _versioning(aws: Aws, inputs: Props) -> dict[str, Any]:
    given = inputs["versioningConfiguration"]
    wanted = {"Status": given["status"], "MFADelete": given.get("mfaDelete")}
    return {"VersioningConfiguration": {key: value for key, value in wanted.items() if value}}


BUCKET_VERSIONING = _setting(
    "aws:s3/bucketVersioning:BucketVersioning",
    ("put_bucket_versioning", _versioning),
    "get_bucket_versioning",
    # What was once versioned can only be suspended.
    ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "Suspended"}}),
    inputs=updates("mfa", "versioningConfiguration") | replaces("bucket", "expectedBucketOwner"),
    complaints=_within(
        "versioningConfiguration",
        {"status": Choice(("Enabled", "Suspended", "Disabled")), "mfaDelete": Choice(("Enabled", "Disabled"))},
    ),
)


def _encryption(aws: Aws, inputs: Props) -> dict[str, Any]:
    shape = aws.shape("s3", "put_bucket_encryption")
    renames = {"kmsMasterKeyId": "KMSMasterKeyID", "sseAlgorithm": "SSEAlgorithm"}
    for rule in inputs["rules"]:
        key = (rule.get("applyServerSideEncryptionByDefault") or {}).get("kmsMasterKeyId")
        if key:
            # S3 takes a key that does not exist, and then no object can be written.
            aws.call("kms", "describe_key", KeyId=key)
    wanted = {"serverSideEncryptionConfiguration": {"rules": inputs["rules"]}}
    return structure(shape, wanted, renames)


def _encryption_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    path = "rules.applyServerSideEncryptionByDefault"
    yield from inside(inputs, path, {"sseAlgorithm": Choice(("AES256", "aws:kms", "aws:kms:dsse"))})
    rules = inputs.get("rules")
    for rule in rules if is_known(rules) else []:
        default = rule.get("applyServerSideEncryptionByDefault") or {}
        if default.get("sseAlgorithm") == "AES256" and default.get("kmsMasterKeyId"):
            yield Complaint(f"{path}.kmsMasterKeyId", "a key of KMS is not for the sseAlgorithm AES256")


BUCKET_ENCRYPTION = _setting(
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    ("put_bucket_encryption", _encryption),
    "get_bucket_encryption",
    ("delete_bucket_encryption", {}),
    inputs=updates("rules") | replaces("bucket", "expectedBucketOwner"),
    sets=frozenset({"rules"}),
    complaints=_encryption_complaints,
)

_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")


def _block(aws: Aws, inputs: Props) -> dict[str, Any]:
    wanted = {key: bool(inputs.get(key)) for key in _BLOCKS}
    shape = aws.shape("s3", "put_public_access_block")
    return structure(shape, {"publicAccessBlockConfiguration": wanted}, {})


BUCKET_PUBLIC_ACCESS_BLOCK = _setting(
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    ("put_public_access_block", _block),
    "get_public_access_block",
    ("delete_public_access_block", {}),
    inputs=updates(*_BLOCKS, "skipDestroy") | replaces("bucket"),
    defaults=dict.fromkeys(_BLOCKS, False),
)


def _ownership(aws: Aws, inputs: Props) -> dict[str, Any]:
    shape = aws.shape("s3", "put_bucket_ownership_controls")
    return structure(shape, {"ownershipControls": {"rules": [inputs["rule"]]}}, {})


BUCKET_OWNERSHIP_CONTROLS = _setting(
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
    ("put_bucket_ownership_controls", _ownership),
    "get_bucket_ownership_controls",
    ("delete_bucket_ownership_controls", {}),
    inputs=updates("rule") | replaces("bucket"),
    complaints=_within(
        "rule", {"objectOwnership": Choice(("BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"))}
    ),
)


def _policy(aws: Aws, inputs: Props) -> dict[str, Any]:
    document, bucket = inputs["policy"], inputs["bucket"]
    refuse_strangers(aws, document, "MalformedPolicy")
    if found := strays(document, f"arn:aws:s3:::{bucket}"):
        raise Refusal("MalformedPolicy", f"Policy has invalid resource: {found[0]}", key="policy")
    if invites_everybody(document) and _is_shut(aws, bucket):
        told = "public policies are prevented by the BlockPublicPolicy setting in S3 Block Public Access"
        raise Refusal("AccessDenied", told, key="policy")
    return {"Policy": document}


def _is_shut(aws: Aws, bucket: str) -> bool:
    """Whether a bucket refuses public policies, as each does from its birth."""
    try:
        found = aws.call("s3", "get_public_access_block", Bucket=bucket)["PublicAccessBlockConfiguration"]
    except Refusal:
        return False
    return bool(found["BlockPublicPolicy"])


def _policy_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from malformed(inputs, form=BUCKET)


BUCKET_POLICY = _setting(
    "aws:s3/bucketPolicy:BucketPolicy",
    ("put_bucket_policy", _policy),
    "get_bucket_policy",
    ("delete_bucket_policy", {}),
    inputs=updates("policy") | replaces("bucket"),
    complaints=_policy_complaints,
)

BUCKET_LIFECYCLE = _setting(
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    ("put_bucket_lifecycle_configuration", lifecycle_params),
    "get_bucket_lifecycle_configuration",
    ("delete_bucket_lifecycle", {}),
    inputs=updates("rules", "transitionDefaultMinimumObjectSize") | replaces("bucket", "expectedBucketOwner"),
    defaults=LIFECYCLE_DEFAULTS,
    complaints=lifecycle_complaints,
)
