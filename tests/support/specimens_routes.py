"""Specimens of route tables, routes and endpoints."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import described as nouns
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.kinds.kept_ids import current_id
from bedplate.rehearsal.simulation import Aws
from tests.support import services
from tests.support.specimen import Specimen
from tests.support.told import by, by_input


def told_association(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the table that holds an association, by the id that moto has for it now."""
    ours = [{"Name": "association.route-table-association-id", "Values": [current_id(aws, ident)]}]
    (table,) = aws.call("ec2", "describe_route_tables", Filters=ours)["RouteTables"]
    return [table["RouteTableId"], table["VpcId"], [each.get("SubnetId") for each in table["Associations"]]]


def told_endpoint_table(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return an endpoint, and the routes of the table that is to lead to it."""
    routes = described(aws, nouns.ROUTE_TABLE, inputs["routeTableId"])["Routes"]
    return [described(aws, nouns.VPC_ENDPOINT, inputs["vpcEndpointId"]), routes]


ROUTES = (
    Specimen(
        "aws:ec2/routeTable:RouteTable",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "routes": [{"cidrBlock": "0.0.0.0/0", "gatewayId": world.gateway}],
        },
        told=by(nouns.ROUTE_TABLE),
        changes=lambda world: {"routes": [{"cidrBlock": "10.99.0.0/16", "networkInterfaceId": world.interface}]},
        silent=frozenset({"propagatingVgws"}),
    ),
    Specimen(
        "aws:ec2/defaultRouteTable:DefaultRouteTable",
        inputs=lambda world: {
            "defaultRouteTableId": world.born_with("describe_route_tables", "RouteTables", "RouteTableId"),
            "routes": [{"cidrBlock": "0.0.0.0/0", "gatewayId": world.gateway}],
        },
        told=by(nouns.ROUTE_TABLE),
        changes={"routes": []},
        silent=frozenset({"propagatingVgws"}),
        adopted=True,
    ),
    Specimen(
        "aws:ec2/route:Route",
        inputs=lambda world: {
            "routeTableId": world.table,
            "destinationCidrBlock": "0.0.0.0/0",
            "gatewayId": world.gateway,
        },
        told=by_input(nouns.ROUTE_TABLE, "routeTableId"),
        silent=frozenset({"natGatewayId", "networkInterfaceId", "transitGatewayId", "vpcPeeringConnectionId"}),
    ),
    Specimen(
        "aws:ec2/route:Route",
        form="to a peer by a prefix list",
        inputs=lambda world: {
            "routeTableId": world.table,
            "destinationPrefixListId": world.prefixes,
            "vpcPeeringConnectionId": world.peering,
        },
        told=by_input(nouns.ROUTE_TABLE, "routeTableId"),
        silent=frozenset({"gatewayId", "vpcPeeringConnectionId"}),
    ),
    Specimen(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        inputs=lambda world: {"routeTableId": world.table, "subnetId": world.subnet},
        told=told_association,
        changes=lambda world: {"routeTableId": world.other_table},
    ),
    Specimen(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        form="gateway",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "serviceName": world.service("s3"),
            "routeTableIds": [world.table],
        },
        told=by(nouns.VPC_ENDPOINT),
        changes=lambda world: {
            "routeTableIds": [world.table, world.other_table],
            "policy": services.open_policy("s3:DeleteBucket"),
        },
    ),
    Specimen(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        form="interface",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "vpcEndpointType": "Interface",
            "serviceName": world.service("ssm"),
            "subnetIds": [world.subnet],
            "securityGroupIds": [world.group],
            "privateDnsEnabled": True,
        },
        told=by(nouns.VPC_ENDPOINT),
        changes=lambda world: {
            "subnetIds": [world.subnet, world.other_subnet],
            "securityGroupIds": [world.other_group],
        },
        silent=frozenset({"privateDnsEnabled"}),
    ),
    Specimen(
        "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",
        inputs=lambda world: {
            "routeTableId": world.table,
            "vpcEndpointId": world.made(
                "create_vpc_endpoint",
                "VpcEndpoint.VpcEndpointId",
                VpcId=world.vpc,
                VpcEndpointType="Gateway",
                ServiceName=world.service("dynamodb"),
            ),
        },
        told=told_endpoint_table,
    ),
)
