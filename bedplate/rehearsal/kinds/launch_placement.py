"""What EC2 refuses of a launch into a placement group.

Sources, read 2026-11: EC2 user guide, "Placement strategies", "Capacity Reservations in cluster placement groups" and
"Capacity Blocks for ML". A capacity reservation that is used with a placement group must have been created in that
group. The rehearsal cannot create one, so it refuses the two together.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.fake_store import kept
from bedplate.rehearsal.kinds.placement_group import TOKEN, UNKNOWN_GROUP
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import holds_unknown


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
