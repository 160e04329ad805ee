"""Transit gateway route tables: associations and propagations of attachments, and static routes."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.limits import check_required
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError


def live_attachments(aws: Aws, gateway: str) -> list[str]:
    """Return the ids of the existing attachments of a transit gateway, with peerings of both directions."""
    attachments = aws.call("ec2", "describe_transit_gateway_attachments")["TransitGatewayAttachments"]
    ids = [str(attachment["TransitGatewayAttachmentId"]) for attachment in attachments if ec2.is_live(attachment)]
    return [ident for ident in ids if gateway in gateways_of(aws, ident)]


def gateways_of(aws: Aws, attachment: str) -> tuple[str, ...]:
    """Return the transit gateways of this region that an attachment belongs to: two for a peering inside the region."""
    description = ec2.described(aws, ec2.TRANSIT_ATTACHMENT, attachment)
    if description["ResourceType"] != "peering":
        return (str(description["TransitGatewayId"]),)
    return tuple(str(end["TransitGatewayId"]) for end in peering_ends(aws, attachment) if end["Region"] == aws.region)


def peering_ends(aws: Aws, attachment: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the requester and the accepter of a peering."""
    ids = {"TransitGatewayAttachmentIds": [attachment]}
    response = aws.call("ec2", "describe_transit_gateway_peering_attachments", **ids)
    (peering,) = response["TransitGatewayPeeringAttachments"]
    return peering["RequesterTgwInfo"], peering["AccepterTgwInfo"]


def attached_resource(aws: Aws, attachment: str) -> dict[str, str]:
    """Return the resource behind an attachment as two outputs: its id and its type."""
    description = ec2.described(aws, ec2.TRANSIT_ATTACHMENT, attachment)
    resource = description["ResourceId"]
    if description["ResourceType"] == "peering":
        resource = next(
            (end["TransitGatewayId"] for end in peering_ends(aws, attachment) if end["Region"] != aws.region), resource
        )
    return {"resourceId": str(resource), "resourceType": str(description["ResourceType"])}


def require_pair(aws: Aws, table: str, attachment: str) -> None:
    """Raise ResourceError unless a table and an available attachment exist and belong to one gateway."""
    gateway = ec2.lasting(aws, ec2.TRANSIT_TABLE, table)["TransitGatewayId"]
    state = ec2.described(aws, ec2.TRANSIT_ATTACHMENT, attachment)["State"]
    if state != "available":
        raise ResourceError("IncorrectState", f"{attachment} is in invalid state {state}")
    if gateway not in gateways_of(aws, attachment):
        message = f"{attachment} is not an attachment of {gateway}, the gateway of {table}"
        raise ResourceError("InvalidParameterValue", message)


def associations(aws: Aws, table: str) -> list[str]:
    """Return the attachments that are associated with a table."""
    response = aws.call("ec2", "get_transit_gateway_route_table_associations", TransitGatewayRouteTableId=table)
    return [str(item["TransitGatewayAttachmentId"]) for item in response["Associations"]]


def propagations(aws: Aws, table: str) -> list[str]:
    """Return the attachments that propagate their routes to a table."""
    response = aws.call("ec2", "get_transit_gateway_route_table_propagations", TransitGatewayRouteTableId=table)
    return [str(item["TransitGatewayAttachmentId"]) for item in response["TransitGatewayRouteTablePropagations"]]


def associated_table(aws: Aws, attachment: str) -> str:
    """Return the table that an attachment is associated with, or an empty string."""
    tables = aws.call("ec2", "describe_transit_gateway_route_tables")["TransitGatewayRouteTables"]
    ids = [str(table["TransitGatewayRouteTableId"]) for table in tables if ec2.is_live(table)]
    return next((ident for ident in ids if attachment in associations(aws, ident)), "")


_PAIR = ("transitGatewayAttachmentId", "transitGatewayRouteTableId")


def pair(table: str, attachment: str) -> dict[str, str]:
    """Return a table and an attachment as parameters of EC2."""
    return {"TransitGatewayRouteTableId": table, "TransitGatewayAttachmentId": attachment}


# --- Associations


def _create_association(aws: Aws, inputs: Props) -> str:
    table, attachment = str(inputs["transitGatewayRouteTableId"]), str(inputs["transitGatewayAttachmentId"])
    require_pair(aws, table, attachment)
    if associated_table(aws, attachment):
        message = f"Transit Gateway Attachment {attachment} is already associated to a route table."
        raise ResourceError("Resource.AlreadyAssociated", message)
    aws.call("ec2", "associate_transit_gateway_route_table", **pair(table, attachment))
    # The provider makes this id: AWS gives associations none.
    return f"{table}_{attachment}"


