"""IAM roles: who may take them, and the policies that a program attaches in place."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.limits import Number, Text, beyond, together
from bedplate.rehearsal.kinds.policy_document import TRUST, malformed, refuse_strangers
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws

# IAM user guide, "IAM and AWS STS quotas", and the API's pattern of names.
_NAME = Text(1, 64, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")
_LIMITS = {
    "name": _NAME,
    "namePrefix": Text(1, 38, r"[\w+=,.@-]+", "letters, digits and +=,.@-_"),
    "path": Text(1, 512, r"/([!-\x7f]*/)?", "a path that begins and ends with /"),
    "description": Text(0, 1000),
    "maxSessionDuration": Number(3600, 43200),
}
_APART = ("name", "namePrefix", "tags", "forceDetachPolicies", "managedPolicyArns", "inlinePolicies")
_TAGS = Tagger(service="iam", add="tag_role", remove="untag_role", ident="RoleName")


def _create(aws: Aws, inputs: Props) -> str:
    refuse_strangers(aws, inputs["assumeRolePolicy"], "MalformedPolicyDocument")
    renames = {"assumeRolePolicy": "AssumeRolePolicyDocument"}
    params = placed(aws, ("iam", "create_role"), inputs, apart=_APART, renames=renames)
    name = chosen_name(inputs)
    aws.call("iam", "create_role", RoleName=name, Tags=tag_pairs(inputs.get("tags")), **params)
    with undoing(lambda: _delete(aws, name, {"forceDetachPolicies": True})):
        _attach(aws, name, {}, inputs)
    return name


def _attach(aws: Aws, name: str, old: Props, new: Props) -> None:
    before, after = set(old.get("managedPolicyArns") or ()), set(new.get("managedPolicyArns") or ())
    for arn in sorted(before - after):
        aws.call("iam", "detach_role_policy", RoleName=name, PolicyArn=arn)
    for arn in sorted(after - before):
        aws.call("iam", "attach_role_policy", RoleName=name, PolicyArn=arn)
    held = {one["name"] for one in old.get("inlinePolicies") or ()}
    wanted = {one["name"]: one["policy"] for one in new.get("inlinePolicies") or ()}
    for policy in sorted(held - wanted.keys()):
        aws.call("iam", "delete_role_policy", RoleName=name, PolicyName=policy)
    for policy, document in sorted(wanted.items()):
        aws.call("iam", "put_role_policy", RoleName=name, PolicyName=policy, PolicyDocument=document)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("assumeRolePolicy") != new["assumeRolePolicy"]:
        refuse_strangers(aws, new["assumeRolePolicy"], "MalformedPolicyDocument")
        document = new["assumeRolePolicy"]
        aws.call("iam", "update_assume_role_policy", RoleName=ident, PolicyDocument=document)
    aws.call(
        "iam",
        "update_role",
        RoleName=ident,
        Description=new.get("description") or "",
        MaxSessionDuration=new.get("maxSessionDuration") or 3600,
    )
    _bound(aws, ident, old.get("permissionsBoundary"), new.get("permissionsBoundary"))
    _attach(aws, ident, old, new)
    _TAGS.retag(aws, ident, old, new)


def _bound(aws: Aws, ident: str, old: str | None, new: str | None) -> None:
    if new and new != old:
        aws.call("iam", "put_role_permissions_boundary", RoleName=ident, PermissionsBoundary=new)
    elif old and not new:
        aws.call("iam", "delete_role_permissions_boundary", RoleName=ident)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("iam", "get_role", RoleName=ident)["Role"]
    attached = aws.call("iam", "list_attached_role_policies", RoleName=ident)["AttachedPolicies"]
    return {
        "arn": found["Arn"],
        "createDate": found["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        "managedPolicyArns": sorted(policy["PolicyArn"] for policy in attached),
        "maxSessionDuration": found["MaxSessionDuration"],
        "name": ident,
        "uniqueId": found["RoleId"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("forceDetachPolicies") or outputs.get("managedPolicyArns"):
        for policy in aws.call("iam", "list_attached_role_policies", RoleName=ident)["AttachedPolicies"]:
            aws.call("iam", "detach_role_policy", RoleName=ident, PolicyArn=policy["PolicyArn"])
    if outputs.get("forceDetachPolicies") or outputs.get("inlinePolicies"):
        for name in aws.call("iam", "list_role_policies", RoleName=ident)["PolicyNames"]:
            aws.call("iam", "delete_role_policy", RoleName=ident, PolicyName=name)
    aws.call("iam", "delete_role", RoleName=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from together(inputs, "name", "namePrefix")
    yield from malformed(inputs, "assumeRolePolicy", TRUST)


ROLE = Kind(
    token="aws:iam/role:Role",
    inputs=updates("assumeRolePolicy", "description", "forceDetachPolicies", "maxSessionDuration")
    | updates("permissionsBoundary", "managedPolicyArns", "inlinePolicies", "tags")
    | replaces("name", "namePrefix", "path"),
    defaults={"forceDetachPolicies": False, "maxSessionDuration": 3600, "path": "/"},
    computed=frozenset({"name", "namePrefix", "managedPolicyArns", "inlinePolicies"}),
    sets=frozenset({"managedPolicyArns", "inlinePolicies"}),
    naming=Naming(longest=64),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
