"""Secrets Manager: secrets and their versions. Systems Manager: parameters."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, delete_nothing, replaces, updates
from bedplate.rehearsal.kinds.calls import aws_names, call_with, deletes, renamed
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Number,
    Tagger,
    Text,
    check_required,
    checks,
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
    response = aws.call(
        "secretsmanager",
        "create_secret",
        Name=inputs["name"],
        Tags=tag_pairs(inputs.get("tags")),
        **renamed(inputs, aws_names("description", "kmsKeyId")),
    )
    return str(response["ARN"])


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
    _TAGS.retag(aws, ident, old, new)


def _delete_secret(aws: Aws, ident: str, outputs: Props) -> None:
    days = outputs.get("recoveryWindowInDays")
    # A window of 0 days deletes the secret at once.
    schedule = {"ForceDeleteWithoutRecovery": True} if days == 0 else {"RecoveryWindowInDays": days or 30}
    aws.call("secretsmanager", "delete_secret", SecretId=ident, **schedule)


SECRET = ResourceKind(
    token="aws:secretsmanager/secret:Secret",
    inputs=updates("description", "kmsKeyId", "recoveryWindowInDays", "tags") | replaces("name"),
    defaults={"recoveryWindowInDays": 30},
    naming=Naming(longest=512),
    create=_create_secret,
    read=_read_secret,
    update=_update_secret,
    delete=_delete_secret,
    complaints=checks(_LIMITS),
    note="a deleted secret stays scheduled for deletion, as in AWS; replicas are refused",
)


# --- Secret versions


def _create_version(aws: Aws, inputs: Props) -> str:
    secret = aws.call("secretsmanager", "describe_secret", SecretId=inputs["secretId"])
    response = call_with(aws, ("secretsmanager", "put_secret_value"), {**inputs, "secretId": secret["ARN"]})
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


SECRET_VERSION = ResourceKind(
    token="aws:secretsmanager/secretVersion:SecretVersion",
    inputs=replaces("secretId", "secretString"),
    create=_create_version,
    read=_read_version,
    delete=delete_nothing,  # a secret always keeps its current version
    complaints=checks({}, partial(check_required, keys=("secretString",))),
)


# --- SSM parameters

_PARAMETER_LIMITS = {
    "name": Text(1, 2048, r"[a-zA-Z0-9_.\-/]+", "letters, digits and _.-/"),
    "description": Text(0, 1024),
    "type": Choice(("String", "StringList", "SecureString")),
}
_MAX_SIZE = 4096  # bytes of a value
_MAX_LEVELS = 15  # levels of a name. Source: Systems Manager user guide, "Parameter names"
_PARAMETER_TAGS = Tagger(
    service="ssm",
    add="add_tags_to_resource",
    remove="remove_tags_from_resource",
    ident="ResourceId",
    fixed={"ResourceType": "Parameter"},
)


def _check_parameter(inputs: Props) -> Iterator[InvalidInput]:
    name, value = inputs.get("name"), inputs.get("value")
    yield from check_required(inputs, ("value",))
    if is_known(name) and "/" in str(name).lstrip("/") and not str(name).startswith("/"):
        yield InvalidInput("name", f"{name} must begin with / because it has levels")
    if is_known(name) and str(name).strip("/").count("/") >= _MAX_LEVELS:
        yield InvalidInput("name", f"must have at most {_MAX_LEVELS} levels")
    if is_known(value) and len(str(value).encode()) > _MAX_SIZE:
        yield InvalidInput("value", f"must have at most {_MAX_SIZE} bytes")


def _create_parameter(aws: Aws, inputs: Props) -> str:
    _require_parameter_key(aws, inputs)
    tags = tag_pairs(inputs.get("tags"))
    call_with(aws, ("ssm", "put_parameter"), inputs, apart=("tags",), Tags=tags)
    return str(inputs["name"])


def _require_parameter_key(aws: Aws, inputs: Props) -> None:
    key = inputs.get("keyId")
    if not key or key == "alias/aws/ssm":
        return
    try:
        aws.call("kms", "describe_key", KeyId=key)
    except ResourceError:
        raise ResourceError("InvalidKeyId", f"The KMS key {key} does not exist in {aws.region}", key="keyId") from None


def _read_parameter(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    parameter = aws.call("ssm", "get_parameter", Name=ident, WithDecryption=True)["Parameter"]
    is_secure = parameter["Type"] == "SecureString"
    return {
        "arn": aws.arn("ssm", f"parameter/{ident.removeprefix('/')}"),
        "dataType": parameter["DataType"],
        "insecureValue": "" if is_secure else parameter["Value"],
        "keyId": inputs.get("keyId") or ("alias/aws/ssm" if is_secure else ""),
        "name": ident,
        "tier": "Standard",
        "value": parameter["Value"],
        "version": parameter["Version"],
    }


def _update_parameter(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if {**old, "tags": None} != {**new, "tags": None}:
        _require_parameter_key(aws, new)
        call_with(aws, ("ssm", "put_parameter"), new, apart=("tags",), Overwrite=True)
    _PARAMETER_TAGS.retag(aws, ident, old, new)


PARAMETER = ResourceKind(
    token="aws:ssm/parameter:Parameter",
    inputs=updates("description", "keyId", "tags", "type", "value") | replaces("name"),
    computed=frozenset({"keyId"}),
    changed_by_update=frozenset({"insecureValue", "value", "version"}),
    naming=Naming(longest=2048),
    create=_create_parameter,
    read=_read_parameter,
    update=_update_parameter,
    delete=deletes("ssm", "delete_parameter", "Name"),
    complaints=checks(_PARAMETER_LIMITS, _check_parameter),
)
