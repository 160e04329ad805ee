"""Policy documents: JSON with statements; moto looks into some of them and takes the rest as they come."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

Statement = Mapping[str, Any]


def statements(document: Mapping[str, Any]) -> list[Any]:
    """Return the statements of a policy, which may have one alone."""
    return _listed(document["Statement"])


def actions(statement: Statement) -> list[str]:
    """Return the actions that a statement names."""
    return _listed(statement.get("Action", []))


def resources(statement: Statement) -> list[str]:
    """Return the resources that a statement names."""
    return _listed(statement.get("Resource", []))


def principals(statement: Statement) -> list[str]:
    """Return who of AWS's accounts and their users and roles a statement names."""
    who = statement.get("Principal")
    return _listed(who.get("AWS", [])) if isinstance(who, Mapping) else _listed(who or [])


def invites_everybody(document: str) -> bool:
    """Tell whether a policy allows anything to everybody, with no condition."""
    return any(
        one.get("Effect") == "Allow" and "*" in principals(one) and not one.get("Condition")
        for one in statements(json.loads(document))
    )


def leaves_control(document: str, account: str, action: str) -> bool:
    """Tell whether a policy lets somebody of an account do an action, such as changing that policy."""
    return any(
        one.get("Effect") == "Allow"
        and any(who in ("*", account) or f"::{account}:" in who for who in principals(one))
        and any(fnmatchcase(action.lower(), pattern.lower()) for pattern in actions(one))
        for one in statements(json.loads(document))
    )


def strays(document: str, arn: str) -> list[str]:
    """Return the resources of a policy that are neither `arn` nor inside it; a wildcard may stand for either."""
    named = (resource for one in statements(json.loads(document)) for resource in resources(one))
    return [each for each in named if not _concerns(each, arn)]


def _concerns(resource: str, arn: str) -> bool:
    stem = resource.partition("*")[0].partition("?")[0]
    return resource == arn or stem.startswith(f"{arn}/") or (stem != resource and f"{arn}/".startswith(stem))


def _listed(value: Any) -> list[Any]:  # noqa: ANN401  # one JSON value, or a list of them
    return value if isinstance(value, list) else [value]


_VERSIONS = ("2012-10-17", "2008-10-17")
_WHO, _WHAT, _WHERE = ("Principal", "NotPrincipal"), ("Action", "NotAction"), ("Resource", "NotResource")
_FIELDS = frozenset({"Sid", "Effect", "Condition", *_WHO, *_WHAT, *_WHERE})
# IAM user guide, "AWS JSON policy elements: Principal": everybody, an account, an ARN, or the id of a former principal.
_PRINCIPAL = re.compile(r"\*|\d{12}|arn:aws[a-z-]*:(iam|sts)::(\d{12}|cloudfront):.+|A[A-Z0-9]{15,}")


@dataclass(frozen=True, slots=True)
class Form:
    """What each statement of a policy must and may not name, by where the policy stands; `service` owns its actions."""

    needed: tuple[tuple[str, str], ...]
    barred: tuple[str, ...] = ()
    service: str = ""
    sid: str = r"[\s\S]*"


IDENTITY = Form((_WHAT, _WHERE), barred=_WHO, sid=r"[A-Za-z0-9]*")
TRUST = Form((_WHO, _WHAT), barred=_WHERE, service="sts", sid=r"[A-Za-z0-9]*")
RESOURCE = Form((_WHO, _WHAT, _WHERE))
FILE_SYSTEM = Form((_WHO, _WHAT))
BUCKET = Form((_WHO, _WHAT, _WHERE), service="s3")


def malformed(inputs: Props, key: str = "policy", form: Form = RESOURCE) -> Iterator[Complaint]:
    """Yield a complaint when the policy under `key` is no policy of its form."""
    value = inputs.get(key)
    if is_known(value) and value != "" and (reason := _fault(value, form)):
        yield Complaint(key, reason)


def _fault(document: object, form: Form) -> str:
    try:
        found = json.loads(str(document))
    except ValueError as error:
        return f"contains invalid JSON: {error}"
    if not isinstance(found, dict) or not found.get("Statement"):
        return "MalformedPolicyDocument: the document has no statement"
    if found.get("Version", _VERSIONS[0]) not in _VERSIONS:
        return f"MalformedPolicyDocument: Version is none of {', '.join(_VERSIONS)}"
    faults = (fault for one in statements(found) for fault in _statement_faults(one, form))
    return next((f"MalformedPolicyDocument: {fault}" for fault in faults), "")


def _statement_faults(statement: Any, form: Form) -> Iterator[str]:  # noqa: ANN401  # JSON of any shape
    if not isinstance(statement, Mapping):
        yield f"{statement!r} is no statement"
        return
    if statement.get("Effect") not in ("Allow", "Deny"):
        yield f"Effect is neither Allow nor Deny in {statement}"
    for field in sorted(statement.keys() - _FIELDS):
        yield f"{field} is no element of a statement"
    for choice in form.needed:
        if not any(statement.get(field) for field in choice):
            yield f"Missing required field {choice[0]}"
    for field in form.barred:
        if field in statement:
            yield f"Has prohibited field {field}"
    if not re.fullmatch(form.sid, str(statement.get("Sid", ""))):
        yield "Statement IDs (SID) must be alpha-numeric"
    yield from _word_faults(statement, form)


def _word_faults(statement: Mapping[str, Any], form: Form) -> Iterator[str]:
    for action in actions(statement):
        if form.service and action != "*" and not action.lower().startswith(f"{form.service}:"):
            yield f"Policy has invalid action {action}: only those of {form.service}"
    for principal in principals(statement):
        if not _PRINCIPAL.fullmatch(principal):
            yield f"Invalid principal in policy: {principal}"


def refuse_strangers(aws: Aws, document: str, code: str) -> None:
    """Refuse, with `code`, a policy that names a role of this account that does not exist."""
    own = f"arn:aws:iam::{aws.account}:role/"
    for principal in (who for one in statements(json.loads(document)) for who in principals(one)):
        if principal.startswith(own):
            try:
                aws.call("iam", "get_role", RoleName=principal.rpartition("/")[2])
            except Refusal:
                raise Refusal(code, f"Invalid principal in policy: {principal}", key="policy") from None
