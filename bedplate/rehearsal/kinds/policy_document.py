"""IAM policy documents: their parts, and the checks that moto does not make."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

Statement = Mapping[str, Any]


def statements(document: Mapping[str, Any]) -> list[Any]:
    """Return the statements of a policy as a list."""
    return _as_list(document["Statement"])


def actions(statement: Statement) -> list[str]:
    """Return the actions that a statement names."""
    return _as_list(statement.get("Action", []))


def resources(statement: Statement) -> list[str]:
    """Return the resources that a statement names."""
    return _as_list(statement.get("Resource", []))


def principals(statement: Statement) -> list[str]:
    """Return the AWS principals of a statement: accounts, users and roles."""
    principal = statement.get("Principal")
    return _as_list(principal.get("AWS", [])) if isinstance(principal, Mapping) else _as_list(principal or [])


def allows_everyone(document: str) -> bool:
    """Return whether a policy allows any action to all principals without a condition."""
    return any(
        statement.get("Effect") == "Allow" and "*" in principals(statement) and not statement.get("Condition")
        for statement in statements(json.loads(document))
    )


def allows_account(document: str, account: str, action: str) -> bool:
    """Return whether a policy allows an action to a principal of an account, such as changing the policy."""
    return any(
        statement.get("Effect") == "Allow"
        and any(principal in ("*", account) or f"::{account}:" in principal for principal in principals(statement))
        and any(fnmatchcase(action.lower(), pattern.lower()) for pattern in actions(statement))
        for statement in statements(json.loads(document))
    )


def foreign_resources(document: str, arn: str) -> list[str]:
    """Return the resources of a policy that are neither `arn` nor inside it, after wildcards."""
    names = (resource for statement in statements(json.loads(document)) for resource in resources(statement))
    return [name for name in names if not _covers(name, arn)]


def _covers(resource: str, arn: str) -> bool:
    stem = resource.partition("*")[0].partition("?")[0]
    return resource == arn or stem.startswith(f"{arn}/") or (stem != resource and f"{arn}/".startswith(stem))


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401  # one JSON value, or a list of them
    return value if isinstance(value, list) else [value]


_VERSIONS = ("2012-10-17", "2008-10-17")
_PRINCIPAL_ELEMENTS, _ACTION_ELEMENTS, _RESOURCE_ELEMENTS = (
    ("Principal", "NotPrincipal"),
    ("Action", "NotAction"),
    ("Resource", "NotResource"),
)
_ELEMENTS = frozenset({"Sid", "Effect", "Condition", *_PRINCIPAL_ELEMENTS, *_ACTION_ELEMENTS, *_RESOURCE_ELEMENTS})
# `*`, an account, an ARN, or an id of a deleted principal: IAM user guide, "AWS JSON policy elements: Principal".
_PRINCIPAL = re.compile(r"\*|\d{12}|arn:aws[a-z-]*:(iam|sts)::(\d{12}|cloudfront):.+|A[A-Z0-9]{15,}")


@dataclass(frozen=True, slots=True)
class PolicyForm:
    """The elements that a statement must have and must not have, by type of policy; `service` limits its actions."""

    required: tuple[tuple[str, str], ...]
    forbidden: tuple[str, ...] = ()
    service: str = ""
    sid: str = r"[\s\S]*"


IDENTITY_FORM = PolicyForm((_ACTION_ELEMENTS, _RESOURCE_ELEMENTS), forbidden=_PRINCIPAL_ELEMENTS, sid=r"[A-Za-z0-9]*")
TRUST_FORM = PolicyForm(
    (_PRINCIPAL_ELEMENTS, _ACTION_ELEMENTS), forbidden=_RESOURCE_ELEMENTS, service="sts", sid=r"[A-Za-z0-9]*"
)
RESOURCE_FORM = PolicyForm((_PRINCIPAL_ELEMENTS, _ACTION_ELEMENTS, _RESOURCE_ELEMENTS))
FILE_SYSTEM_FORM = PolicyForm((_PRINCIPAL_ELEMENTS, _ACTION_ELEMENTS))
BUCKET_FORM = PolicyForm((_PRINCIPAL_ELEMENTS, _ACTION_ELEMENTS, _RESOURCE_ELEMENTS), service="s3")


def check_policy(inputs: Props, key: str = "policy", form: PolicyForm = RESOURCE_FORM) -> Iterator[InvalidInput]:
    """Yield an error when the policy under `key` is not valid for its form."""
    value = inputs.get(key)
    if is_known(value) and value != "" and (reason := _document_error(value, form)):
        yield InvalidInput(key, reason)


def _document_error(document: object, form: PolicyForm) -> str:
    try:
        policy = json.loads(str(document))
    except ValueError as error:
        return f"contains invalid JSON: {error}"
    if not isinstance(policy, dict) or not policy.get("Statement"):
        return "has no statement (MalformedPolicyDocument)"
    if policy.get("Version", _VERSIONS[0]) not in _VERSIONS:
        return f"must have Version {' or '.join(_VERSIONS)} (MalformedPolicyDocument)"
    errors = (error for statement in statements(policy) for error in _statement_errors(statement, form))
    return next((f"{error} (MalformedPolicyDocument)" for error in errors), "")


def _statement_errors(statement: Any, form: PolicyForm) -> Iterator[str]:  # noqa: ANN401  # JSON of any shape
    if not isinstance(statement, Mapping):
        yield f"has a statement that is not an object: {statement!r}"
        return
    if statement.get("Effect") not in ("Allow", "Deny"):
        yield f"must have Effect Allow or Deny, not {statement.get('Effect')!r}"
    for element in sorted(statement.keys() - _ELEMENTS):
        yield f"has the unknown element {element}"
    for elements in form.required:
        if not any(statement.get(element) for element in elements):
            yield f"has no {elements[0]}"
    for element in form.forbidden:
        if element in statement:
            yield f"must not have {element}"
    if not re.fullmatch(form.sid, str(statement.get("Sid", ""))):
        yield "has a Sid that is not alphanumeric"
    yield from _value_errors(statement, form)


def _value_errors(statement: Mapping[str, Any], form: PolicyForm) -> Iterator[str]:
    for action in actions(statement):
        if form.service and action != "*" and not action.lower().startswith(f"{form.service}:"):
            yield f"has the action {action}, only actions of {form.service} are allowed"
    for principal in principals(statement):
        if not _PRINCIPAL.fullmatch(principal):
            yield f"has the invalid principal {principal}"


def require_principals(aws: Aws, document: str, code: str) -> None:
    """Refuse, with `code`, a policy that names a role of this account that does not exist."""
    role_prefix = f"arn:aws:iam::{aws.account}:role/"
    for principal in (name for statement in statements(json.loads(document)) for name in principals(statement)):
        if principal.startswith(role_prefix):
            try:
                aws.call("iam", "get_role", RoleName=principal.rpartition("/")[2])
            except ResourceError:
                raise ResourceError(code, f"Invalid principal in policy: {principal}", key="policy") from None
