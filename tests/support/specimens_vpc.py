"""Specimens of VPCs and what is plain in them."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import described as nouns
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.simulation import Aws
from tests.support.asked import asked
from tests.support.specimen import Specimen
from tests.support.told import by


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
