"""KMS keys and aliases. Deleting a key only schedules its deletion, as in AWS."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import aws_names, copied, deletes, existing, renamed
from bedplate.rehearsal.kinds.iam import allows_account, check_policy, require_principals
from bedplate.rehearsal.kinds.limits import (
    Number,
    Tagger,
    Text,
    checks,
    rollback,
    tag_pairs,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- Keys

_LIMITS = {
    "description": Text(0, 8192),
    "deletionWindowInDays": Number(7, 30),
}
_TAGS = Tagger(service="kms", ident="KeyId", names=("TagKey", "TagValue"))
_MALFORMED_CODE = "MalformedPolicyDocumentException"
_DEFAULT_WINDOW = 30  # days until deletion: the default of KMS


def _create_key(aws: Aws, inputs: Props) -> str:
    if inputs.get("policy"):
        _require_usable_policy(aws, inputs)
    tags = tag_pairs(inputs.get("tags"), ("TagKey", "TagValue"))
    settings = renamed(inputs, aws_names("description", "policy"))
    ident: str = aws.call("kms", "create_key", Tags=tags, **settings)["KeyMetadata"]["KeyId"]
    with rollback(lambda: _delete_key(aws, ident, inputs)):
        _update_key(aws, ident, {**inputs, "enableKeyRotation": False}, inputs)
    return ident


def _require_usable_policy(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for a policy with an unknown role, or one that the account could not change again."""
    require_principals(aws, inputs["policy"], _MALFORMED_CODE)
    if not allows_account(inputs["policy"], aws.account, "kms:PutKeyPolicy"):
        message = "The new key policy will not allow you to update the key policy in the future."
        raise ResourceError(_MALFORMED_CODE, message, key="policy")


def _read_key(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    metadata = _describe_key(aws, ident)
    if metadata["KeyState"] == "PendingDeletion":
        raise ResourceError("NotFoundException", f"key {ident} is pending deletion")
    return {
        **copied(metadata, "arn", "keyId"),
        "multiRegion": metadata.get("MultiRegion", False),
        "policy": aws.call("kms", "get_key_policy", KeyId=ident, PolicyName="default")["Policy"],
        **({"rotationPeriodInDays": 365} if inputs.get("enableKeyRotation") else {}),
    } | ({"policy": inputs["policy"]} if inputs.get("policy") else {})


def _describe_key(aws: Aws, ident: str) -> dict[str, Any]:
    metadata: dict[str, Any] = aws.call("kms", "describe_key", KeyId=ident)["KeyMetadata"]
    return metadata


def _update_key(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if new.get("policy") and old.get("policy") != new["policy"]:
        _require_usable_policy(aws, new)
        aws.call("kms", "put_key_policy", KeyId=ident, PolicyName="default", Policy=new["policy"])
    if (old.get("description") or "") != (new.get("description") or ""):
        aws.call("kms", "update_key_description", KeyId=ident, Description=new.get("description") or "")
    rotates = bool(new.get("enableKeyRotation"))
    if bool(old.get("enableKeyRotation")) != rotates:
        aws.call("kms", "enable_key_rotation" if rotates else "disable_key_rotation", KeyId=ident)
    _TAGS.retag(aws, ident, old, new)


def _delete_key(aws: Aws, ident: str, outputs: Props) -> None:
    days = outputs.get("deletionWindowInDays") or _DEFAULT_WINDOW
    aws.call("kms", "schedule_key_deletion", KeyId=ident, PendingWindowInDays=days)


KEY = ResourceKind(
    token="aws:kms/key:Key",
    inputs=updates("deletionWindowInDays", "description", "enableKeyRotation", "policy", "tags"),
    defaults={"enableKeyRotation": False},
    computed=frozenset({"description", "policy"}),
    create=_create_key,
    read=_read_key,
    update=_update_key,
    delete=_delete_key,
    complaints=checks(_LIMITS, check_policy),
    note="a deleted key stays in the state PendingDeletion, as in AWS",
)


# --- Aliases

_ALIAS_NAME = Text(7, 256, r"alias/[a-zA-Z0-9/_-]+", "alias/ followed by letters, digits and /_-")


def _check_alias(inputs: Props) -> Iterator[InvalidInput]:
    name = inputs.get("name")
    if is_known(name) and str(name).startswith("alias/aws/"):
        yield InvalidInput("name", f"{name} must not begin with alias/aws/, which AWS reserves")


def _create_alias(aws: Aws, inputs: Props) -> str:
    name = str(inputs["name"])
    aws.call("kms", "create_alias", AliasName=name, TargetKeyId=_describe_key(aws, inputs["targetKeyId"])["KeyId"])
    return name


def _read_alias(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aliases = aws.call("kms", "list_aliases")["Aliases"]
    matches = (alias for alias in aliases if alias["AliasName"] == ident)
    target = existing(matches, "NotFoundException", f"Alias {ident} is not found.")["TargetKeyId"]
    return {"arn": aws.arn("kms", ident), "name": ident, "targetKeyArn": _describe_key(aws, target)["Arn"]}


def _update_alias(aws: Aws, ident: str, old: Props, new: Props) -> None:
    aws.call("kms", "update_alias", AliasName=ident, TargetKeyId=_describe_key(aws, new["targetKeyId"])["KeyId"])


ALIAS = ResourceKind(
    token="aws:kms/alias:Alias",
    inputs=updates("targetKeyId") | replaces("name"),
    changed_by_update=frozenset({"targetKeyArn"}),
    naming=Naming(prefix="alias/", longest=256),
    create=_create_alias,
    read=_read_alias,
    update=_update_alias,
    delete=deletes("kms", "delete_alias", "AliasName"),
    complaints=checks({"name": _ALIAS_NAME}, _check_alias),
)
