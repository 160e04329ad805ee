"""Specimens of VPCs and what is plain in them."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import ec2 as nouns
from bedplate.rehearsal.kinds.ec2 import current_id, described
from bedplate.rehearsal.simulation import Aws
from tests.testlab.kinds import world as services
from tests.testlab.kinds.links import LINKS, RULES, TRANSIT
from tests.testlab.kinds.names import RESOLVER
from tests.testlab.kinds.world import Specimen
from tests.testlab.rehearsal.live import asked, by, by_input


def told_vpc(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return a VPC with its attributes, which have a call of their own."""
    names = ("enableDnsSupport", "enableDnsHostnames", "enableNetworkAddressUsageMetrics")
    told = [aws.call("ec2", "describe_vpc_attribute", VpcId=ident, Attribute=name) for name in names]
    attributes = [{key: value for key, value in each.items() if key != "ResponseMetadata"} for each in told]
    return [described(aws, nouns.VPC, ident), attributes]


VPC_PARTS = (
    Specimen(
        "aws:ec2/vpc:Vpc",
        inputs={"cidrBlock": "10.40.0.0/16"},
        told=told_vpc,
        changes={
            "enableDnsHostnames": True,
            "enableNetworkAddressUsageMetrics": True,
            "enableDnsSupport": False,
        },
    ),
    Specimen(
        "aws:ec2/subnet:Subnet",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "cidrBlock": "10.20.8.0/24",
            "availabilityZone": f"{world.aws.region}c",
        },
        told=by(nouns.SUBNET),
        changes={"mapPublicIpOnLaunch": True, "enableResourceNameDnsARecordOnLaunch": True},
        silent=frozenset({"assignIpv6AddressOnCreation", "enableDns64", "enableResourceNameDnsAaaaRecordOnLaunch"}),
    ),
    Specimen(
        "aws:ec2/subnet:Subnet",
        form="by the id of its zone",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "cidrBlock": "10.20.8.0/24",
            "availabilityZoneId": world.zone_id,
            "mapPublicIpOnLaunch": False,
        },
        told=by(nouns.SUBNET),
    ),
    Specimen(
        "aws:ec2/subnetCidrReservation:SubnetCidrReservation",
        inputs=lambda world: {
            "subnetId": world.subnet,
            "cidrBlock": "10.20.0.16/28",
            "reservationType": "explicit",
        },
        told=asked("ec2", "get_subnet_cidr_reservations", SubnetId=lambda _ident, inputs: inputs["subnetId"]),
    ),
    Specimen(
        "aws:ec2/internetGateway:InternetGateway",
        inputs=lambda world: {"vpcId": world.vpc},
        told=by(nouns.INTERNET_GATEWAY),
        changes=lambda world: {"vpcId": world.far_vpc},
    ),
    Specimen(
        "aws:ec2/eip:Eip",
        inputs={"domain": "vpc"},
        told=by(nouns.ADDRESS),
        changes=lambda world: {"networkInterface": world.interface},
        silent=frozenset({"associateWithPrivateIp", "instance"}),
    ),
    Specimen(
        "aws:ec2/natGateway:NatGateway",
        inputs=lambda world: {
            "subnetId": world.gateway and world.subnet,
            "allocationId": world.address,
            "connectivityType": "public",
        },
        told=by(nouns.NAT_GATEWAY),
    ),
    Specimen(
        "aws:ec2/natGateway:NatGateway",
        form="private",
        inputs=lambda world: {"subnetId": world.subnet, "connectivityType": "private"},
        told=by(nouns.NAT_GATEWAY),
    ),
    Specimen(
        "aws:ec2/networkInterface:NetworkInterface",
        inputs=lambda world: {
            "subnetId": world.subnet,
            "description": "gate",
            "privateIps": ["10.20.0.10"],
            "securityGroups": [world.group],
            "sourceDestCheck": False,
        },
        told=by(nouns.NETWORK_INTERFACE),
        changes=lambda world: {
            "description": "door",
            "privateIps": ["10.20.0.10", "10.20.0.11"],
            "securityGroups": [world.other_group],
            "sourceDestCheck": True,
        },
    ),
    Specimen(
        "aws:ec2/flowLog:FlowLog",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "trafficType": "ALL",
            "iamRoleArn": world.role,
            "logDestination": world.aws.arn("logs", "log-group:flows"),
        },
        told=by(nouns.FLOW_LOG),
        silent=frozenset({"logDestination"}),
    ),
)


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


NETWORK = (*VPC_PARTS, *ROUTES, *RULES, *LINKS, *TRANSIT, *RESOLVER)
