"""Which tables of a transit gateway an attachment is in, as EC2 tells it; and where an attachment belongs."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import (
    TRANSIT_ATTACHMENT,
    TRANSIT_GATEWAY,
    TRANSIT_TABLE,
    block_complaints,
    born_with,
    described,
    is_live,
    require,
    retag,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal


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


def _transit_route_table_create(aws: Aws, inputs: Props) -> str:
    require(aws, TRANSIT_GATEWAY, inputs["transitGatewayId"])
    tags = born_with("transit-gateway-route-table", inputs)
    call = {"TransitGatewayId": inputs["transitGatewayId"], **tags}
    made = aws.call("ec2", "create_transit_gateway_route_table", **call)
    ident: str = made["TransitGatewayRouteTable"]["TransitGatewayRouteTableId"]
    return ident


def _transit_route_table_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, TRANSIT_TABLE, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-route-table/{ident}"),
        "defaultAssociationRouteTable": bool(found["DefaultAssociationRouteTable"]),
        "defaultPropagationRouteTable": bool(found["DefaultPropagationRouteTable"]),
    }


def _transit_route_table_delete(aws: Aws, ident: str, outputs: Props) -> None:
    described(aws, TRANSIT_TABLE, ident)
    if held := [*associations(aws, ident), *propagations(aws, ident)]:
        told = f"{ident} has associations or propagations: {', '.join(sorted(set(held)))}"
        raise Refusal("IncorrectState", told)
    aws.call("ec2", "delete_transit_gateway_route_table", TransitGatewayRouteTableId=ident)


TRANSIT_ROUTE_TABLE = Kind(
    token="aws:ec2transitgateway/routeTable:RouteTable",
    inputs=updates("tags") | replaces("transitGatewayId"),
    create=_transit_route_table_create,
    read=_transit_route_table_read,
    update=retag,
    delete=_transit_route_table_delete,
)


def _add(aws: Aws, inputs: Props) -> str:
    table, block = inputs["transitGatewayRouteTableId"], inputs["destinationCidrBlock"]
    described(aws, TRANSIT_TABLE, table)
    attachment = inputs.get("transitGatewayAttachmentId")
    if attachment:
        require_pair(aws, table, attachment)
    if _routes(aws, table, block):
        raise Refusal("RouteAlreadyExists", f"Route {block} already exists in Transit Gateway Route Table {table}.")
    way = {"TransitGatewayAttachmentId": attachment} if attachment else {"Blackhole": True}
    call = {"TransitGatewayRouteTableId": table, "DestinationCidrBlock": block}
    aws.call("ec2", "create_transit_gateway_route", **call, **way)
    # The provider's own: AWS gives routes no ids.
    return f"{table}_{block}"


def _routes(aws: Aws, table: str, block: str) -> list[dict[str, Any]]:
    """Return the static route of a table to exactly one block, if there is one."""
    asked = [{"Name": "route-search.exact-match", "Values": [block]}, {"Name": "type", "Values": ["static"]}]
    listed = aws.call("ec2", "search_transit_gateway_routes", TransitGatewayRouteTableId=table, Filters=asked)
    found: list[dict[str, Any]] = listed["Routes"]
    return found


def _read_route(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    table, block = ident.split("_")
    if not _routes(aws, table, block):
        raise Refusal("InvalidRoute.NotFound", f"{table} has no static route to {block}")
    return {}


def _remove(aws: Aws, ident: str, outputs: Props) -> None:
    table, block = ident.split("_")
    if _routes(aws, table, block):
        call = {"TransitGatewayRouteTableId": table, "DestinationCidrBlock": block}
        aws.call("ec2", "delete_transit_gateway_route", **call)


def _route_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from block_complaints(inputs, ["destinationCidrBlock"])
    if bool(inputs.get("transitGatewayAttachmentId")) == bool(inputs.get("blackhole")):
        yield Complaint("transitGatewayAttachmentId", "a route leads through an attachment, or is a blackhole")


TRANSIT_ROUTE = Kind(
    token="aws:ec2transitgateway/route:Route",
    inputs=replaces("blackhole", "destinationCidrBlock", "transitGatewayAttachmentId", "transitGatewayRouteTableId"),
    defaults={"blackhole": False},
    create=_add,
    read=_read_route,
    delete=_remove,
    complaints=_route_complaints,
    note="IPv4 only; a replaced route has to be deleted first, as AWS holds one route to a block",
)
