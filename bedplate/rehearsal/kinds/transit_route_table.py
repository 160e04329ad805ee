"""Route tables of transit gateways, and static routes in them."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import TRANSIT_GATEWAY, TRANSIT_TABLE, described, require
from bedplate.rehearsal.kinds.ec2_tags import born_with, retag
from bedplate.rehearsal.kinds.transit_tables import associations, propagations, require_pair
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def _create(aws: Aws, inputs: Props) -> str:
    require(aws, TRANSIT_GATEWAY, inputs["transitGatewayId"])
    tags = born_with("transit-gateway-route-table", inputs)
    call = {"TransitGatewayId": inputs["transitGatewayId"], **tags}
    made = aws.call("ec2", "create_transit_gateway_route_table", **call)
    ident: str = made["TransitGatewayRouteTable"]["TransitGatewayRouteTableId"]
    return ident


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, TRANSIT_TABLE, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-route-table/{ident}"),
        "defaultAssociationRouteTable": bool(found["DefaultAssociationRouteTable"]),
        "defaultPropagationRouteTable": bool(found["DefaultPropagationRouteTable"]),
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    described(aws, TRANSIT_TABLE, ident)
    if held := [*associations(aws, ident), *propagations(aws, ident)]:
        told = f"{ident} has associations or propagations: {', '.join(sorted(set(held)))}"
        raise Refusal("IncorrectState", told)
    aws.call("ec2", "delete_transit_gateway_route_table", TransitGatewayRouteTableId=ident)


TRANSIT_ROUTE_TABLE = Kind(
    token="aws:ec2transitgateway/routeTable:RouteTable",
    inputs=updates("tags") | replaces("transitGatewayId"),
    create=_create,
    read=_read,
    update=retag,
    delete=_delete,
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
