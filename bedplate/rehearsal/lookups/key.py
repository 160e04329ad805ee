"""KMS keys and their aliases."""

from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup, only_one, picked
from bedplate.rehearsal.simulation import Aws

_NAMES = {
    "arn": "Arn",
    "awsAccountId": "AWSAccountId",
    "customerMasterKeySpec": "CustomerMasterKeySpec",
    "description": "Description",
    "enabled": "Enabled",
    "id": "KeyId",
    "keyManager": "KeyManager",
    "keySpec": "KeySpec",
    "keyState": "KeyState",
    "keyUsage": "KeyUsage",
    "multiRegion": "MultiRegion",
    "origin": "Origin",
}


def _key(aws: Aws, args: Props) -> dict[str, Any]:
    found = aws.call("kms", "describe_key", KeyId=args["keyId"])["KeyMetadata"]
    # moto tells of neither when the key was made without a word on them.
    born = {"keySpec": "SYMMETRIC_DEFAULT", "keyUsage": "ENCRYPT_DECRYPT"}
    made = found["CreationDate"].strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**born, **picked(found, _NAMES), "creationDate": made}


KEY = Lookup("aws:kms/getKey:getKey", frozenset({"grantTokens", "keyId"}), _key)


def _alias(aws: Aws, args: Props) -> dict[str, Any]:
    listed = aws.call("kms", "list_aliases")["Aliases"]
    found = only_one("KMS Alias", [one for one in listed if one["AliasName"] == args["name"]])
    target = found.get("TargetKeyId", "")
    # AWS's own keys are made when they are first used: until then their alias leads nowhere.
    arn = aws.call("kms", "describe_key", KeyId=target)["KeyMetadata"]["Arn"] if target else ""
    return {"arn": aws.arn("kms", args["name"]), "id": args["name"], "targetKeyArn": arn, "targetKeyId": target}


ALIAS = Lookup("aws:kms/getAlias:getAlias", frozenset({"name"}), _alias)
