"""Inline policies of IAM roles, and attachments of managed ones."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.limits import Text, beyond
from bedplate.rehearsal.kinds.policy_document import IDENTITY, malformed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_NAME = Text(1, 128, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")
_LARGEST = 10240  # IAM's quota: characters of all policies of one role, white space not counted


def _refuse_long(document: str) -> None:
    if len("".join(document.split())) > _LARGEST:
        raise Refusal("LimitExceeded", f"Cannot exceed quota for policy size: {_LARGEST}", key="policy")


def _put_inline(aws: Aws, inputs: Props) -> str:
    _refuse_long(inputs["policy"])
    role, name = inputs["role"], chosen_name(inputs)
    aws.call("iam", "put_role_policy", RoleName=role, PolicyName=name, PolicyDocument=inputs["policy"])
    return f"{role}:{name}"


def _update_inline(aws: Aws, ident: str, old: Props, new: Props) -> None:
    role, _, name = ident.partition(":")
    _refuse_long(new["policy"])
    aws.call("iam", "put_role_policy", RoleName=role, PolicyName=name, PolicyDocument=new["policy"])


def _read_inline(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    role, _, name = ident.partition(":")
    aws.call("iam", "get_role_policy", RoleName=role, PolicyName=name)
    return {"name": name, "role": role}


def _delete_inline(aws: Aws, ident: str, outputs: Props) -> None:
    role, _, name = ident.partition(":")
    aws.call("iam", "delete_role_policy", RoleName=role, PolicyName=name)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"name": _NAME})
    yield from malformed(inputs, form=IDENTITY)


ROLE_POLICY = Kind(
    token="aws:iam/rolePolicy:RolePolicy",
    inputs=updates("policy") | replaces("name", "namePrefix", "role"),
    computed=frozenset({"name", "namePrefix"}),
    naming=Naming(longest=128),
    create=_put_inline,
    read=_read_inline,
    update=_update_inline,
    delete=_delete_inline,
    complaints=_complaints,
)


def _attach(aws: Aws, inputs: Props) -> str:
    aws.call("iam", "attach_role_policy", RoleName=inputs["role"], PolicyArn=inputs["policyArn"])
    return f"{inputs['role']}/{inputs['policyArn']}"


def _read_attachment(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    role, _, arn = ident.partition("/")
    attached = aws.call("iam", "list_attached_role_policies", RoleName=role)["AttachedPolicies"]
    if arn not in [policy["PolicyArn"] for policy in attached]:
        raise Refusal("NoSuchEntity", f"{arn} is not attached to {role}")
    return {"policyArn": arn, "role": role}


def _detach(aws: Aws, ident: str, outputs: Props) -> None:
    role, _, arn = ident.partition("/")
    aws.call("iam", "detach_role_policy", RoleName=role, PolicyArn=arn)


ROLE_POLICY_ATTACHMENT = Kind(
    token="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    inputs=replaces("role", "policyArn"),
    create=_attach,
    read=_read_attachment,
    delete=_detach,
    delete_first=True,
)
