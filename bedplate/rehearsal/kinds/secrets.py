"""Secrets Manager: secrets and their versions. Systems Manager: parameters."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import aws_names, call_parameters, call_with, deletes, renamed
from bedplate.rehearsal.kinds.iam import check_policy, require_principals
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Number,
    Tagger,
    Text,
    check_either,
    checks,
    resource_name,
    rollback,
    tag_pairs,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- Secrets

_LIMITS = {
    "name": Text(1, 512, r"[a-zA-Z0-9/_+=.@-]+", "letters, digits and /_+=.@-"),
    "recoveryWindowInDays": Number(7, 30, besides=(0,)),
}
_TAGS = Tagger(service="secretsmanager", ident="SecretId")


def _create_secret(aws: Aws, inputs: Props) -> str:
    if inputs.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=inputs["kmsKeyId"])
    if inputs.get("policy"):
        require_principals(aws, inputs["policy"], "MalformedPolicyDocumentException")
    response = aws.call(
        "secretsmanager",
        "create_secret",
        Name=resource_name(inputs),
        Tags=tag_pairs(inputs.get("tags")),
        **renamed(inputs, aws_names("description", "kmsKeyId")),
    )
    arn: str = response["ARN"]
    with rollback(lambda: _delete_secret(aws, arn, {"recoveryWindowInDays": 0})):
        _set_policy(aws, arn, {}, inputs)
    return arn


def _set_policy(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = old.get("policy") or "", new.get("policy") or ""
    if after and before != after:
        require_principals(aws, after, "MalformedPolicyDocumentException")
        aws.call("secretsmanager", "put_resource_policy", SecretId=ident, ResourcePolicy=after)
    elif before and not after:
        aws.call("secretsmanager", "delete_resource_policy", SecretId=ident)


def _read_secret(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    secret = aws.call("secretsmanager", "describe_secret", SecretId=ident)
    if secret.get("DeletedDate"):
        raise ResourceError("ResourceNotFoundException", f"{ident} is marked for deletion")
    return {"arn": secret["ARN"], "name": secret["Name"]}


def _update_secret(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if new.get("kmsKeyId"):
        aws.call("kms", "describe_key", KeyId=new["kmsKeyId"])
    changed = {"Description": new.get("description") or "", **renamed(new, aws_names("kmsKeyId"))}
    aws.call("secretsmanager", "update_secret", SecretId=ident, **changed)
    _set_policy(aws, ident, old, new)
    _TAGS.retag(aws, ident, old, new)


def _delete_secret(aws: Aws, ident: str, outputs: Props) -> None:
    days = outputs.get("recoveryWindowInDays")
    # A window of 0 days deletes the secret at once.
    schedule = {"ForceDeleteWithoutRecovery": True} if days == 0 else {"RecoveryWindowInDays": days or 30}
    aws.call("secretsmanager", "delete_secret", SecretId=ident, **schedule)


SECRET = ResourceKind(
    token="aws:secretsmanager/secret:Secret",
    inputs=updates("description", "forceOverwriteReplicaSecret", "kmsKeyId", "policy")
    | updates("recoveryWindowInDays", "tags")
    | replaces("name", "namePrefix"),
    defaults={"forceOverwriteReplicaSecret": False, "recoveryWindowInDays": 30},
    computed=frozenset({"name", "namePrefix", "policy"}),
    naming=Naming(longest=512),
    create=_create_secret,
    read=_read_secret,
    update=_update_secret,
    delete=_delete_secret,
    complaints=checks(_LIMITS, check_policy),
    note="a deleted secret stays scheduled for deletion, as in AWS; replicas are refused",
)


# --- Secret versions


def _create_version(aws: Aws, inputs: Props) -> str:
    secret = aws.call("secretsmanager", "describe_secret", SecretId=inputs["secretId"])
    values = {**inputs, "secretId": secret["ARN"], "versionStages": inputs.get("versionStages") or None}
    response = call_with(aws, ("secretsmanager", "put_secret_value"), values)
    return f"{secret['ARN']}|{response['VersionId']}"


def _read_version(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    arn, _, version = ident.partition("|")
    value = aws.call("secretsmanager", "get_secret_value", SecretId=arn, VersionId=version)
    return {
        "arn": arn,
        "secretArn": arn,
        "versionId": version,
        "versionStages": sorted(value.get("VersionStages") or []),
    }


def _update_version(aws: Aws, ident: str, old: Props, new: Props) -> None:
    arn, _, version = ident.partition("|")
    versions = aws.call("secretsmanager", "list_secret_version_ids", SecretId=arn)["Versions"]
    owners = {stage: item["VersionId"] for item in versions for stage in item.get("VersionStages") or []}
    for stage in new.get("versionStages") or []:
        removal = {"RemoveFromVersionId": owners[stage]} if stage in owners else {}
        if owners.get(stage) != version:
            call = {"SecretId": arn, "VersionStage": stage, "MoveToVersionId": version, **removal}
            aws.call("secretsmanager", "update_secret_version_stage", **call)
    removed = {*(old.get("versionStages") or [])} - {*(new.get("versionStages") or [])}
    _delete_version(aws, ident, {"versionStages": sorted(removed)})


def _delete_version(aws: Aws, ident: str, outputs: Props) -> None:
    """Remove the labels of a version, except AWSCURRENT: a secret always keeps its current version."""
    arn, _, version = ident.partition("|")
    for stage in outputs.get("versionStages") or []:
        if stage != "AWSCURRENT":
            call = {"SecretId": arn, "VersionStage": stage, "RemoveFromVersionId": version}
            aws.call("secretsmanager", "update_secret_version_stage", **call)


SECRET_VERSION = ResourceKind(
    token="aws:secretsmanager/secretVersion:SecretVersion",
    inputs=updates("versionStages") | replaces("secretId", "secretString", "secretBinary"),
    computed=frozenset({"versionStages"}),
    sets=frozenset({"versionStages"}),
    create=_create_version,
    read=_read_version,
    update=_update_version,
    delete=_delete_version,
    complaints=checks({}, partial(check_either, first="secretString", second="secretBinary")),
)


# --- SSM parameters

_PARAMETER_LIMITS = {
    "name": Text(1, 2048, r"[a-zA-Z0-9_.\-/]+", "letters, digits and _.-/"),
    "description": Text(0, 1024),
    "type": Choice(("String", "StringList", "SecureString")),
    "tier": Choice(("Standard", "Advanced", "Intelligent-Tiering")),
    "dataType": Choice(("aws:ec2:image", "aws:ssm:integration", "text")),
}
_SEPARATE = ("insecureValue", "tags", "overwrite", "arn")
_MAX_SIZES = {"Advanced": 8192, "Intelligent-Tiering": 8192}  # bytes of a value
_MAX_STANDARD_SIZE = 4096
_MAX_LEVELS = 15  # levels of a name. Source: Systems Manager user guide, "Parameter names"
_PARAMETER_TAGS = Tagger(
    service="ssm",
    add="add_tags_to_resource",
    remove="remove_tags_from_resource",
    ident="ResourceId",
    fixed={"ResourceType": "Parameter"},
)


def _check_parameter(inputs: Props) -> Iterator[InvalidInput]:
    yield from check_either(inputs, "value", "insecureValue")
    name, value = inputs.get("name"), inputs.get("value") or inputs.get("insecureValue")
    if is_known(name) and "/" in str(name).lstrip("/") and not str(name).startswith("/"):
        yield InvalidInput("name", f"{name} must begin with / because it has levels")
    if is_known(name) and str(name).strip("/").count("/") >= _MAX_LEVELS:
        yield InvalidInput("name", f"must have at most {_MAX_LEVELS} levels")
    yield from _check_pattern(inputs.get("allowedPattern"), value)
    maximum = _MAX_SIZES.get(str(inputs.get("tier")), _MAX_STANDARD_SIZE)
    if is_known(value) and len(str(value).encode()) > maximum:
        yield InvalidInput("value", f"must have at most {maximum} bytes in this tier")


def _check_pattern(pattern: object, value: object) -> Iterator[InvalidInput]:
    """Yield an error for an invalid allowedPattern, or a value that does not match it; never show the value."""
    if not (is_known(pattern) and is_known(value) and pattern):
        return
    try:
        matches = re.fullmatch(str(pattern), str(value))
    except re.error as error:
        yield InvalidInput("allowedPattern", f"is not a regular expression: {error} (InvalidAllowedPatternException)")
        return
    if not matches:
        yield InvalidInput("value", f"does not match allowedPattern {pattern} (ParameterPatternMismatchException)")


def _create_parameter(aws: Aws, inputs: Props) -> str:
    _require_parameter_key(aws, inputs)
    name: str = inputs["name"]
    params = _parameter_input(aws, inputs)
    if inputs.get("overwrite"):
        aws.call("ssm", "put_parameter", Overwrite=True, **params)
        _PARAMETER_TAGS.retag(aws, name, {}, inputs)
    else:
        aws.call("ssm", "put_parameter", Tags=tag_pairs(inputs.get("tags")), **params)
    return name


def _require_parameter_key(aws: Aws, inputs: Props) -> None:
    key = inputs.get("keyId")
    if not key or key == "alias/aws/ssm":
        return
    try:
        aws.call("kms", "describe_key", KeyId=key)
    except ResourceError:
        raise ResourceError("InvalidKeyId", f"The KMS key {key} does not exist in {aws.region}", key="keyId") from None


def _parameter_input(aws: Aws, inputs: Props) -> dict[str, Any]:
    value = {"value": inputs.get("value") or inputs.get("insecureValue")}
    return call_parameters(aws, ("ssm", "put_parameter"), {**inputs, **value}, apart=_SEPARATE)


def _read_parameter(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    parameter = aws.call("ssm", "get_parameter", Name=ident, WithDecryption=True)["Parameter"]
    is_secure = parameter["Type"] == "SecureString"
    return {
        "arn": aws.arn("ssm", f"parameter/{ident.removeprefix('/')}"),
        "dataType": parameter["DataType"],
        "insecureValue": "" if is_secure else parameter["Value"],
        "keyId": inputs.get("keyId") or ("alias/aws/ssm" if is_secure else ""),
        "name": ident,
        "tier": inputs.get("tier") or "Standard",
        "value": parameter["Value"],
        "version": parameter["Version"],
    }


def _update_parameter(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if {**old, "tags": None} != {**new, "tags": None}:
        _require_parameter_key(aws, new)
        aws.call("ssm", "put_parameter", Overwrite=True, **_parameter_input(aws, new))
    _PARAMETER_TAGS.retag(aws, ident, old, new)


PARAMETER = ResourceKind(
    token="aws:ssm/parameter:Parameter",
    inputs=updates("allowedPattern", "description", "insecureValue", "keyId", "overwrite", "tags", "tier")
    | updates("type", "value")
    | replaces("dataType", "name"),
    computed=frozenset({"dataType", "insecureValue", "keyId", "tier", "value"}),
    changed_by_update=frozenset({"insecureValue", "value", "version"}),
    naming=Naming(longest=2048),
    create=_create_parameter,
    read=_read_parameter,
    update=_update_parameter,
    delete=deletes("ssm", "delete_parameter", "Name"),
    complaints=checks(_PARAMETER_LIMITS, _check_parameter),
)
