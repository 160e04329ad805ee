"""Replicas of multi-Region KMS keys in other regions."""

from typing import Any

from bedplate.rehearsal.kind import Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.kms_key import BORN, change_key, delete_key, key_complaints, living_key, settle
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def _create(aws: Aws, inputs: Props) -> str:
    _, _, _, region, _, resource = str(inputs["primaryKeyArn"]).split(":", 5)
    ident = resource.removeprefix("key/")
    primary = aws.elsewhere(region)
    if not living_key(primary, ident).get("MultiRegion"):
        raise Refusal("UnsupportedOperationException", f"{ident} is no multi-Region primary key")
    primary.call("kms", "replicate_key", KeyId=ident, ReplicaRegion=aws.region)
    return settle(aws, ident, BORN, inputs)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = living_key(aws, ident)
    return {
        "arn": found["Arn"],
        "keyId": ident,
        "keyRotationEnabled": aws.call("kms", "get_key_rotation_status", KeyId=ident)["KeyRotationEnabled"],
        "keySpec": found.get("KeySpec") or "SYMMETRIC_DEFAULT",
        "keyUsage": found.get("KeyUsage") or "ENCRYPT_DECRYPT",
        "policy": inputs.get("policy")
        or aws.call("kms", "get_key_policy", KeyId=ident, PolicyName="default")["Policy"],
    }


REPLICA_KEY = Kind(
    token="aws:kms/replicaKey:ReplicaKey",
    inputs=updates("bypassPolicyLockoutSafetyCheck", "deletionWindowInDays", "description", "enabled")
    | updates("policy", "tags")
    | replaces("primaryKeyArn"),
    defaults={"bypassPolicyLockoutSafetyCheck": False, "deletionWindowInDays": 30, "enabled": True},
    computed=frozenset({"policy"}),
    create=_create,
    read=_read,
    update=change_key,
    delete=delete_key,
    complaints=key_complaints,
    note="a deleted key waits for its end, as in AWS",
)
