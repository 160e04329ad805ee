"""Parts of a subnet from which AWS hands out no address by itself."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import SUBNET, described
from bedplate.rehearsal.kinds.limits import Choice, beyond
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_LISTING = "SubnetIpv4CidrReservations"
_SIZES = range(16, 33)


def _create(aws: Aws, inputs: Props) -> str:
    described(aws, SUBNET, inputs["subnetId"])
    call = {"SubnetId": inputs["subnetId"], "Cidr": inputs["cidrBlock"], "ReservationType": inputs["reservationType"]}
    made = aws.call("ec2", "create_subnet_cidr_reservation", **call)
    return str(made["SubnetCidrReservation"]["SubnetCidrReservationId"])


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    subnet = inputs["subnetId"]
    listed = aws.call("ec2", "get_subnet_cidr_reservations", SubnetId=subnet)[_LISTING]
    if ident not in {each["SubnetCidrReservationId"] for each in listed}:
        raise Refusal("InvalidSubnetCidrReservationID.NotFound", f"{subnet} has no reservation {ident}")
    return {"ownerId": aws.account}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_subnet_cidr_reservation", SubnetCidrReservationId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from block_complaints(inputs, ["cidrBlock"], sizes=_SIZES)
    yield from beyond(inputs, {"reservationType": Choice(("explicit", "prefix"))})


SUBNET_RESERVATION = Kind(
    token="aws:ec2/subnetCidrReservation:SubnetCidrReservation",
    inputs=replaces("cidrBlock", "description", "reservationType", "subnetId"),
    create=_create,
    read=_read,
    delete=_delete,
    complaints=_complaints,
    note="a reservation's description is nowhere to be read",
)
