"""IAM policies: managed ones, those inside a role, and the attachment of one to the other."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.limits import Text, beyond
from bedplate.rehearsal.kinds.policy_document import IDENTITY, malformed
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_NAME = Text(1, 128, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")
# Quotas of IAM: characters of a managed policy, and of all policies inside one role, white space not counted.
_LARGEST_MANAGED, _LARGEST_INLINE = 6144, 10240
_TAGS = Tagger(service="iam", add="tag_policy", remove="untag_policy", ident="PolicyArn")


def _refuse_long(document: str, most: int) -> None:
    if len("".join(document.split())) > most:
        raise Refusal("LimitExceeded", f"Cannot exceed quota for policy size: {most}", key="policy")


def _create(aws: Aws, inputs: Props) -> str:
    _refuse_long(inputs["policy"], _LARGEST_MANAGED)
    made = aws.call(
        "iam",
        "create_policy",
        PolicyName=chosen_name(inputs),
        Path=inputs.get("path") or "/",
        PolicyDocument=inputs["policy"],
        Description=inputs.get("description") or "",
        Tags=tag_pairs(inputs.get("tags")),
    )
    arn: str = made["Policy"]["Arn"]
    return arn


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("policy") != new["policy"]:
        _refuse_long(new["policy"], _LARGEST_MANAGED)
        _prune(aws, ident, keep=4)
        document = new["policy"]
        aws.call("iam", "create_policy_version", PolicyArn=ident, PolicyDocument=document, SetAsDefault=True)
    _TAGS.retag(aws, ident, old, new)


def _prune(aws: Aws, ident: str, *, keep: int) -> None:
    """Delete the oldest versions: IAM keeps five, and the provider makes room for the next."""
    versions = aws.call("iam", "list_policy_versions", PolicyArn=ident)["Versions"]
    spare = sorted((one for one in versions if not one["IsDefaultVersion"]), key=lambda one: one["CreateDate"])
    for one in spare[: max(0, len(versions) - keep)]:
        aws.call("iam", "delete_policy_version", PolicyArn=ident, VersionId=one["VersionId"])


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("iam", "get_policy", PolicyArn=ident)["Policy"]
    return {
        "arn": ident,
        "attachmentCount": found["AttachmentCount"],
        "name": found["PolicyName"],
        "policyId": found["PolicyId"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    _prune(aws, ident, keep=1)
    aws.call("iam", "delete_policy", PolicyArn=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"name": _NAME, "description": Text(0, 1000)})
    yield from malformed(inputs, form=IDENTITY)


POLICY = Kind(
    token="aws:iam/policy:Policy",
    inputs=updates("policy", "tags", "delayAfterPolicyCreationInMs")
    | replaces("name", "namePrefix", "path", "description"),
    defaults={"path": "/"},
    computed=frozenset({"name", "namePrefix"}),
    naming=Naming(longest=128),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)


def _put_inline(aws: Aws, inputs: Props) -> str:
    _refuse_long(inputs["policy"], _LARGEST_INLINE)
    role, name = inputs["role"], chosen_name(inputs)
    aws.call("iam", "put_role_policy", RoleName=role, PolicyName=name, PolicyDocument=inputs["policy"])
    return f"{role}:{name}"


def _update_inline(aws: Aws, ident: str, old: Props, new: Props) -> None:
    role, _, name = ident.partition(":")
    _refuse_long(new["policy"], _LARGEST_INLINE)
    aws.call("iam", "put_role_policy", RoleName=role, PolicyName=name, PolicyDocument=new["policy"])


def _read_inline(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    role, _, name = ident.partition(":")
    aws.call("iam", "get_role_policy", RoleName=role, PolicyName=name)
    return {"name": name, "role": role}


def _delete_inline(aws: Aws, ident: str, outputs: Props) -> None:
    role, _, name = ident.partition(":")
    aws.call("iam", "delete_role_policy", RoleName=role, PolicyName=name)


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
