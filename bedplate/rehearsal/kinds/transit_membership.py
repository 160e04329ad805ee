"""Attachments in tables of a transit gateway: whose packets a table routes, and whose blocks it learns."""

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


def _ends(inputs: Props) -> tuple[str, str]:
    return str(inputs["transitGatewayRouteTableId"]), str(inputs["transitGatewayAttachmentId"])


def _associate(aws: Aws, inputs: Props) -> str:
    table, attachment = _ends(inputs)
    require_pair(aws, table, attachment)
    before = associated_table(aws, attachment)
    if before and not inputs.get("replaceExistingAssociation"):
        told = f"Transit Gateway Attachment {attachment} is already associated to a route table."
        raise Refusal("Resource.AlreadyAssociated", told)
    if before:
        aws.call("ec2", "disassociate_transit_gateway_route_table", **pair(before, attachment))
    aws.call("ec2", "associate_transit_gateway_route_table", **pair(table, attachment))
    # The provider's own: AWS gives memberships no ids.
    return f"{table}_{attachment}"


def _read_association(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    table, attachment = ident.split("_")
    if attachment not in associations(aws, table):
        raise Refusal("InvalidAssociation.NotFound", f"{attachment} is not associated with {table}")
    return far_side(aws, attachment)


def _disassociate(aws: Aws, ident: str, outputs: Props) -> None:
    table, attachment = ident.split("_")
    if attachment in associations(aws, table):
        aws.call("ec2", "disassociate_transit_gateway_route_table", **pair(table, attachment))


def _propagate(aws: Aws, inputs: Props) -> str:
    table, attachment = _ends(inputs)
    require_pair(aws, table, attachment)
    if far_side(aws, attachment)["resourceType"] == "peering":
        told = f"{attachment} is a peering of {' and '.join(hubs_of(aws, attachment))}, which propagates no routes"
        raise Refusal("InvalidParameterValue", told)
    if attachment in propagations(aws, table):
        told = f"Propagation of {attachment} to {table} is enabled already"
        raise Refusal("TransitGatewayRouteTablePropagation.Duplicate", told)
    aws.call("ec2", "enable_transit_gateway_route_table_propagation", **pair(table, attachment))
    return f"{table}_{attachment}"


def _read_propagation(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    table, attachment = ident.split("_")
    if attachment not in propagations(aws, table):
        raise Refusal("InvalidPropagation.NotFound", f"{attachment} does not propagate to {table}")
    return far_side(aws, attachment)


def _stop(aws: Aws, ident: str, outputs: Props) -> None:
    table, attachment = ident.split("_")
    if attachment in propagations(aws, table):
        aws.call("ec2", "disable_transit_gateway_route_table_propagation", **pair(table, attachment))


TRANSIT_ASSOCIATION = Kind(
    token="aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation",
    inputs=replaces(*_PAIR, "replaceExistingAssociation"),
    create=_associate,
    read=_read_association,
    delete=_disassociate,
)
TRANSIT_PROPAGATION = Kind(
    token="aws:ec2transitgateway/routeTablePropagation:RouteTablePropagation",
    inputs=replaces(*_PAIR),
    create=_propagate,
    read=_read_propagation,
    delete=_stop,
)
