"""Attachments in tables of a transit gateway: whose packets a table routes, and whose blocks it learns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bedplate.rehearsal.kind import Kind, Props, replaces
from bedplate.rehearsal.kinds.transit_tables import (
    associated_table,
    associations,
    far_side,
    hubs_of,
    propagations,
    require_pair,
)
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_PAIR = ("transitGatewayAttachmentId", "transitGatewayRouteTableId")


def pair(table: str, attachment: str) -> dict[str, str]:
    """Return a table and an attachment as EC2's parameters."""
    return {"TransitGatewayRouteTableId": table, "TransitGatewayAttachmentId": attachment}


@dataclass(frozen=True, slots=True)
class Membership:
    """One way of being in a table: who is in it, how one joins and leaves, and what AWS says of who is not."""

    members: Callable[[Aws, str], list[str]]
    join: Callable[[Aws, str, str, Props], None]
    leaving: str
    missing: str
    verb: str

    def create(self, aws: Aws, inputs: Props) -> str:
        """Join; the id is the provider's own, for AWS gives memberships none."""
        table, attachment = str(inputs["transitGatewayRouteTableId"]), str(inputs["transitGatewayAttachmentId"])
        require_pair(aws, table, attachment)
        self.join(aws, table, attachment, inputs)
        return f"{table}_{attachment}"

    def read(self, aws: Aws, ident: str, _inputs: Props) -> dict[str, Any]:
        """Return what the attachment leads to."""
        table, attachment = ident.split("_")
        if attachment not in self.members(aws, table):
            raise Refusal(self.missing, f"{attachment} {self.verb} {table}")
        return far_side(aws, attachment)

    def delete(self, aws: Aws, ident: str, _outputs: Props) -> None:
        """Leave the table, unless the attachment left it otherwise."""
        table, attachment = ident.split("_")
        if attachment in self.members(aws, table):
            aws.call("ec2", self.leaving, **pair(table, attachment))


def _associate(aws: Aws, table: str, attachment: str, inputs: Props) -> None:
    before = associated_table(aws, attachment)
    if before and not inputs.get("replaceExistingAssociation"):
        told = f"Transit Gateway Attachment {attachment} is already associated to a route table."
        raise Refusal("Resource.AlreadyAssociated", told)
    if before:
        aws.call("ec2", "disassociate_transit_gateway_route_table", **pair(before, attachment))
    aws.call("ec2", "associate_transit_gateway_route_table", **pair(table, attachment))


def _propagate(aws: Aws, table: str, attachment: str, inputs: Props) -> None:
    if far_side(aws, attachment)["resourceType"] == "peering":
        told = f"{attachment} is a peering of {' and '.join(hubs_of(aws, attachment))}, which propagates no routes"
        raise Refusal("InvalidParameterValue", told)
    if attachment in propagations(aws, table):
        told = f"Propagation of {attachment} to {table} is enabled already"
        raise Refusal("TransitGatewayRouteTablePropagation.Duplicate", told)
    aws.call("ec2", "enable_transit_gateway_route_table_propagation", **pair(table, attachment))


_ASSOCIATION = Membership(
    members=associations,
    join=_associate,
    leaving="disassociate_transit_gateway_route_table",
    missing="InvalidAssociation.NotFound",
    verb="is not associated with",
)
_PROPAGATION = Membership(
    members=propagations,
    join=_propagate,
    leaving="disable_transit_gateway_route_table_propagation",
    missing="InvalidPropagation.NotFound",
    verb="does not propagate to",
)

TRANSIT_ASSOCIATION = Kind(
    token="aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation",
    inputs=replaces(*_PAIR, "replaceExistingAssociation"),
    create=_ASSOCIATION.create,
    read=_ASSOCIATION.read,
    delete=_ASSOCIATION.delete,
)
TRANSIT_PROPAGATION = Kind(
    token="aws:ec2transitgateway/routeTablePropagation:RouteTablePropagation",
    inputs=replaces(*_PAIR),
    create=_PROPAGATION.create,
    read=_PROPAGATION.read,
    delete=_PROPAGATION.delete,
)
