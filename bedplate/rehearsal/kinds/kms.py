"""KMS keys: made, rotated, enabled and given a policy; deleting one only schedules its end."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Tagger, Text, beyond, chosen_name, tag_pairs, undoing
from bedplate.rehearsal.kinds.policy_document import leaves_control, malformed, refuse_strangers
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_LIMITS = {
    "description": Text(0, 8192),
    "deletionWindowInDays": Number(7, 30),
    "rotationPeriodInDays": Number(90, 2560),
    "keyUsage": Choice(("ENCRYPT_DECRYPT", "GENERATE_VERIFY_MAC", "KEY_AGREEMENT", "SIGN_VERIFY")),
}
_TAGS = Tagger(service="kms", ident="KeyId", names=("TagKey", "TagValue"))
_MALFORMED = "MalformedPolicyDocumentException"
# What a key is for, by the beginning of its spec; elliptic curves and RSA are for more than one use.
_USES = {"SYMMETRIC_DEFAULT": ("ENCRYPT_DECRYPT",), "HMAC_": ("GENERATE_VERIFY_MAC",)}
_LONGEST_WINDOW = 30  # days until deletion when the program does not say: KMS's own default
# What a key has as it is born, so that making one and changing one are the same calls.
_BORN = {"isEnabled": True, "enableKeyRotation": False}


def _create(aws: Aws, inputs: Props) -> str:
    if inputs.get("policy"):
        _refuse_policy(aws, inputs)
    wanted = {
        "Description": inputs.get("description"),
        "KeyUsage": inputs.get("keyUsage"),
        "KeySpec": inputs.get("customerMasterKeySpec"),
        "MultiRegion": inputs.get("multiRegion"),
        "Policy": inputs.get("policy"),
    }
    params = {key: value for key, value in wanted.items() if value is not None}
    tags = tag_pairs(inputs.get("tags"), ("TagKey", "TagValue"))
    ident: str = aws.call("kms", "create_key", Tags=tags, **params)["KeyMetadata"]["KeyId"]
    return _settle(aws, ident, {**inputs, **_BORN}, inputs)


def _refuse_policy(aws: Aws, inputs: Props) -> None:
    """Refuse a policy that names a stranger, or that nobody of the account could change again."""
    refuse_strangers(aws, inputs["policy"], _MALFORMED)
    if not inputs.get("bypassPolicyLockoutSafetyCheck") and not leaves_control(
        inputs["policy"], aws.account, "kms:PutKeyPolicy"
    ):
        told = "The new key policy will not allow you to update the key policy in the future."
        raise Refusal(_MALFORMED, told, key="policy")


def _settle(aws: Aws, ident: str, born: Props, inputs: Props) -> str:
    with undoing(lambda: _delete_key(aws, ident, inputs)):
        _change_key(aws, ident, born, inputs)
    return ident


def _change_key(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if new.get("policy") and old.get("policy") != new["policy"]:
        _refuse_policy(aws, new)
        aws.call("kms", "put_key_policy", KeyId=ident, PolicyName="default", Policy=new["policy"])
    if (old.get("description") or "") != (new.get("description") or ""):
        aws.call("kms", "update_key_description", KeyId=ident, Description=new.get("description") or "")
    _rotate(aws, ident, old, new)
    enabled = new.get("isEnabled", True)
    if old.get("isEnabled", True) != enabled:
        aws.call("kms", "enable_key" if enabled else "disable_key", KeyId=ident)
    _TAGS.retag(aws, ident, old, new)


def _rotate(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = (
        (props.get("enableKeyRotation") or False, props.get("rotationPeriodInDays")) for props in (old, new)
    )
    if before == after:
        return
    if after[0]:
        period = {"RotationPeriodInDays": after[1]} if after[1] else {}
        aws.call("kms", "enable_key_rotation", KeyId=ident, **period)
    else:
        aws.call("kms", "disable_key_rotation", KeyId=ident)


def _living_key(aws: Aws, ident: str) -> dict[str, Any]:
    found: dict[str, Any] = aws.call("kms", "describe_key", KeyId=ident)["KeyMetadata"]
    if found["KeyState"] == "PendingDeletion":
        raise Refusal("NotFoundException", f"key {ident} is pending deletion")
    return found


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = _living_key(aws, ident)
    return {
        "arn": found["Arn"],
        "keyId": ident,
        "multiRegion": found.get("MultiRegion", False),
        "policy": aws.call("kms", "get_key_policy", KeyId=ident, PolicyName="default")["Policy"],
        **({"rotationPeriodInDays": 365} if inputs.get("enableKeyRotation") else {}),
    } | {key: inputs[key] for key in ("policy", "rotationPeriodInDays") if inputs.get(key)}


def _delete_key(aws: Aws, ident: str, outputs: Props) -> None:
    days = outputs.get("deletionWindowInDays") or _LONGEST_WINDOW
    aws.call("kms", "schedule_key_deletion", KeyId=ident, PendingWindowInDays=days)


def _key_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from malformed(inputs)
    spec, usage = inputs.get("customerMasterKeySpec"), inputs.get("keyUsage")
    for start, uses in _USES.items():
        if is_known(spec) and is_known(usage) and spec.startswith(start) and usage not in uses:
            yield Complaint("keyUsage", f"KeyUsage {usage} is not compatible with KeySpec {spec}")
    if inputs.get("enableKeyRotation") is True and is_known(spec) and spec != "SYMMETRIC_DEFAULT":
        yield Complaint("enableKeyRotation", "UnsupportedOperationException: only symmetric keys are rotated")


KEY = Kind(
    token="aws:kms/key:Key",
    inputs=updates("bypassPolicyLockoutSafetyCheck", "deletionWindowInDays", "description", "policy")
    | updates("enableKeyRotation", "isEnabled", "rotationPeriodInDays", "tags")
    | replaces("customerMasterKeySpec", "keyUsage", "multiRegion"),
    defaults={
        "bypassPolicyLockoutSafetyCheck": False,
        "customerMasterKeySpec": "SYMMETRIC_DEFAULT",
        "enableKeyRotation": False,
        "isEnabled": True,
        "keyUsage": "ENCRYPT_DECRYPT",
    },
    computed=frozenset({"description", "multiRegion", "policy", "rotationPeriodInDays"}),
    create=_create,
    read=_read,
    update=_change_key,
    delete=_delete_key,
    complaints=_key_complaints,
    note="a deleted key waits for its end, as in AWS",
)


_NAME = Text(7, 256, r"alias/[a-zA-Z0-9/_-]+", "alias/ and then letters, digits and /_-")


def _key(aws: Aws, inputs: Props) -> dict[str, Any]:
    found: dict[str, Any] = aws.call("kms", "describe_key", KeyId=inputs["targetKeyId"])["KeyMetadata"]
    return found


def _kms_alias_create(aws: Aws, inputs: Props) -> str:
    name = chosen_name(inputs)
    aws.call("kms", "create_alias", AliasName=name, TargetKeyId=_key(aws, inputs)["KeyId"])
    return name


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    aws.call("kms", "update_alias", AliasName=ident, TargetKeyId=_key(aws, new)["KeyId"])


def _kms_alias_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aliases = aws.call("kms", "list_aliases")["Aliases"]
    found = [one for one in aliases if one["AliasName"] == ident]
    if not found:
        raise Refusal("NotFoundException", f"Alias {ident} is not found.")
    key = aws.call("kms", "describe_key", KeyId=found[0]["TargetKeyId"])["KeyMetadata"]
    return {"arn": aws.arn("kms", ident), "name": ident, "targetKeyArn": key["Arn"]}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("kms", "delete_alias", AliasName=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"name": _NAME})
    name = inputs.get("name")
    if is_known(name) and str(name).startswith("alias/aws/"):
        yield Complaint("name", f"{name}: names that begin with alias/aws/ are AWS's own")


ALIAS = Kind(
    token="aws:kms/alias:Alias",
    inputs=updates("targetKeyId") | replaces("name", "namePrefix"),
    computed=frozenset({"name", "namePrefix"}),
    moves=frozenset({"targetKeyArn"}),
    naming=Naming(prefix="alias/", longest=256),
    create=_kms_alias_create,
    read=_kms_alias_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
