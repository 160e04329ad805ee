"""The search for objects of EC2, by their tags, names or keys.

The calls describe objects directly: the Resource Groups Tagging API sees new objects later, so a search by it would
miss them, and they would be created twice.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.account.client import AwsClient
from bedplate.account.creation import Creation, Finder, filters, has_tags, is_live


def _items(client: AwsClient, creation: Creation, operation: str, **params: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401
    """Yield what an operation of EC2 lists, on all pages, without deleted objects."""
    token: dict[str, str] = {}
    while True:
        reply = client.call("ec2", creation.region, operation, **params, **token)
        for item in next((value for value in reply.values() if isinstance(value, list)), []):
            if is_live(item):
                yield item
        if not reply.get("NextToken"):
            return
        token = {"NextToken": reply["NextToken"]}


def tagged(operation: str, key: str, parameter: str = "Filters") -> Finder:
    """Return the finder of a type of EC2 with tags; `key` is that of the id in a description."""

    def find(client: AwsClient, creation: Creation) -> Iterator[str]:
        *_, (name, value) = creation.tags.items()
        params = {parameter: filters({f"tag:{name}": value})}
        for item in _items(client, creation, operation, **params):
            if has_tags(creation, item.get("Tags") or item.get("TagSet", ())):
                yield item[key]

    return find


_DESTINATIONS = {
    "destinationCidrBlock": "DestinationCidrBlock",
    "destinationIpv6CidrBlock": "DestinationIpv6CidrBlock",
    "destinationPrefixListId": "DestinationPrefixListId",
}


def find_launch_template(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the template with the name."""
    conditions = filters({"launch-template-name": creation.inputs["name"]})
    for template in _items(client, creation, "describe_launch_templates", Filters=conditions):
        yield template["LaunchTemplateId"]


def find_route(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the route with the table and the destination; AWS gives routes no id."""
    table_id = creation.inputs["routeTableId"]
    key = next(key for key in _DESTINATIONS if creation.inputs.get(key))
    for table in _items(client, creation, "describe_route_tables", Filters=filters({"route-table-id": table_id})):
        if any(route.get(_DESTINATIONS[key]) == creation.inputs[key] for route in table["Routes"]):
            yield f"r-{table_id}{zlib.crc32(creation.inputs[key].encode())}"


def find_table_association(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the association of the table with the subnet or gateway."""
    table_id, inputs = creation.inputs["routeTableId"], creation.inputs
    for table in _items(client, creation, "describe_route_tables", Filters=filters({"route-table-id": table_id})):
        for association in table["Associations"]:
            if (association.get("SubnetId"), association.get("GatewayId")) == (
                inputs.get("subnetId"),
                inputs.get("gatewayId"),
            ):
                yield association["RouteTableAssociationId"]


def find_endpoint_association(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the association of the endpoint with the route table; AWS gives it no id."""
    endpoint_id, table_id = creation.inputs["vpcEndpointId"], creation.inputs["routeTableId"]
    for endpoint in _items(client, creation, "describe_vpc_endpoints", VpcEndpointIds=[endpoint_id]):
        if table_id in endpoint.get("RouteTableIds", ()):
            yield f"a-{endpoint_id}{zlib.crc32(table_id.encode())}"


def find_cidr_reservation(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the reservation of the block in the subnet."""
    subnet_id = creation.inputs["subnetId"]
    for reservation in _items(client, creation, "get_subnet_cidr_reservations", SubnetId=subnet_id):
        if reservation["Cidr"] == creation.inputs["cidrBlock"]:
            yield reservation["SubnetCidrReservationId"]


def find_transit_route(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the static route with the table and the block; AWS gives routes no id."""
    table_id, block = creation.inputs["transitGatewayRouteTableId"], creation.inputs["destinationCidrBlock"]
    conditions = filters({"route-search.exact-match": block, "type": "static"})
    params = {"TransitGatewayRouteTableId": table_id, "Filters": conditions}
    yield from (f"{table_id}_{block}" for _ in _items(client, creation, "search_transit_gateway_routes", **params))


def find_transit_association(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the association of the table with the attachment; AWS gives it no id."""
    table_id, attachment = (creation.inputs[f"transitGateway{name}Id"] for name in ("RouteTable", "Attachment"))
    query = {"TransitGatewayRouteTableId": table_id}
    listed = _items(client, creation, "get_transit_gateway_route_table_associations", **query)
    if any(association["TransitGatewayAttachmentId"] == attachment for association in listed):
        yield f"{table_id}_{attachment}"


def find_accepted_attachment(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the peering attachment if it is accepted: accepting it again is an error."""
    ident = creation.inputs["transitGatewayAttachmentId"]
    conditions = filters({"transit-gateway-attachment-id": ident})
    for attachment in _items(client, creation, "describe_transit_gateway_peering_attachments", Filters=conditions):
        if attachment["State"] in ("available", "pending"):
            yield ident
