"""Lookups of region, account and partition, SSM parameters and IAM policy documents."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from bedplate.rehearsal.kind import Lookup, Props
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError


def _region(aws: Aws, args: Props) -> dict[str, Any]:
    name = args.get("name") or aws.region
    if args.get("endpoint"):
        name = str(args["endpoint"]).removeprefix("ec2.").partition(".")[0]
    regions = aws.call("ec2", "describe_regions", AllRegions=True)["Regions"]
    if name not in [region["RegionName"] for region in regions]:
        raise ResourceError("NotFound", f"no matching EC2 Region found: {name}")
    return {"endpoint": f"ec2.{name}.amazonaws.com", "id": name, "name": name, "region": name}


REGION = Lookup("aws:index/getRegion:getRegion", frozenset({"endpoint", "id", "name"}), _region)


def _caller(aws: Aws, args: Props) -> dict[str, Any]:
    identity = aws.call("sts", "get_caller_identity")
    account = identity["Account"]
    return {"accountId": account, "arn": identity["Arn"], "id": account, "userId": identity["UserId"]}


CALLER_IDENTITY = Lookup("aws:index/getCallerIdentity:getCallerIdentity", frozenset({"id"}), _caller)


def _partition(aws: Aws, args: Props) -> dict[str, Any]:
    return {
        "dnsSuffix": "amazonaws.com",
        "id": "aws",
        "partition": "aws",
        "reverseDnsPrefix": "com.amazonaws",
    }


PARTITION = Lookup("aws:index/getPartition:getPartition", frozenset({"id"}), _partition)


def _parameter(aws: Aws, args: Props) -> dict[str, Any]:
    name, decrypt = str(args["name"]), args.get("withDecryption", True)
    parameter = aws.call("ssm", "get_parameter", Name=name, WithDecryption=decrypt)["Parameter"]
    return {
        "arn": aws.arn("ssm", f"parameter/{name.removeprefix('/')}"),
        "id": name,
        "insecureValue": "" if parameter["Type"] == "SecureString" else parameter["Value"],
        "type": parameter["Type"],
        "value": parameter["Value"],
        "version": parameter["Version"],
        "withDecryption": decrypt,
    }


PARAMETER = Lookup("aws:ssm/getParameter:getParameter", frozenset({"name", "withDecryption"}), _parameter)


# The JSON encoder of Go, in which the provider is written, escapes these characters.
_ESCAPES = {"&": r"\u0026", "<": r"\u003c", ">": r"\u003e"}
# The arguments of a statement and its members in the document, in the provider's order.
_LISTS = {"actions": "Action", "notActions": "NotAction", "resources": "Resource", "notResources": "NotResource"}
_PRINCIPALS = {"principals": "Principal", "notPrincipals": "NotPrincipal"}


def _string_or_list(values: Iterable[str]) -> str | list[str]:
    """Return a single value as a string and several in descending order; `&{` of a variable becomes `${`."""
    texts = sorted((value.replace("&{", "${") for value in values), reverse=True)
    return texts[0] if len(texts) == 1 else texts


def _principals(blocks: Iterable[Mapping[str, Any]]) -> str | dict[str, str | list[str]]:
    identifiers: dict[str, list[str]] = {}
    for block in blocks:
        identifiers.setdefault(block["type"], []).extend(block["identifiers"])
    if identifiers == {"*": ["*"]}:
        return "*"
    return {principal: _string_or_list(identifiers[principal]) for principal in sorted(identifiers)}


def _conditions(blocks: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str | list[str]]]:
    by_test: dict[str, dict[str, list[str]]] = {}
    for block in blocks:
        by_test.setdefault(block["test"], {}).setdefault(block["variable"], []).extend(block["values"])
    return {
        test: {name: _string_or_list(values) for name, values in sorted(variables.items())}
        for test, variables in sorted(by_test.items())
    }


def _statement(block: Mapping[str, Any]) -> dict[str, Any]:
    statement: dict[str, Any] = {"Sid": block["sid"]} if block.get("sid") else {}
    statement["Effect"] = block.get("effect") or "Allow"
    statement |= {name: _string_or_list(block[key]) for key, name in _LISTS.items() if block.get(key)}
    statement |= {name: _principals(block[key]) for key, name in _PRINCIPALS.items() if block.get(key)}
    return statement | ({"Condition": _conditions(block["conditions"])} if block.get("conditions") else {})


def _refuse_duplicate_sids(statements: Iterable[Mapping[str, Any]]) -> None:
    sids = [statement["Sid"] for statement in statements if statement.get("Sid")]
    for sid in sids:
        if sids.count(sid) > 1:
            raise ResourceError("InvalidInput", f"duplicate Sid ({sid})", key="statements")


def _text(document: Mapping[str, Any], indent: int | None) -> str:
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(document, indent=indent, separators=separators, ensure_ascii=False)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _document(aws: Aws, args: Props) -> dict[str, Any]:
    statements = [_statement(block) for block in args.get("statements") or []]
    _refuse_duplicate_sids(statements)
    version = args.get("version") or "2012-10-17"
    policy_id = {"Id": args["policyId"]} if args.get("policyId") else {}
    document = {"Version": version, **policy_id, **({"Statement": statements} if statements else {})}
    text = _text(document, 2)
    return {
        "id": str(crc32(text.encode())),
        "json": text,
        "minifiedJson": _text(document, None),
        "version": version,
    }


POLICY_DOCUMENT = Lookup(
    "aws:iam/getPolicyDocument:getPolicyDocument",
    frozenset({"policyId", "statements", "version"}),
    _document,
)
