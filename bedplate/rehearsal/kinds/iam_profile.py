"""Instance profiles: what carries a role onto an EC2 instance."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.limits import Text, beyond
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.simulation import Aws

_TAGS = Tagger(service="iam", add="tag_instance_profile", remove="untag_instance_profile", ident="InstanceProfileName")


def _create(aws: Aws, inputs: Props) -> str:
    name, path = chosen_name(inputs), inputs.get("path") or "/"
    tags = tag_pairs(inputs.get("tags"))
    aws.call("iam", "create_instance_profile", InstanceProfileName=name, Path=path, Tags=tags)
    with undoing(lambda: _delete(aws, name, inputs)):
        _carry(aws, name, None, inputs.get("role"))
    return name


def _carry(aws: Aws, name: str, old: str | None, new: str | None) -> None:
    if old and old != new:
        aws.call("iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=old)
    if new and old != new:
        aws.call("iam", "add_role_to_instance_profile", InstanceProfileName=name, RoleName=new)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _carry(aws, ident, old.get("role"), new.get("role"))
    _TAGS.retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("iam", "get_instance_profile", InstanceProfileName=ident)["InstanceProfile"]
    return {
        "arn": found["Arn"],
        "createDate": found["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        "name": ident,
        "role": found["Roles"][0]["RoleName"] if found["Roles"] else "",
        "uniqueId": found["InstanceProfileId"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    found = aws.call("iam", "get_instance_profile", InstanceProfileName=ident)["InstanceProfile"]
    for role in found["Roles"]:
        _carry(aws, ident, role["RoleName"], None)
    aws.call("iam", "delete_instance_profile", InstanceProfileName=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"name": Text(1, 128, r"[\w+=,.@-]+", "letters, digits and +=,.@-_")})


INSTANCE_PROFILE = Kind(
    token="aws:iam/instanceProfile:InstanceProfile",
    inputs=updates("role", "tags") | replaces("name", "namePrefix", "path"),
    defaults={"path": "/"},
    computed=frozenset({"name", "namePrefix"}),
    naming=Naming(longest=128),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
