"""Where EC2 offers an instance type: moto knows the zones and lets any type be asked for in any of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, Support, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, forget, keep, kept, new_id
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import holds_unknown


def offered_zones(aws: Aws, instance_type: str) -> frozenset[str]:
    """Return the zones of this region that offer a type; none for a type that does not exist."""
    only = [{"Name": "instance-type", "Values": [instance_type]}]
    call = {"LocationType": "availability-zone", "Filters": only}
    found = aws.call("ec2", "describe_instance_type_offerings", **call)["InstanceTypeOfferings"]
    return frozenset(one["Location"] for one in found)


def refuse_unknown_type(aws: Aws, instance_type: str) -> None:
    """Refuse a type that no zone of this region offers."""
    if not offered_zones(aws, instance_type):
        said = f"Invalid value '{instance_type}' for InstanceType: {aws.region} does not offer it"
        raise Refusal("InvalidParameterValue", said, key="instanceType")


def refuse_unoffered(aws: Aws, types: Iterable[str], zones: Iterable[str]) -> None:
    """Refuse types of which a zone offers none, and a type that none of the zones offers."""
    wanted, places = list(types), sorted(zones)
    offers = {one: offered_zones(aws, one) for one in wanted}
    for zone in places:
        if wanted and not any(zone in offers[one] for one in wanted):
            raise Refusal("ValidationError", f"Availability zone {zone} does not offer {', '.join(wanted)}")
    for one in wanted:
        if not offers[one].intersection(places):
            raise Refusal("ValidationError", f"{one} is offered in none of {', '.join(places)}")


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


def placement_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    """Yield why the machines of a template's inputs may not stand in the placement group that it names."""
    wanted = [
        inputs.get(key) or {} for key in ("placement", "instanceMarketOptions", "capacityReservationSpecification")
    ]
    if holds_unknown(wanted):
        return
    placement, market, reserved = wanted
    target = reserved.get("capacityReservationTarget") or {}
    told = _paid_apart(placement.get("groupName"), market.get("marketType"), target.get("capacityReservationId"))
    if told:
        yield Complaint("placement.groupName", told)


def misplaced(aws: Aws, data: Mapping[str, Any], own: str | None, zones: Collection[str]) -> str:
    """Return why launch data cannot start machines in its placement group, or in a scaling group's `own`."""
    group = own or (data.get("Placement") or {}).get("GroupName")
    if not group:
        return ""
    target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    market = (data.get("InstanceMarketOptions") or {}).get("MarketType")
    if kept(aws, TOKEN, group, UNKNOWN_GROUP).get("strategy") == "cluster" and len(zones) > 1:
        return f"The cluster placement group {group} cannot span {', '.join(sorted(zones))}"
    return _paid_apart(group, market, target.get("CapacityReservationId"))


def unsupported(aws: Aws, facts: Mapping[str, Any], group: str | None) -> str:
    """Return why a type, as EC2 describes it, cannot stand in a placement group; nothing where it can."""
    strategy = kept(aws, TOKEN, group, UNKNOWN_GROUP).get("strategy") if group else None
    known = (facts.get("PlacementGroupInfo") or {}).get("SupportedStrategies", [])
    return "" if strategy is None or strategy in known else f"{facts['InstanceType']} knows no strategy {strategy}"


def _paid_apart(group: str | None, market: str | None, reservation: str | None) -> str:
    """Return why what a machine is paid by keeps it out of a group."""
    if group and market == "capacity-block":
        return f"a capacity block takes no placement group, such as {group}"
    if group and reservation:
        return f"the capacity reservation {reservation} was not created in the placement group {group}"
    return ""
