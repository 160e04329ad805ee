"""Secrets of Secrets Manager and the versions of their values."""

import re
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Tagger, Text, beyond, chosen_name, tag_pairs, undoing
from bedplate.rehearsal.kinds.policy_document import malformed, refuse_strangers
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

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


_SSM_PARAMETER_LIMITS = {
    "name": Text(1, 2048, r"[a-zA-Z0-9_.\-/]+", "letters, digits and _.-/"),
    "description": Text(0, 1024),
    "type": Choice(("String", "StringList", "SecureString")),
    "tier": Choice(("Standard", "Advanced", "Intelligent-Tiering")),
    "dataType": Choice(("aws:ec2:image", "aws:ssm:integration", "text")),
}
_APART = ("insecureValue", "tags", "overwrite", "arn")
_LARGEST = {"Advanced": 8192, "Intelligent-Tiering": 8192}  # bytes of a value; of the standard tier, half
_LARGEST_STANDARD = 4096
_DEEPEST = 15  # levels of a name: Systems Manager user guide, "Parameter names"
_SSM_PARAMETER_TAGS = Tagger(
    service="ssm",
    add="add_tags_to_resource",
    remove="remove_tags_from_resource",
    ident="ResourceId",
    fixed={"ResourceType": "Parameter"},
)


def _params(aws: Aws, inputs: Props) -> dict[str, Any]:
    value = {"value": inputs.get("value") or inputs.get("insecureValue")}
    return placed(aws, ("ssm", "put_parameter"), {**inputs, **value}, apart=_APART)


def _ssm_parameter_create(aws: Aws, inputs: Props) -> str:
    _refuse_lost_key(aws, inputs)
    name: str = inputs["name"]
    params = _params(aws, inputs)
    if inputs.get("overwrite"):
        aws.call("ssm", "put_parameter", Overwrite=True, **params)
        _SSM_PARAMETER_TAGS.retag(aws, name, {}, inputs)
    else:
        aws.call("ssm", "put_parameter", Tags=tag_pairs(inputs.get("tags")), **params)
    return name


def _refuse_lost_key(aws: Aws, inputs: Props) -> None:
    key = inputs.get("keyId")
    if not key or key == "alias/aws/ssm":
        return
    try:
        aws.call("kms", "describe_key", KeyId=key)
    except Refusal:
        raise Refusal("InvalidKeyId", f"{key} is no KMS key of {aws.region}", key="keyId") from None


def _ssm_parameter_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if {**old, "tags": None} != {**new, "tags": None}:
        _refuse_lost_key(aws, new)
        aws.call("ssm", "put_parameter", Overwrite=True, **_params(aws, new))
    _SSM_PARAMETER_TAGS.retag(aws, ident, old, new)


def _ssm_parameter_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("ssm", "get_parameter", Name=ident, WithDecryption=True)["Parameter"]
    secure = found["Type"] == "SecureString"
    return {
        "arn": aws.arn("ssm", f"parameter/{ident.removeprefix('/')}"),
        "dataType": found["DataType"],
        "insecureValue": "" if secure else found["Value"],
        "keyId": inputs.get("keyId") or ("alias/aws/ssm" if secure else ""),
        "name": ident,
        "tier": inputs.get("tier") or "Standard",
        "value": found["Value"],
        "version": found["Version"],
    }


def _ssm_parameter_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ssm", "delete_parameter", Name=ident)


def _ssm_parameter_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _SSM_PARAMETER_LIMITS)
    if inputs.get("value") is None and inputs.get("insecureValue") is None:
        yield Complaint("value", "one of value and insecureValue must be given")
    name, value = inputs.get("name"), inputs.get("value") or inputs.get("insecureValue")
    if is_known(name) and "/" in str(name).lstrip("/") and not str(name).startswith("/"):
        yield Complaint("name", f"{name}: a name with levels begins with /")
    if is_known(name) and str(name).strip("/").count("/") >= _DEEPEST:
        yield Complaint("name", f"a name has at most {_DEEPEST} levels")
    yield from _pattern_complaints(inputs.get("allowedPattern"), value)
    most = _LARGEST.get(str(inputs.get("tier")), _LARGEST_STANDARD)
    if is_known(value) and len(str(value).encode()) > most:
        yield Complaint("value", f"a value of this tier has at most {most} bytes")


def _pattern_complaints(pattern: object, value: object) -> Iterator[Complaint]:
    """Yield what is wrong with a value by the program's own pattern, or with the pattern; never the value."""
    if not (is_known(pattern) and is_known(value) and pattern):
        return
    try:
        matches = re.fullmatch(str(pattern), str(value))
    except re.error as error:
        yield Complaint("allowedPattern", f"InvalidAllowedPatternException: {error}")
        return
    if not matches:
        yield Complaint("value", f"ParameterPatternMismatchException: the value does not match {pattern}")


PARAMETER = Kind(
    token="aws:ssm/parameter:Parameter",
    inputs=updates("allowedPattern", "description", "insecureValue", "keyId", "overwrite", "tags", "tier")
    | updates("type", "value")
    | replaces("dataType", "name"),
    computed=frozenset({"dataType", "insecureValue", "keyId", "tier", "value"}),
    moves=frozenset({"insecureValue", "value", "version"}),
    naming=Naming(longest=2048),
    create=_ssm_parameter_create,
    read=_ssm_parameter_read,
    update=_ssm_parameter_update,
    delete=_ssm_parameter_delete,
    complaints=_ssm_parameter_complaints,
)