def _read_association(aws: Aws, ident: str, _inputs: Props) -> dict[str, Any]:
    table, attachment = ident.split("_")
    if attachment not in associations(aws, table):
        raise ResourceError("InvalidAssociation.NotFound", f"{attachment} is not associated with {table}")
    return attached_resource(aws, attachment)


def _delete_association(aws: Aws, ident: str, _outputs: Props) -> None:
    table, attachment = ident.split("_")
    if attachment in associations(aws, table):
        aws.call("ec2", "disassociate_transit_gateway_route_table", **pair(table, attachment))


TRANSIT_ASSOCIATION = ResourceKind(
    token="aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation",
    inputs=replaces(*_PAIR),
    create=_create_association,
    read=_read_association,
    delete=_delete_association,
)


# --- Route tables


def _create_table(aws: Aws, inputs: Props) -> str:
    ec2.require(aws, ec2.TRANSIT_GATEWAY, inputs["transitGatewayId"])
    tags = ec2.tag_specifications("transit-gateway-route-table", inputs)
    call = {"TransitGatewayId": inputs["transitGatewayId"], **tags}
    response = aws.call("ec2", "create_transit_gateway_route_table", **call)
    return str(response["TransitGatewayRouteTable"]["TransitGatewayRouteTableId"])


def _read_table(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    table = ec2.described(aws, ec2.TRANSIT_TABLE, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-route-table/{ident}"),
        "defaultAssociationRouteTable": bool(table["DefaultAssociationRouteTable"]),
        "defaultPropagationRouteTable": bool(table["DefaultPropagationRouteTable"]),
    }


def _delete_table(aws: Aws, ident: str, outputs: Props) -> None:
    ec2.described(aws, ec2.TRANSIT_TABLE, ident)
    if members := [*associations(aws, ident), *propagations(aws, ident)]:
        message = f"{ident} has associations or propagations: {', '.join(sorted(set(members)))}"
        raise ResourceError("IncorrectState", message)
    aws.call("ec2", "delete_transit_gateway_route_table", TransitGatewayRouteTableId=ident)


TRANSIT_ROUTE_TABLE = ResourceKind(
    token="aws:ec2transitgateway/routeTable:RouteTable",
    inputs=updates("tags") | replaces("transitGatewayId"),
    create=_create_table,
    read=_read_table,
    update=ec2.retag,
    delete=_delete_table,
)


# --- Static routes


def _check_route(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from ec2.check_cidrs(inputs, ["destinationCidrBlock"])
    yield from check_required(inputs, ("transitGatewayAttachmentId",))


def _create_route(aws: Aws, inputs: Props) -> str:
    table, block = inputs["transitGatewayRouteTableId"], inputs["destinationCidrBlock"]
    ec2.require(aws, ec2.TRANSIT_TABLE, table)
    attachment = inputs["transitGatewayAttachmentId"]
    require_pair(aws, table, attachment)
    if _static_routes(aws, table, block):
        raise ResourceError(
            "RouteAlreadyExists", f"Route {block} already exists in Transit Gateway Route Table {table}."
        )
    aws.call("ec2", "create_transit_gateway_route", **pair(table, attachment), DestinationCidrBlock=block)
    # The provider makes this id: AWS gives routes none.
    return f"{table}_{block}"


def _static_routes(aws: Aws, table: str, block: str) -> list[dict[str, Any]]:
    """Return the static routes of a table to exactly this block: one, or none."""
    filters = [{"Name": "route-search.exact-match", "Values": [block]}, {"Name": "type", "Values": ["static"]}]
    response = aws.call("ec2", "search_transit_gateway_routes", TransitGatewayRouteTableId=table, Filters=filters)
    routes: list[dict[str, Any]] = response["Routes"]
    return routes


def _read_route(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    table, block = ident.split("_")
    if not _static_routes(aws, table, block):
        raise ResourceError("InvalidRoute.NotFound", f"{table} has no static route to {block}")
    return {}


def _delete_route(aws: Aws, ident: str, outputs: Props) -> None:
    table, block = ident.split("_")
    if _static_routes(aws, table, block):
        call = {"TransitGatewayRouteTableId": table, "DestinationCidrBlock": block}
        aws.call("ec2", "delete_transit_gateway_route", **call)


TRANSIT_ROUTE = ResourceKind(
    token="aws:ec2transitgateway/route:Route",
    inputs=replaces(*_PAIR, "destinationCidrBlock"),
    create=_create_route,
    read=_read_route,
    delete=_delete_route,
    complaints=_check_route,
    note="IPv4 only; AWS has one route to a block, so a replaced route must be deleted first",
)
