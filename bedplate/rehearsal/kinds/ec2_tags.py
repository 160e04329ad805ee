"""Tags of EC2 resources: set and taken away by id, the same way for every type."""

from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.simulation import Aws


def tag(aws: Aws, ident: str, inputs: Props) -> str:
    """Give a new resource its tags; return its id."""
    retag(aws, ident, {}, inputs)
    return ident


def retag(aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Bring the tags of a resource from the old inputs' to the new ones'."""
    before, after = old.get("tags") or {}, new.get("tags") or {}
    if gone := sorted(before.keys() - after.keys()):
        aws.call("ec2", "delete_tags", Resources=[ident], Tags=[{"Key": key} for key in gone])
    if fresh := sorted(after.items() - before.items()):
        pairs = [{"Key": key, "Value": value} for key, value in fresh]
        aws.call("ec2", "create_tags", Resources=[ident], Tags=pairs)


def born_with(noun: str, inputs: Props) -> dict[str, Any]:
    """Return the parameter that gives a resource its tags as it is made: by them it can be found again."""
    pairs = [{"Key": key, "Value": value} for key, value in sorted((inputs.get("tags") or {}).items())]
    return {"TagSpecifications": [{"ResourceType": noun, "Tags": pairs}]} if pairs else {}
