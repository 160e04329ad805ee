"""Fixtures of VPCs, subnets, addresses, gateways, routes and endpoints; NETWORK has all network fixtures."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.ec2 import current_id, described
from bedplate.rehearsal.simulation import Aws
from tests.testlab.kinds import world as services
from tests.testlab.kinds.links import LINKS, RULES, TRANSIT
from tests.testlab.kinds.names import RESOLVER
from tests.testlab.kinds.world import KindFixture
from tests.testlab.rehearsal.live import describe_by_call, describe_by_id, describe_by_input


def read_vpc(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return a VPC with its attributes, which have separate calls."""
    names = ("enableDnsSupport", "enableDnsHostnames", "enableNetworkAddressUsageMetrics")
    responses = [aws.call("ec2", "describe_vpc_attribute", VpcId=ident, Attribute=name) for name in names]
    attributes = [
        {key: value for key, value in response.items() if key != "ResponseMetadata"} for response in responses
    ]
    return [described(aws, ec2.VPC, ident), attributes]


VPC_PARTS = (
    KindFixture(
        "aws:ec2/vpc:Vpc",
        inputs={"cidrBlock": "10.40.0.0/16"},
        read_back=read_vpc,
        changes={
            "enableDnsHostnames": True,
            "enableDnsSupport": False,
        },
    ),
    KindFixture(
        "aws:ec2/subnet:Subnet",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "cidrBlock": "10.20.8.0/24",
            "availabilityZone": f"{world.aws.region}c",
        },
        read_back=describe_by_id(ec2.SUBNET),
        changes={"mapPublicIpOnLaunch": True},
    ),
    KindFixture(
        "aws:ec2/subnetCidrReservation:SubnetCidrReservation",
        inputs=lambda world: {
            "subnetId": world.subnet,
            "cidrBlock": "10.20.0.16/28",
            "reservationType": "explicit",
        },
        read_back=describe_by_call(
            "ec2", "get_subnet_cidr_reservations", SubnetId=lambda _ident, inputs: inputs["subnetId"]
        ),
    ),
    KindFixture(
        "aws:ec2/internetGateway:InternetGateway",
        inputs=lambda world: {"vpcId": world.vpc},
        read_back=describe_by_id(ec2.INTERNET_GATEWAY),
        changes=lambda world: {"vpcId": world.far_vpc},
    ),
    KindFixture(
        "aws:ec2/eip:Eip",
        inputs={"domain": "vpc"},
        read_back=describe_by_id(ec2.ADDRESS),
        changes=lambda world: {"networkInterface": world.interface},
    ),
    KindFixture(
        "aws:ec2/natGateway:NatGateway",
        inputs=lambda world: {
            "subnetId": world.gateway and world.subnet,
            "allocationId": world.address,
        },
        read_back=describe_by_id(ec2.NAT_GATEWAY),
    ),
    KindFixture(
        "aws:ec2/networkInterface:NetworkInterface",
        inputs=lambda world: {
            "subnetId": world.subnet,
            "description": "gate",
            "privateIps": ["10.20.0.10"],
            "securityGroups": [world.group],
            "sourceDestCheck": False,
        },
        read_back=describe_by_id(ec2.NETWORK_INTERFACE),
        changes=lambda world: {
            "description": "door",
            "privateIps": ["10.20.0.10", "10.20.0.11"],
            "securityGroups": [world.other_group],
            "sourceDestCheck": True,
        },
    ),
    KindFixture(
        "aws:ec2/flowLog:FlowLog",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "trafficType": "ALL",
            "iamRoleArn": world.role,
            "logDestination": world.aws.arn("logs", "log-group:flows"),
        },
        read_back=describe_by_id(ec2.FLOW_LOG),
        not_returned=frozenset({"logDestination"}),
    ),
)


def read_association(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the route table of an association, found by its current id in moto."""
    filters = [{"Name": "association.route-table-association-id", "Values": [current_id(aws, ident)]}]
    (table,) = aws.call("ec2", "describe_route_tables", Filters=filters)["RouteTables"]
    return [
        table["RouteTableId"],
        table["VpcId"],
        [association.get("SubnetId") for association in table["Associations"]],
    ]


def read_endpoint_table(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return an endpoint and the routes of its route table."""
    routes = described(aws, ec2.ROUTE_TABLE, inputs["routeTableId"])["Routes"]
    return [described(aws, ec2.VPC_ENDPOINT, inputs["vpcEndpointId"]), routes]


ROUTES = (
    KindFixture(
        "aws:ec2/routeTable:RouteTable",
        inputs=lambda world: {"vpcId": world.vpc},
        read_back=describe_by_id(ec2.ROUTE_TABLE),
    ),
    KindFixture(
        "aws:ec2/defaultRouteTable:DefaultRouteTable",
        inputs=lambda world: {
            "defaultRouteTableId": world.born_with("describe_route_tables", "RouteTables", "RouteTableId"),
            "routes": [],
        },
        read_back=describe_by_id(ec2.ROUTE_TABLE),
        not_returned=frozenset({"routes"}),
        adopted=True,
    ),
    KindFixture(
        "aws:ec2/route:Route",
        inputs=lambda world: {
            "routeTableId": world.table,
            "destinationCidrBlock": "0.0.0.0/0",
            "gatewayId": world.gateway,
        },
        read_back=describe_by_input(ec2.ROUTE_TABLE, "routeTableId"),
        not_returned=frozenset({"natGatewayId", "networkInterfaceId", "transitGatewayId", "vpcPeeringConnectionId"}),
    ),
    KindFixture(
        "aws:ec2/route:Route",
        variant="to a peer",
        inputs=lambda world: {
            "routeTableId": world.table,
            "destinationCidrBlock": "10.30.0.0/16",
            "vpcPeeringConnectionId": world.peering,
        },
        read_back=describe_by_input(ec2.ROUTE_TABLE, "routeTableId"),
        not_returned=frozenset({"gatewayId", "vpcPeeringConnectionId"}),
    ),
    KindFixture(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        inputs=lambda world: {"routeTableId": world.table, "subnetId": world.subnet},
        read_back=read_association,
        changes=lambda world: {"routeTableId": world.other_table},
    ),
    KindFixture(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        variant="gateway",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "serviceName": world.service("s3"),
        },
        read_back=describe_by_id(ec2.VPC_ENDPOINT),
        changes={"policy": services.open_policy("s3:DeleteBucket")},
    ),
    KindFixture(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        variant="interface",
        inputs=lambda world: {
            "vpcId": world.vpc,
            "vpcEndpointType": "Interface",
            "serviceName": world.service("ssm"),
            "subnetIds": [world.subnet],
            "securityGroupIds": [world.group],
            "privateDnsEnabled": True,
        },
        read_back=describe_by_id(ec2.VPC_ENDPOINT),
        changes=lambda world: {
            "subnetIds": [world.subnet, world.other_subnet],
            "securityGroupIds": [world.other_group],
        },
        not_returned=frozenset({"privateDnsEnabled"}),
    ),
    KindFixture(
        "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",
        inputs=lambda world: {
            "routeTableId": world.table,
            "vpcEndpointId": world.create(
                "create_vpc_endpoint",
                "VpcEndpoint.VpcEndpointId",
                VpcId=world.vpc,
                VpcEndpointType="Gateway",
                ServiceName=world.service("dynamodb"),
            ),
        },
        read_back=read_endpoint_table,
    ),
)


NETWORK = (*VPC_PARTS, *ROUTES, *RULES, *LINKS, *TRANSIT, *RESOLVER)
