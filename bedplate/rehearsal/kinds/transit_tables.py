"""Which tables of a transit gateway an attachment is in, as EC2 tells it; and where an attachment belongs."""

from typing import Any

from bedplate.rehearsal.kinds.described import TRANSIT_ATTACHMENT, TRANSIT_TABLE, described, is_live
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def live_attachments(aws: Aws, hub: str) -> list[str]:
    """Return the attachments of a transit gateway that exist, peerings of both directions among them."""
    listed = aws.call("ec2", "describe_transit_gateway_attachments")["TransitGatewayAttachments"]
    idents = [str(each["TransitGatewayAttachmentId"]) for each in listed if is_live(each)]
    return [ident for ident in idents if hub in hubs_of(aws, ident)]


def hubs_of(aws: Aws, attachment: str) -> tuple[str, ...]:
    """Return the gateways of this region that an attachment belongs to: two for a peering within it."""
    found = described(aws, TRANSIT_ATTACHMENT, attachment)
    if found["ResourceType"] != "peering":
        return (str(found["TransitGatewayId"]),)
    return tuple(str(end["TransitGatewayId"]) for end in peering_ends(aws, attachment) if end["Region"] == aws.region)


def peering_ends(aws: Aws, attachment: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two ends of a peering: who asked, and who is asked."""
    asked = {"TransitGatewayAttachmentIds": [attachment]}
    listed = aws.call("ec2", "describe_transit_gateway_peering_attachments", **asked)
    (found,) = listed["TransitGatewayPeeringAttachments"]
    return found["RequesterTgwInfo"], found["AccepterTgwInfo"]


def far_side(aws: Aws, attachment: str) -> dict[str, str]:
    """Return what an attachment leads to, as outputs of what names it."""
    found = described(aws, TRANSIT_ATTACHMENT, attachment)
    ident = found["ResourceId"]
    if found["ResourceType"] == "peering":
        ident = next(
            (end["TransitGatewayId"] for end in peering_ends(aws, attachment) if end["Region"] != aws.region), ident
        )
    return {"resourceId": str(ident), "resourceType": str(found["ResourceType"])}


def require_pair(aws: Aws, table: str, attachment: str) -> None:
    """Raise Refusal unless a table and an attachment live, belong to one gateway, and the attachment can be used."""
    hub = described(aws, TRANSIT_TABLE, table)["TransitGatewayId"]
    state = described(aws, TRANSIT_ATTACHMENT, attachment)["State"]
    if state != "available":
        raise Refusal("IncorrectState", f"{attachment} is in invalid state: it is {state}")
    if hub not in hubs_of(aws, attachment):
        told = f"{attachment} is no attachment of {hub}, whose table {table} is"
        raise Refusal("InvalidParameterValue", told)


def associations(aws: Aws, table: str) -> list[str]:
    """Return the attachments whose packets a table routes."""
    listed = aws.call("ec2", "get_transit_gateway_route_table_associations", TransitGatewayRouteTableId=table)
    return [str(each["TransitGatewayAttachmentId"]) for each in listed["Associations"]]


def propagations(aws: Aws, table: str) -> list[str]:
    """Return the attachments whose blocks a table learns."""
    listed = aws.call("ec2", "get_transit_gateway_route_table_propagations", TransitGatewayRouteTableId=table)
    return [str(each["TransitGatewayAttachmentId"]) for each in listed["TransitGatewayRouteTablePropagations"]]


def associated_table(aws: Aws, attachment: str) -> str:
    """Return the table that routes an attachment's packets, of which there is one at most."""
    tables = aws.call("ec2", "describe_transit_gateway_route_tables")["TransitGatewayRouteTables"]
    idents = [str(each["TransitGatewayRouteTableId"]) for each in tables if is_live(each)]
    return next((ident for ident in idents if attachment in associations(aws, ident)), "")
