"""IAM roles with their policies, instance profiles, providers of OpenID Connect; and the checks of policy documents."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import call_with, copied, deletes
from bedplate.rehearsal.kinds.limits import (
    Items,
    Tagger,
    Text,
    checks,
    rollback,
    tag_pairs,
)
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


def names_principal(document: str, arn: str, action: str) -> bool:
    """Return whether a statement allows an action to a principal by name: as such, or of all by `aws:PrincipalArn`."""
    for statement in statements(json.loads(document)):
        tests = [*(statement.get("Condition") or {}).values()]
        names = [name for test in tests for name in _as_list(test.get("aws:PrincipalArn", []))]
        named = principals(statement) if "*" not in principals(statement) else names
        if statement.get("Effect") == "Allow" and arn in named and action in actions(statement):
            return True
    return False


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
_PRINCIPAL_ELEMENTS = ("Principal", "NotPrincipal")
_ACTION_ELEMENTS = ("Action", "NotAction")
_RESOURCE_ELEMENTS = ("Resource", "NotResource")
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


# --- Roles

# IAM user guide, "IAM and AWS STS quotas", and the API's pattern of names.
_NAME = Text(1, 64, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")
_LIMITS = {
    "name": _NAME,
    "description": Text(0, 1000),
}
_SEPARATE = ("name", "tags")
_SESSION_SECONDS = 3600
_TAGS = Tagger(service="iam", add="tag_role", remove="untag_role", ident="RoleName")


def _create_role(aws: Aws, inputs: Props) -> str:
    require_principals(aws, inputs["assumeRolePolicy"], "MalformedPolicyDocument")
    name, tags = str(inputs["name"]), tag_pairs(inputs.get("tags"))
    renames = {"assumeRolePolicy": "AssumeRolePolicyDocument"}
    call_with(aws, ("iam", "create_role"), inputs, apart=_SEPARATE, renames=renames, RoleName=name, Tags=tags)
    return name


def _read_role(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    role = aws.call("iam", "get_role", RoleName=ident)["Role"]
    return {
        **copied(role, "arn", "maxSessionDuration", uniqueId="RoleId"),
        "createDate": role["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        "name": ident,
    }


def _update_role(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("assumeRolePolicy") != new["assumeRolePolicy"]:
        require_principals(aws, new["assumeRolePolicy"], "MalformedPolicyDocument")
        document = new["assumeRolePolicy"]
        aws.call("iam", "update_assume_role_policy", RoleName=ident, PolicyDocument=document)
    aws.call(
        "iam",
        "update_role",
        RoleName=ident,
        Description=new.get("description") or "",
        MaxSessionDuration=_SESSION_SECONDS,
    )
    _set_boundary(aws, ident, old.get("permissionsBoundary"), new.get("permissionsBoundary"))
    _TAGS.retag(aws, ident, old, new)


def _set_boundary(aws: Aws, ident: str, old: str | None, new: str | None) -> None:
    if new and new != old:
        aws.call("iam", "put_role_permissions_boundary", RoleName=ident, PermissionsBoundary=new)
    elif old and not new:
        aws.call("iam", "delete_role_permissions_boundary", RoleName=ident)


ROLE = ResourceKind(
    token="aws:iam/role:Role",
    inputs=updates("assumeRolePolicy", "description", "permissionsBoundary", "tags") | replaces("name"),
    naming=Naming(longest=64),
    create=_create_role,
    read=_read_role,
    update=_update_role,
    delete=deletes("iam", "delete_role", "RoleName"),
    complaints=checks(
        _LIMITS,
        partial(check_policy, key="assumeRolePolicy", form=TRUST_FORM),
    ),
)


# --- Inline policies of roles

_POLICY_NAME = Text(1, 128, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")
_MAX_POLICY_SIZE = 10240  # characters of all inline policies of a role, without white space: IAM quotas


def _create_policy(aws: Aws, inputs: Props) -> str:
    ident = f"{inputs['role']}:{inputs['name']}"
    _update_policy(aws, ident, {}, inputs)
    return ident


def _read_policy(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    role, _, name = ident.partition(":")
    aws.call("iam", "get_role_policy", RoleName=role, PolicyName=name)
    return {"name": name, "role": role}


def _update_policy(aws: Aws, ident: str, old: Props, new: Props) -> None:
    role, _, name = ident.partition(":")
    if len("".join(new["policy"].split())) > _MAX_POLICY_SIZE:
        raise ResourceError("LimitExceeded", f"Cannot exceed quota for policy size: {_MAX_POLICY_SIZE}", key="policy")
    aws.call("iam", "put_role_policy", RoleName=role, PolicyName=name, PolicyDocument=new["policy"])


ROLE_POLICY = ResourceKind(
    token="aws:iam/rolePolicy:RolePolicy",
    inputs=updates("policy") | replaces("name", "role"),
    naming=Naming(longest=128),
    create=_create_policy,
    read=_read_policy,
    update=_update_policy,
    delete=deletes("iam", "delete_role_policy", "RoleName", "PolicyName", separator=":"),
    complaints=checks({"name": _POLICY_NAME}, partial(check_policy, form=IDENTITY_FORM)),
)


# --- Instance profiles

_PROFILE_TAGS = Tagger(
    service="iam", add="tag_instance_profile", remove="untag_instance_profile", ident="InstanceProfileName"
)


def _create_profile(aws: Aws, inputs: Props) -> str:
    name, tags = str(inputs["name"]), tag_pairs(inputs.get("tags"))
    aws.call("iam", "create_instance_profile", InstanceProfileName=name, Tags=tags)
    with rollback(lambda: _delete_profile(aws, name, inputs)):
        _set_role(aws, name, None, inputs.get("role"))
    return name


def _set_role(aws: Aws, name: str, old: str | None, new: str | None) -> None:
    if old and old != new:
        aws.call("iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=old)
    if new and old != new:
        aws.call("iam", "add_role_to_instance_profile", InstanceProfileName=name, RoleName=new)


def _read_profile(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    profile = aws.call("iam", "get_instance_profile", InstanceProfileName=ident)["InstanceProfile"]
    return {
        **copied(profile, "arn", uniqueId="InstanceProfileId"),
        "createDate": profile["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        "name": ident,
        "role": profile["Roles"][0]["RoleName"] if profile["Roles"] else "",
    }


def _update_profile(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _set_role(aws, ident, old.get("role"), new.get("role"))
    _PROFILE_TAGS.retag(aws, ident, old, new)


def _delete_profile(aws: Aws, ident: str, outputs: Props) -> None:
    profile = aws.call("iam", "get_instance_profile", InstanceProfileName=ident)["InstanceProfile"]
    for role in profile["Roles"]:
        _set_role(aws, ident, role["RoleName"], None)
    aws.call("iam", "delete_instance_profile", InstanceProfileName=ident)


INSTANCE_PROFILE = ResourceKind(
    token="aws:iam/instanceProfile:InstanceProfile",
    inputs=updates("role", "tags") | replaces("name"),
    naming=Naming(longest=128),
    create=_create_profile,
    read=_read_profile,
    update=_update_profile,
    delete=_delete_profile,
    complaints=checks({"name": Text(1, 128, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")}),
)


# --- Providers of OpenID Connect

_PROVIDER_LIMITS = {
    "url": Text(1, 255, r"https://[^:?#]+", "an address that begins with https://, without port and query"),
    "clientIdLists": Items(100, "ids"),
}
_PROVIDER_TAGS = Tagger(
    service="iam",
    add="tag_open_id_connect_provider",
    remove="untag_open_id_connect_provider",
    ident="OpenIDConnectProviderArn",
)


def _create_provider(aws: Aws, inputs: Props) -> str:
    response = aws.call(
        "iam",
        "create_open_id_connect_provider",
        Url=inputs["url"],
        ClientIDList=inputs["clientIdLists"],
        ThumbprintList=[],
        Tags=tag_pairs(inputs.get("tags")),
    )
    return str(response["OpenIDConnectProviderArn"])


def _read_provider(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    provider = aws.call("iam", "get_open_id_connect_provider", OpenIDConnectProviderArn=ident)
    return {"arn": ident, "thumbprintLists": provider["ThumbprintList"]}


def _update_provider(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if sorted(old["clientIdLists"]) != sorted(new["clientIdLists"]):
        # moto lacks the calls that add and remove ids. The new provider has the same ARN.
        _delete_provider(aws, ident, old)
        _create_provider(aws, new)
        return
    _PROVIDER_TAGS.retag(aws, ident, old, new)


_delete_provider = deletes("iam", "delete_open_id_connect_provider", "OpenIDConnectProviderArn")


OPEN_ID_CONNECT_PROVIDER = ResourceKind(
    token="aws:iam/openIdConnectProvider:OpenIdConnectProvider",
    inputs=updates("clientIdLists", "tags") | replaces("url"),
    sets=frozenset({"clientIdLists"}),
    create=_create_provider,
    read=_read_provider,
    update=_update_provider,
    delete=_delete_provider,
    complaints=checks(_PROVIDER_LIMITS),
)
