"""Secrets of Secrets Manager and the versions of their values."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.limits import Number, Text, beyond
from bedplate.rehearsal.kinds.policy_document import malformed, refuse_strangers
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_LIMITS = {
    "name": Text(1, 512, r"[a-zA-Z0-9/_+=.@-]+", "letters, digits and /_+=.@-"),
    "recoveryWindowInDays": Number(7, 30, besides=(0,)),
}
_TAGS = Tagger(service="secretsmanager", ident="SecretId")


def _create(aws: Aws, inputs: Props) -> str:
    texts = {"Description": inputs.get("description"), "KmsKeyId": inputs.get("kmsKeyId")}
    if texts["KmsKeyId"]:
        aws.call("kms", "describe_key", KeyId=texts["KmsKeyId"])
    if inputs.get("policy"):
        refuse_strangers(aws, inputs["policy"], "MalformedPolicyDocumentException")
    made = aws.call(
        "secretsmanager",
        "create_secret",
        Name=chosen_name(inputs),
        Tags=tag_pairs(inputs.get("tags")),
        **{key: value for key, value in texts.items() if value},
    )
    arn: str = made["ARN"]
    with undoing(lambda: _delete(aws, arn, {"recoveryWindowInDays": 0})):
        _allow(aws, arn, {}, inputs)
    return arn


def _allow(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = old.get("policy") or "", new.get("policy") or ""
    if after and before != after:
        refuse_strangers(aws, after, "MalformedPolicyDocumentException")
        aws.call("secretsmanager", "put_resource_policy", SecretId=ident, ResourcePolicy=after)
    elif before and not after:
        aws.call("secretsmanager", "delete_resource_policy", SecretId=ident)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    texts = {"Description": new.get("description") or "", "KmsKeyId": new.get("kmsKeyId")}
    if texts["KmsKeyId"]:
        aws.call("kms", "describe_key", KeyId=texts["KmsKeyId"])
    changed = {key: value for key, value in texts.items() if value is not None}
    aws.call("secretsmanager", "update_secret", SecretId=ident, **changed)
    _allow(aws, ident, old, new)
    _TAGS.retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("secretsmanager", "describe_secret", SecretId=ident)
    if found.get("DeletedDate"):
        raise Refusal("ResourceNotFoundException", f"{ident} is marked for deletion")
    return {"arn": found["ARN"], "name": found["Name"]}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    days = outputs.get("recoveryWindowInDays")
    # No days at all: deleted at once and for good.
    how = {"ForceDeleteWithoutRecovery": True} if days == 0 else {"RecoveryWindowInDays": days or 30}
    aws.call("secretsmanager", "delete_secret", SecretId=ident, **how)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from malformed(inputs)


SECRET = Kind(
    token="aws:secretsmanager/secret:Secret",
    inputs=updates("description", "forceOverwriteReplicaSecret", "kmsKeyId", "policy")
    | updates("recoveryWindowInDays", "tags")
    | replaces("name", "namePrefix"),
    defaults={"forceOverwriteReplicaSecret": False, "recoveryWindowInDays": 30},
    computed=frozenset({"name", "namePrefix", "policy"}),
    naming=Naming(longest=512),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="a deleted secret waits for its end, as in AWS; replicas in other regions are refused",
)


def _put(aws: Aws, inputs: Props) -> str:
    values = {"SecretString": inputs.get("secretString"), "SecretBinary": inputs.get("secretBinary")}
    given = {key: value for key, value in values.items() if value is not None}
    stages = {"VersionStages": inputs["versionStages"]} if inputs.get("versionStages") else {}
    found = aws.call("secretsmanager", "describe_secret", SecretId=inputs["secretId"])
    made = aws.call("secretsmanager", "put_secret_value", SecretId=found["ARN"], **given, **stages)
    return f"{found['ARN']}|{made['VersionId']}"


def _read_version(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    arn, _, version = ident.partition("|")
    found = aws.call("secretsmanager", "get_secret_value", SecretId=arn, VersionId=version)
    return {
        "arn": arn,
        "secretArn": arn,
        "versionId": version,
        "versionStages": sorted(found.get("VersionStages") or []),
    }


def _restage(aws: Aws, ident: str, old: Props, new: Props) -> None:
    arn, _, version = ident.partition("|")
    versions = aws.call("secretsmanager", "list_secret_version_ids", SecretId=arn)["Versions"]
    holders = {stage: one["VersionId"] for one in versions for stage in one.get("VersionStages") or []}
    for stage in new.get("versionStages") or []:
        held = {"RemoveFromVersionId": holders[stage]} if stage in holders else {}
        if holders.get(stage) != version:
            call = {"SecretId": arn, "VersionStage": stage, "MoveToVersionId": version, **held}
            aws.call("secretsmanager", "update_secret_version_stage", **call)
    gone = {*(old.get("versionStages") or [])} - {*(new.get("versionStages") or [])}
    _unstage(aws, ident, {"versionStages": sorted(gone)})


def _unstage(aws: Aws, ident: str, outputs: Props) -> None:
    """Take a version's own labels away; AWSCURRENT stays, as the last version of a secret does."""
    arn, _, version = ident.partition("|")
    for stage in outputs.get("versionStages") or []:
        if stage != "AWSCURRENT":
            call = {"SecretId": arn, "VersionStage": stage, "RemoveFromVersionId": version}
            aws.call("secretsmanager", "update_secret_version_stage", **call)


def _version_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    if inputs.get("secretString") is None and inputs.get("secretBinary") is None:
        yield Complaint("secretString", "one of secretString and secretBinary must be given")


SECRET_VERSION = Kind(
    token="aws:secretsmanager/secretVersion:SecretVersion",
    inputs=updates("versionStages") | replaces("secretId", "secretString", "secretBinary"),
    computed=frozenset({"versionStages"}),
    sets=frozenset({"versionStages"}),
    create=_put,
    read=_read_version,
    update=_restage,
    delete=_unstage,
    complaints=_version_complaints,
)
