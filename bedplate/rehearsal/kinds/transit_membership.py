"""Associations of attachments with route tables of transit gateways."""

from typing import Any

from bedplate.rehearsal.kind import Kind, Props, replaces
from bedplate.rehearsal.kinds.transit_tables import associated_table, associations, far_side, require_pair
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_PAIR = ("transitGatewayAttachmentId", "transitGatewayRouteTableId")


def pair(table: str, attachment: str) -> dict[str, str]:
    """Return a table and an attachment as EC2's parameters."""
    return {"TransitGatewayRouteTableId": table, "TransitGatewayAttachmentId": attachment}


def _create(aws: Aws, inputs: Props) -> str:
    table, attachment = str(inputs["transitGatewayRouteTableId"]), str(inputs["transitGatewayAttachmentId"])
    require_pair(aws, table, attachment)
    before = associated_table(aws, attachment)
    if before and not inputs.get("replaceExistingAssociation"):
        message = f"Transit Gateway Attachment {attachment} is already associated to a route table."
        raise Refusal("Resource.AlreadyAssociated", message)
    if before:
        aws.call("ec2", "disassociate_transit_gateway_route_table", **pair(before, attachment))
    aws.call("ec2", "associate_transit_gateway_route_table", **pair(table, attachment))
    # The id is the provider's own: AWS gives associations none.
    return f"{table}_{attachment}"


def _read(aws: Aws, ident: str, _inputs: Props) -> dict[str, Any]:
    table, attachment = ident.split("_")
    if attachment not in associations(aws, table):
        raise Refusal("InvalidAssociation.NotFound", f"{attachment} is not associated with {table}")
    return far_side(aws, attachment)


def _delete(aws: Aws, ident: str, _outputs: Props) -> None:
    table, attachment = ident.split("_")
    if attachment in associations(aws, table):
        aws.call("ec2", "disassociate_transit_gateway_route_table", **pair(table, attachment))


TRANSIT_ASSOCIATION = Kind(
    token="aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation",
    inputs=replaces(*_PAIR, "replaceExistingAssociation"),
    create=_create,
    read=_read,
    delete=_delete,
)
