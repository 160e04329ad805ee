"""Policy documents: JSON with statements; moto looks into some of them and takes the rest as they come."""

import json
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known


def _fault(document: object) -> str:
    try:
        found = json.loads(str(document))
    except ValueError as error:
        return f"contains invalid JSON: {error}"
    if not isinstance(found, dict) or not found.get("Statement"):
        return "MalformedPolicyDocument: the document has no statement"
    given = found["Statement"]
    statements = given if isinstance(given, list) else [given]
    broken = [one for one in statements if one.get("Effect") not in ("Allow", "Deny")]
    return f"MalformedPolicyDocument: Effect is neither Allow nor Deny in {broken[0]}" if broken else ""


def malformed(inputs: Props, key: str = "policy") -> Iterator[Complaint]:
    """Yield a complaint when the policy under `key` is no policy."""
    value = inputs.get(key)
    if is_known(value) and value != "" and (reason := _fault(value)):
        yield Complaint(key, reason)


def _principals(document: str) -> Iterator[str]:
    given: Any = json.loads(document)["Statement"]
    for statement in given if isinstance(given, list) else [given]:
        who = statement.get("Principal")
        named = who.get("AWS", []) if isinstance(who, dict) else []
        yield from [named] if isinstance(named, str) else named


def refuse_strangers(aws: Aws, document: str, code: str) -> None:
    """Refuse, with `code`, a policy that names a role of this account that does not exist."""
    own = f"arn:aws:iam::{aws.account}:role/"
    for principal in _principals(document):
        if principal.startswith(own):
            try:
                aws.call("iam", "get_role", RoleName=principal.rpartition("/")[2])
            except Refusal:
                raise Refusal(code, f"Invalid principal in policy: {principal}", key="policy") from None
