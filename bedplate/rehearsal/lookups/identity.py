"""Where and who a program is: region, account, partition."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.kinds.s3_bucket import S3_ZONES
from bedplate.rehearsal.lookups.lookup import Lookup, only_one, picked
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal


def _region(aws: Aws, args: Props) -> dict[str, Any]:
    name = args.get("name") or aws.region
    if args.get("endpoint"):
        name = str(args["endpoint"]).removeprefix("ec2.").partition(".")[0]
    known = aws.call("ec2", "describe_regions", AllRegions=True)["Regions"]
    if name not in [region["RegionName"] for region in known]:
        raise Refusal("NotFound", f"no matching EC2 Region found: {name}")
    return {"endpoint": f"ec2.{name}.amazonaws.com", "id": name, "name": name, "region": name}


REGION = Lookup("aws:index/getRegion:getRegion", frozenset({"endpoint", "id", "name"}), _region)


def _caller(aws: Aws, args: Props) -> dict[str, Any]:
    found = aws.call("sts", "get_caller_identity")
    account = found["Account"]
    return {"accountId": account, "arn": found["Arn"], "id": account, "userId": found["UserId"]}


CALLER_IDENTITY = Lookup("aws:index/getCallerIdentity:getCallerIdentity", frozenset({"id"}), _caller)


def _partition(aws: Aws, args: Props) -> dict[str, Any]:
    return {
        "dnsSuffix": "amazonaws.com",
        "id": "aws",
        "partition": "aws",
        "reverseDnsPrefix": "com.amazonaws",
    }


PARTITION = Lookup("aws:index/getPartition:getPartition", frozenset({"id"}), _partition)


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


def _parameter(aws: Aws, args: Props) -> dict[str, Any]:
    name, opened = str(args["name"]), args.get("withDecryption", True)
    found = aws.call("ssm", "get_parameter", Name=name, WithDecryption=opened)["Parameter"]
    return {
        "arn": aws.arn("ssm", f"parameter/{name.removeprefix('/')}"),
        "id": name,
        "insecureValue": "" if found["Type"] == "SecureString" else found["Value"],
        "type": found["Type"],
        "value": found["Value"],
        "version": found["Version"],
        "withDecryption": opened,
    }


PARAMETER = Lookup("aws:ssm/getParameter:getParameter", frozenset({"name", "withDecryption"}), _parameter)


# Go's encoder writes these so, for the sake of browsers.
_ESCAPES = {"&": r"\u0026", "<": r"\u003c", ">": r"\u003e"}
# The members of a statement in the provider's order, and the lists among its arguments.
_LISTS = {"actions": "Action", "notActions": "NotAction", "resources": "Resource", "notResources": "NotResource"}
_PRINCIPALS = {"principals": "Principal", "notPrincipals": "NotPrincipal"}


def _words(values: Iterable[str]) -> str | list[str]:
    """Return one word by itself and several from last to first, with `&{` for a variable made `${`."""
    found = sorted((value.replace("&{", "${") for value in values), reverse=True)
    return found[0] if len(found) == 1 else found


def _principals(blocks: Iterable[Mapping[str, Any]]) -> str | dict[str, str | list[str]]:
    found: dict[str, list[str]] = {}
    for block in blocks:
        found.setdefault(block["type"], []).extend(block["identifiers"])
    if found == {"*": ["*"]}:
        return "*"
    return {kind: _words(found[kind]) for kind in sorted(found)}


def _conditions(blocks: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str | list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for block in blocks:
        found.setdefault(block["test"], {}).setdefault(block["variable"], []).extend(block["values"])
    return {test: {name: _words(values) for name, values in sorted(one.items())} for test, one in sorted(found.items())}


def _statement(block: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"Sid": block["sid"]} if block.get("sid") else {}
    found["Effect"] = block.get("effect") or "Allow"
    found |= {name: _words(block[key]) for key, name in _LISTS.items() if block.get(key)}
    found |= {name: _principals(block[key]) for key, name in _PRINCIPALS.items() if block.get(key)}
    return found | ({"Condition": _conditions(block["conditions"])} if block.get("conditions") else {})


def _parts(args: Props, single: str, several: str) -> list[dict[str, Any]]:
    """Return the statements of other documents that the program gave as text."""
    texts = [args.get(single), *(args.get(several) or [])]
    documents = [json.loads(text) for text in texts if text]
    given = [document.get("Statement", []) for document in documents]
    return [one for some in given for one in (some if isinstance(some, list) else [some])]


def _overridden(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return both, where a statement of the second stands in the place of one of the same Sid."""
    by_sid = {one["Sid"]: one for one in second if one.get("Sid")}
    held = {one.get("Sid") for one in first}
    kept = [by_sid.get(one.get("Sid", ""), one) for one in first]
    return [*kept, *(one for one in second if one.get("Sid") not in held or not one.get("Sid"))]


def _refuse_twins(statements: Iterable[Mapping[str, Any]]) -> None:
    names = [one["Sid"] for one in statements if one.get("Sid")]
    for name in names:
        if names.count(name) > 1:
            raise Refusal("InvalidInput", f"duplicate Sid ({name})", key="statements")


def _text(document: Mapping[str, Any], indent: int | None) -> str:
    separators = (",", ":") if indent is None else (",", ": ")
    found = json.dumps(document, indent=indent, separators=separators, ensure_ascii=False)
    for sign, escape in _ESCAPES.items():
        found = found.replace(sign, escape)
    return found


def _document(aws: Aws, args: Props) -> dict[str, Any]:
    own = [_statement(block) for block in args.get("statements") or []]
    _refuse_twins(own)
    sources = _parts(args, "sourceJson", "sourcePolicyDocuments")
    _refuse_twins(sources)
    statements = _overridden(_overridden(sources, own), _parts(args, "overrideJson", "overridePolicyDocuments"))
    version = args.get("version") or "2012-10-17"
    named = {"Id": args["policyId"]} if args.get("policyId") else {}
    document = {"Version": version, **named, **({"Statement": statements} if statements else {})}
    text = _text(document, 2)
    return {
        "id": str(crc32(text.encode())),
        "json": text,
        "minifiedJson": _text(document, None),
        "version": version,
    }


POLICY_DOCUMENT = Lookup(
    "aws:iam/getPolicyDocument:getPolicyDocument",
    frozenset({"overrideJson", "overridePolicyDocuments", "policyId", "sourceJson", "sourcePolicyDocuments"})
    | {"statements", "version"},
    _document,
)


def _bucket(aws: Aws, args: Props) -> dict[str, Any]:
    name = str(args["bucket"])
    try:
        aws.call("s3", "head_bucket", Bucket=name)
    except Refusal:
        raise Refusal("NoSuchBucket", f"no matching S3 Bucket found: {name}", key="bucket") from None
    home = aws.call("s3", "get_bucket_location", Bucket=name).get("LocationConstraint") or "us-east-1"
    return {
        "arn": f"arn:aws:s3:::{name}",
        "bucketDomainName": f"{name}.s3.amazonaws.com",
        "bucketRegion": home,
        "bucketRegionalDomainName": f"{name}.s3.{home}.amazonaws.com",
        "hostedZoneId": S3_ZONES.get(home, ""),
        "id": name,
    }


BUCKET = Lookup("aws:s3/getBucket:getBucket", frozenset({"bucket"}), _bucket)
