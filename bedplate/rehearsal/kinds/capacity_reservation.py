"""Capacity reservations: instances paid for whether they run or not. Faked: moto has none."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, Support, replaces, updates
from bedplate.rehearsal.kinds.ec2_offer import refuse_unoffered
from bedplate.rehearsal.kinds.fake_store import forget, keep, kept, new_id
from bedplate.rehearsal.kinds.limits import Choice, Number, beyond
from bedplate.rehearsal.kinds.placement_group import TOKEN as GROUP
from bedplate.rehearsal.kinds.placement_group import UNKNOWN_GROUP
from bedplate.rehearsal.simulation import Aws

_TOKEN = "aws:ec2/capacityReservation:CapacityReservation"  # noqa: S105  # the name of a type, no secret
_LIMITS = {
    "endDateType": Choice(("limited", "unlimited")),
    "instanceCount": Number(1, 1000),
    "instanceMatchCriteria": Choice(("open", "targeted")),
    "tenancy": Choice(("default", "dedicated")),
}


def group_of(aws: Aws, ident: str) -> str | None:
    """Return the name of the placement group that a reservation was made in; None for one that nobody made here."""
    made = aws.fakes(_TOKEN).get(f"{aws.region}/{ident}", {}).get("placementGroupArn")
    return str(made).rpartition("/")[2] if made else None


def _create(aws: Aws, inputs: Props) -> str:
    refuse_unoffered(aws, [inputs["instanceType"]], [inputs["availabilityZone"]])
    aws.simulation.faults.check_capacity(inputs["instanceType"], inputs["availabilityZone"])
    if inputs.get("placementGroupArn"):
        kept(aws, GROUP, str(inputs["placementGroupArn"]).rpartition("/")[2], UNKNOWN_GROUP)
    ident = new_id("cr")
    keep(aws, _TOKEN, ident, dict(inputs))
    return ident


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    keep(aws, _TOKEN, ident, dict(new))


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    kept(aws, _TOKEN, ident, "InvalidCapacityReservationId.NotFound")
    return {"arn": aws.arn("ec2", f"capacity-reservation/{ident}"), "ownerId": aws.account}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    forget(aws, _TOKEN, ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    if (inputs.get("endDateType") == "limited") != (inputs.get("endDate") is not None):
        yield Complaint("endDate", "goes with the endDateType limited, and it with endDate")


CAPACITY_RESERVATION = Kind(
    token=_TOKEN,
    inputs=updates("endDate", "endDateType", "instanceCount", "tags")
    | replaces("availabilityZone", "ebsOptimized", "ephemeralStorage", "instanceMatchCriteria")
    | replaces("instancePlatform", "instanceType", "outpostArn", "placementGroupArn", "tenancy"),
    defaults={
        "ebsOptimized": False,
        "endDateType": "unlimited",
        "ephemeralStorage": False,
        "instanceMatchCriteria": "open",
        "tenancy": "default",
    },
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    support=Support.FAKED,
    note="moto has no capacity reservations",
)
