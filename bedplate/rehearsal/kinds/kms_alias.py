"""KMS aliases: names of keys that can move from one key to another."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.limits import Text, beyond
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_NAME = Text(7, 256, r"alias/[a-zA-Z0-9/_-]+", "alias/ and then letters, digits and /_-")


def _key(aws: Aws, inputs: Props) -> dict[str, Any]:
    found: dict[str, Any] = aws.call("kms", "describe_key", KeyId=inputs["targetKeyId"])["KeyMetadata"]
    return found


def _create(aws: Aws, inputs: Props) -> str:
    name = chosen_name(inputs)
    aws.call("kms", "create_alias", AliasName=name, TargetKeyId=_key(aws, inputs)["KeyId"])
    return name


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    aws.call("kms", "update_alias", AliasName=ident, TargetKeyId=_key(aws, new)["KeyId"])


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aliases = aws.call("kms", "list_aliases")["Aliases"]
    found = [one for one in aliases if one["AliasName"] == ident]
    if not found:
        raise Refusal("NotFoundException", f"Alias {ident} is not found.")
    key = aws.call("kms", "describe_key", KeyId=found[0]["TargetKeyId"])["KeyMetadata"]
    return {"arn": aws.arn("kms", ident), "name": ident, "targetKeyArn": key["Arn"]}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("kms", "delete_alias", AliasName=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"name": _NAME})
    name = inputs.get("name")
    if is_known(name) and str(name).startswith("alias/aws/"):
        yield Complaint("name", f"{name}: names that begin with alias/aws/ are AWS's own")


ALIAS = Kind(
    token="aws:kms/alias:Alias",
    inputs=updates("targetKeyId") | replaces("name", "namePrefix"),
    computed=frozenset({"name", "namePrefix"}),
    moves=frozenset({"targetKeyArn"}),
    naming=Naming(prefix="alias/", longest=256),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
