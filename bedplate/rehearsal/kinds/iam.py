"""IAM roles: who may take them, and the policies that a program attaches in place."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Number, Tagger, Text, beyond, chosen_name, tag_pairs, together, undoing
from bedplate.rehearsal.kinds.policy_document import IDENTITY, TRUST, malformed, refuse_strangers
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal

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


_IAM_POLICY_NAME = Text(1, 128, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")
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


def _iam_policy_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"name": _IAM_POLICY_NAME})
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
    complaints=_iam_policy_complaints,
)


def _iam_policy_attach(aws: Aws, inputs: Props) -> str:
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
    create=_iam_policy_attach,
    read=_read_attachment,
    delete=_detach,
    delete_first=True,
)


_IAM_PROFILE_TAGS = Tagger(
    service="iam", add="tag_instance_profile", remove="untag_instance_profile", ident="InstanceProfileName"
)


def _iam_profile_create(aws: Aws, inputs: Props) -> str:
    name, path = chosen_name(inputs), inputs.get("path") or "/"
    tags = tag_pairs(inputs.get("tags"))
    aws.call("iam", "create_instance_profile", InstanceProfileName=name, Path=path, Tags=tags)
    with undoing(lambda: _iam_profile_delete(aws, name, inputs)):
        _carry(aws, name, None, inputs.get("role"))
    return name


def _carry(aws: Aws, name: str, old: str | None, new: str | None) -> None:
    if old and old != new:
        aws.call("iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=old)
    if new and old != new:
        aws.call("iam", "add_role_to_instance_profile", InstanceProfileName=name, RoleName=new)


def _iam_profile_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _carry(aws, ident, old.get("role"), new.get("role"))
    _IAM_PROFILE_TAGS.retag(aws, ident, old, new)


def _iam_profile_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("iam", "get_instance_profile", InstanceProfileName=ident)["InstanceProfile"]
    return {
        "arn": found["Arn"],
        "createDate": found["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        "name": ident,
        "role": found["Roles"][0]["RoleName"] if found["Roles"] else "",
        "uniqueId": found["InstanceProfileId"],
    }


def _iam_profile_delete(aws: Aws, ident: str, outputs: Props) -> None:
    found = aws.call("iam", "get_instance_profile", InstanceProfileName=ident)["InstanceProfile"]
    for role in found["Roles"]:
        _carry(aws, ident, role["RoleName"], None)
    aws.call("iam", "delete_instance_profile", InstanceProfileName=ident)


def _iam_profile_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"name": Text(1, 128, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")})


INSTANCE_PROFILE = Kind(
    token="aws:iam/instanceProfile:InstanceProfile",
    inputs=updates("role", "tags") | replaces("name", "namePrefix", "path"),
    defaults={"path": "/"},
    computed=frozenset({"name", "namePrefix"}),
    naming=Naming(longest=128),
    create=_iam_profile_create,
    read=_iam_profile_read,
    update=_iam_profile_update,
    delete=_iam_profile_delete,
    complaints=_iam_profile_complaints,
)
