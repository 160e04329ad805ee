"""Placement groups: how near to each other instances stand. Faked: moto has none."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, Support, replaces, updates
from bedplate.rehearsal.kinds.fake_store import forget, keep, kept, new_id
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

TOKEN = "aws:ec2/placementGroup:PlacementGroup"  # noqa: S105  # the name of a type, no secret
UNKNOWN_GROUP = "InvalidPlacementGroup.Unknown"
_LIMITS = {
    "name": Text(1, 255),
    "strategy": Choice(("cluster", "partition", "spread")),
    "partitionCount": Number(1, 7),
    "spreadLevel": Choice(("host", "rack")),
}


def _create(aws: Aws, inputs: Props) -> str:
    name: str = inputs["name"]
    if f"{aws.region}/{name}" in aws.fakes(TOKEN):
        raise Refusal("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    keep(aws, TOKEN, name, {"placementGroupId": new_id("pg"), **inputs})
    return name


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    keep(aws, TOKEN, ident, {**kept(aws, TOKEN, ident, UNKNOWN_GROUP), **new})


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = kept(aws, TOKEN, ident, UNKNOWN_GROUP)
    strategy = found.get("strategy")
    return {
        "arn": aws.arn("ec2", f"placement-group/{ident}"),
        "partitionCount": found.get("partitionCount") or (2 if strategy == "partition" else 0),
        "placementGroupId": found["placementGroupId"],
        "spreadLevel": found.get("spreadLevel") or ("rack" if strategy == "spread" else ""),
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    forget(aws, TOKEN, ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    pairs = (("partitionCount", "partition"), ("spreadLevel", "spread"))
    for key, strategy in pairs:
        if inputs.get(key) is not None and inputs.get("strategy") != strategy:
            yield Complaint(key, f"goes with the strategy {strategy} only")


PLACEMENT_GROUP = Kind(
    token=TOKEN,
    inputs=updates("tags") | replaces("name", "partitionCount", "spreadLevel", "strategy"),
    computed=frozenset({"partitionCount", "spreadLevel"}),
    naming=Naming(longest=255),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    support=Support.FAKED,
    note="moto has no placement groups",
)
