"""Specimens of transit gateways and what belongs to them."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import described as nouns
from bedplate.rehearsal.kinds.transit_tables import associations, propagations
from bedplate.rehearsal.simulation import Aws
from tests.support.specimen import Specimen
from tests.support.told import by
from tests.support.world import World


def told_attachment(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the description of a VPC's attachment, and which tables it is in."""
    asked = {"TransitGatewayAttachmentIds": [ident]}
    (found,) = aws.call("ec2", "describe_transit_gateway_vpc_attachments", **asked)["TransitGatewayVpcAttachments"]
    tables = aws.call("ec2", "describe_transit_gateway_route_tables")["TransitGatewayRouteTables"]
    idents = [each["TransitGatewayRouteTableId"] for each in tables]
    inside = [[ident in members(aws, table) for table in idents] for members in (associations, propagations)]
    return [found, inside]


def told_tags(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return what the accepting region says of a peering, with the tags that it keeps apart."""
    asked = [{"Name": "resource-id", "Values": [ident]}]
    return [by(nouns.TRANSIT_ATTACHMENT)(aws, ident, inputs), aws.call("ec2", "describe_tags", Filters=asked)["Tags"]]


def told_peering(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the description of a peering with both its ends."""
    asked = {"TransitGatewayAttachmentIds": [ident]}
    found = aws.call("ec2", "describe_transit_gateway_peering_attachments", **asked)
    return found["TransitGatewayPeeringAttachments"]


def told_membership(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return what is in the table that a membership names."""
    table = str(inputs["transitGatewayRouteTableId"])
    return [table, associations(aws, table), propagations(aws, table)]


def told_route(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the static routes of the table that a route names."""
    table = str(inputs["transitGatewayRouteTableId"])
    asked = [{"Name": "type", "Values": ["static"]}]
    found = aws.call("ec2", "search_transit_gateway_routes", TransitGatewayRouteTableId=table, Filters=asked)
    return [table, found["Routes"]]


def membership(world: World) -> dict[str, Any]:
    """Return the attachment and the table of the world's plain gateway."""
    return {"transitGatewayAttachmentId": world.attachment, "transitGatewayRouteTableId": world.plain_table}


TRANSIT = (
    Specimen(
        "aws:ec2transitgateway/transitGateway:TransitGateway",
        inputs={"amazonSideAsn": 64520, "description": "us-west-2"},
        told=by(nouns.TRANSIT_GATEWAY),
        changes={
            "amazonSideAsn": 64521,
            "autoAcceptSharedAttachments": "enable",
            "defaultRouteTableAssociation": "disable",
            "defaultRouteTablePropagation": "disable",
            "description": "the hub",
            "dnsSupport": "disable",
            "securityGroupReferencingSupport": "enable",
            "vpnEcmpSupport": "disable",
        },
    ),
    Specimen(
        "aws:ec2transitgateway/transitGateway:TransitGateway",
        form="without default tables",
        inputs={"defaultRouteTableAssociation": "disable", "defaultRouteTablePropagation": "disable"},
        told=by(nouns.TRANSIT_GATEWAY),
    ),
    Specimen(
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment",
        inputs=lambda world: {"transitGatewayId": world.hub, "vpcId": world.vpc, "subnetIds": [world.subnet]},
        told=told_attachment,
        changes=lambda world: {
            "applianceModeSupport": "enable",
            "dnsSupport": "disable",
            "ipv6Support": "enable",
            "securityGroupReferencingSupport": "disable",
            "subnetIds": [world.other_subnet],
            "transitGatewayDefaultRouteTableAssociation": False,
            "transitGatewayDefaultRouteTablePropagation": False,
        },
    ),
    Specimen(
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment",
        form="to a gateway without default tables",
        inputs=lambda world: {
            "transitGatewayId": world.plain_hub,
            "vpcId": world.vpc,
            "subnetIds": [world.subnet, world.other_subnet],
            "transitGatewayDefaultRouteTableAssociation": False,
            "transitGatewayDefaultRouteTablePropagation": False,
        },
        told=told_attachment,
    ),
    Specimen(
        "aws:ec2transitgateway/peeringAttachment:PeeringAttachment",
        inputs=lambda world: {
            "transitGatewayId": world.plain_hub,
            "peerRegion": world.abroad.aws.region,
            "peerTransitGatewayId": world.abroad.plain_hub,
        },
        told=told_peering,
    ),
    Specimen(
        "aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter",
        inputs=lambda world: {"transitGatewayAttachmentId": world.hub_request},
        told=told_tags,
        adopted=True,
    ),
    Specimen(
        "aws:ec2transitgateway/routeTable:RouteTable",
        inputs=lambda world: {"transitGatewayId": world.plain_hub},
        told=by(nouns.TRANSIT_TABLE),
    ),
    Specimen(
        "aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation",
        inputs=membership,
        told=told_membership,
    ),
    Specimen(
        "aws:ec2transitgateway/route:Route",
        inputs=lambda world: {**membership(world), "destinationCidrBlock": "10.65.0.0/16"},
        told=told_route,
    ),
    Specimen(
        "aws:ec2transitgateway/route:Route",
        form="into nothing",
        inputs=lambda world: {
            "transitGatewayRouteTableId": world.plain_table,
            "destinationCidrBlock": "10.64.0.0/10",
            "blackhole": True,
        },
        told=told_route,
    ),
)
