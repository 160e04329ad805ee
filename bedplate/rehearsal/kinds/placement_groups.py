"""Placement groups, and the zones that offer an instance type.

moto lists the offered types of each zone, and yet launches any type in any zone: kinds check here first.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, Support, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Text, checks, new_id
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import holds_unknown


def offered_zones(aws: Aws, instance_type: str) -> frozenset[str]:
    """Return the zones of this region that offer an instance type; none if the type does not exist."""
    filters = [{"Name": "instance-type", "Values": [instance_type]}]
    call = {"LocationType": "availability-zone", "Filters": filters}
    offerings = aws.call("ec2", "describe_instance_type_offerings", **call)["InstanceTypeOfferings"]
    return frozenset(offering["Location"] for offering in offerings)


def require_instance_type(aws: Aws, instance_type: str) -> None:
    """Raise ResourceError for an instance type that no zone of this region offers."""
    if not offered_zones(aws, instance_type):
        message = f"Invalid value '{instance_type}' for InstanceType: {aws.region} does not offer it"
        raise ResourceError("InvalidParameterValue", message, key="instanceType")


def require_offered(aws: Aws, types: Iterable[str], zones: Iterable[str]) -> None:
    """Raise ResourceError for a zone that offers none of the types, and for a type that no zone offers."""
    names, zone_names = list(types), sorted(zones)
    offers = {name: offered_zones(aws, name) for name in names}
    for zone in zone_names:
        if names and not any(zone in offers[name] for name in names):
            raise ResourceError("ValidationError", f"Availability zone {zone} does not offer {', '.join(names)}")
    for name in names:
        if not offers[name].intersection(zone_names):
            raise ResourceError("ValidationError", f"None of the zones {', '.join(zone_names)} offers {name}")


_GROUP_TYPE = "aws:ec2/placementGroup:PlacementGroup"
_LIMITS = {
    "name": Text(1, 255),
    "strategy": Choice(("cluster", "partition", "spread")),
}


def placement_group(aws: Aws, name: str) -> dict[str, Any]:
    """Return the properties of a placement group of this region; raise ResourceError if there is none."""
    group = aws.fakes(_GROUP_TYPE).get(f"{aws.region}/{name}")
    if group is None:
        raise ResourceError("InvalidPlacementGroup.Unknown", f"{name} does not exist in {aws.region}")
    return group


def _create(aws: Aws, inputs: Props) -> str:
    name: str = inputs["name"]
    groups = aws.fakes(_GROUP_TYPE)
    if f"{aws.region}/{name}" in groups:
        raise ResourceError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    groups[f"{aws.region}/{name}"] = {"placementGroupId": new_id("pg"), **inputs}
    return name


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    group = placement_group(aws, ident)
    return {"arn": aws.arn("ec2", f"placement-group/{ident}"), "placementGroupId": group["placementGroupId"]}


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    placement_group(aws, ident).update(new)


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.fakes(_GROUP_TYPE).pop(f"{aws.region}/{ident}", None)


PLACEMENT_GROUP = ResourceKind(
    token=_GROUP_TYPE,
    inputs=updates("tags") | replaces("name", "strategy"),
    naming=Naming(longest=255),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=checks(_LIMITS),
    support=Support.FAKED,
    note="moto has no placement groups",
)


def check_placement(inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error when the purchase option of a template excludes its placement group."""
    blocks = [
        inputs.get(key) or {} for key in ("placement", "instanceMarketOptions", "capacityReservationSpecification")
    ]
    if holds_unknown(blocks):
        return
    placement, market, reserved = blocks
    group = placement.get("groupName")
    reservation = (reserved.get("capacityReservationTarget") or {}).get("capacityReservationId")
    if group and market.get("marketType") == "capacity-block":
        message = f"conflicts with a capacity block: it cannot use placement group {group}"
        yield InvalidInput("placement.groupName", message)
    elif group and reservation:
        message = f"conflicts with capacity reservation {reservation}, which is not in placement group {group}"
        yield InvalidInput("placement.groupName", message)


def placement_error(aws: Aws, group: str | None, zones: Collection[str]) -> str:
    """Return why EC2 could not launch in a placement group, or an empty string."""
    if group and placement_group(aws, group).get("strategy") == "cluster" and len(zones) > 1:
        return f"The cluster placement group {group} cannot span {', '.join(sorted(zones))}"
    return ""


def strategy_error(aws: Aws, facts: Mapping[str, Any], group: str | None) -> str:
    """Return why an instance type, described by EC2, cannot be in a placement group, or an empty string."""
    strategy = placement_group(aws, group).get("strategy") if group else None
    supported = (facts.get("PlacementGroupInfo") or {}).get("SupportedStrategies", [])
    if strategy is None or strategy in supported:
        return ""
    return f"{facts['InstanceType']} does not support placement strategy {strategy}"
