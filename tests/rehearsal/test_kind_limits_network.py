"""Limits of the network's kinds that moto does not know: each draws a complaint where a specimen draws none."""

from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import Simulation
from tests.support.specimen import Specimen
from tests.support.specimens_network import NETWORK
from tests.support.specimens_rules import ssh_from
from tests.support.world import World

SPECIMENS = {each.token.rpartition(":")[2]: each for each in reversed(NETWORK)}
# Its namesake in another package comes first.
SPECIMENS["TransitRoute"] = next(each for each in NETWORK if each.token.startswith("aws:ec2transitgateway/route:"))
ALL_OPEN = {"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]}

# Kind, what spoils the specimen's inputs, and the input that the complaint names.
DEFECTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("Subnet", {"cidrBlock": "10.20.8.0/29"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": "10.0.0.0/15"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": "10.20.8.1/24"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": None}, "cidrBlock"),
    ("Subnet", {"enableDns64": True}, "enableDns64"),
    ("Subnet", {"availabilityZoneId": "usw2-az1"}, "availabilityZone"),
    ("Vpc", {"cidrBlock": "10.0.0.0/8"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "10.0.0.1/16"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "169.254.0.0/16"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "224.0.0.0/16"}, "cidrBlock"),
    ("Vpc", {"instanceTenancy": "shared"}, "instanceTenancy"),
    ("Eip", {"domain": "standard"}, "domain"),
    ("Eip", {"instance": "i-1", "networkInterface": "eni-1"}, "instance"),
    ("NatGateway", {"connectivityType": "private"}, "allocationId"),
    ("NatGateway", {"allocationId": None}, "allocationId"),
    ("NatGateway", {"subnetId": None}, "subnetId"),
    ("NatGateway", {"connectivityType": "secret"}, "connectivityType"),
    ("RouteTable", {"routes": [{"cidrBlock": "0.0.0.0/0"}]}, "routes[0]"),
    ("RouteTable", {"routes": [{"gatewayId": "igw-1"}]}, "routes[0]"),
    ("Route", {"natGatewayId": "nat-1"}, "routeTableId"),
    ("Route", {"destinationCidrBlock": "10.1.2.3/8"}, "destinationCidrBlock"),
    ("Route", {"destinationIpv6CidrBlock": "10.0.0.0/8"}, "destinationIpv6CidrBlock"),
    ("RouteTableAssociation", {"gatewayId": "igw-1"}, "subnetId"),
    ("RouteTableAssociation", {"subnetId": None}, "subnetId"),
    ("VpcEndpoint", {"vpcEndpointType": "Door"}, "vpcEndpointType"),
    ("VpcEndpoint", {"serviceName": None}, "serviceName"),
    ("VpcEndpoint", {"policy": "{}"}, "policy"),
    ("VpcEndpoint", {"securityGroupIds": ["sg-1"]}, "securityGroupIds"),
    ("VpcEndpoint", {"privateDnsEnabled": True}, "privateDnsEnabled"),
    ("SecurityGroup", {"name": "sg-nodes"}, "name"),
    ("SecurityGroup", {"name": "x" * 256}, "name"),
    ("SecurityGroup", {"description": ""}, "description"),
    ("SecurityGroup", {"description": "a “quoted” word"}, "description"),
    ("SecurityGroup", {"namePrefix": "nodes-"}, "name"),
    ("SecurityGroup", {"ingress": [{**ALL_OPEN, "cidrBlocks": []}]}, "ingress[0]"),
    ("SecurityGroup", {"ingress": [{**ALL_OPEN, "toPort": 65535}]}, "ingress[0]"),
    ("SecurityGroup", {"egress": [ALL_OPEN, {**ssh_from("10.0.0.0/8"), "toPort": 70000}]}, "egress[1]"),
    ("SecurityGroup", {"egress": [{**ssh_from("10.0.0.0/8"), "toPort": 21}]}, "egress[0]"),
    ("SecurityGroup", {"ingress": [{**ssh_from("10.0.0.0/8"), "protocol": "ssh"}]}, "ingress[0]"),
    ("SecurityGroup", {"ingress": [ssh_from("10.0.0.1/8")]}, "ingress[0]"),
    ("SecurityGroupRule", {"self": True}, "self"),
    ("SecurityGroupRule", {"type": "inbound"}, "type"),
    ("SecurityGroupRule", {"cidrBlocks": []}, "cidrBlocks"),
    ("SecurityGroupIngressRule", {"cidrIpv6": "::/0"}, "cidrIpv4"),
    ("SecurityGroupIngressRule", {"cidrIpv4": None}, "cidrIpv4"),
    ("SecurityGroupIngressRule", {"toPort": None}, "ipProtocol"),
    ("SecurityGroupIngressRule", {"ipProtocol": "-1", "fromPort": 0, "toPort": 0}, "fromPort"),
    ("SecurityGroupIngressRule", {"description": "x" * 256}, "description"),
    ("NetworkInterface", {"privateIpsCount": 2}, "privateIpsCount"),
    ("VpcPeeringConnection", {"peerRegion": "eu-north-1", "autoAccept": True}, "peerRegion"),
    ("VpnGateway", {"amazonSideAsn": "7224"}, "amazonSideAsn"),
    ("CustomerGateway", {"bgpAsn": "7224"}, "bgpAsn"),
    ("CustomerGateway", {"bgpAsn": "4294967295"}, "bgpAsn"),
    ("CustomerGateway", {"bgpAsnExtended": "4200000000"}, "bgpAsn"),
    ("CustomerGateway", {"ipAddress": "8.20.30"}, "ipAddress"),
    ("CustomerGateway", {"ipAddress": None}, "ipAddress"),
    ("CustomerGateway", {"type": "ipsec.2"}, "type"),
    ("VpnConnection", {"tunnel1PresharedKey": "short"}, "tunnel1PresharedKey"),
    ("VpnConnection", {"tunnel2PresharedKey": "0123456789"}, "tunnel2PresharedKey"),
    ("VpnConnection", {"tunnel1InsideCidr": "169.254.0.0/30"}, "tunnel1InsideCidr"),
    ("VpnConnection", {"tunnel1InsideCidr": "10.0.0.0/30"}, "tunnel1InsideCidr"),
    ("VpnConnection", {"tunnel2InsideCidr": "169.254.20.0/29"}, "tunnel2InsideCidr"),
    ("VpnConnection", {"tunnel1DpdTimeoutSeconds": 10}, "tunnel1DpdTimeoutSeconds"),
    ("VpnConnection", {"tunnel2IkeVersions": ["ikev3"]}, "tunnel2IkeVersions"),
    (
        "VpnConnection",
        {"tunnel1LogOptions": {"cloudwatchLogOptions": {"logEnabled": True}}},
        "tunnel1LogOptions.cloudwatchLogOptions.logGroupArn",
    ),
    (
        "VpnConnection",
        {"tunnel2LogOptions": {"cloudwatchLogOptions": {"logOutputFormat": "xml"}}},
        "tunnel2LogOptions.cloudwatchLogOptions.logOutputFormat",
    ),
    ("VpnConnection", {"transitGatewayId": "tgw-1"}, "transitGatewayId"),
    ("VpnConnection", {"enableAcceleration": True}, "enableAcceleration"),
    ("FlowLog", {"maxAggregationInterval": 30}, "maxAggregationInterval"),
    ("FlowLog", {"subnetId": "subnet-1"}, "vpcId"),
    ("FlowLog", {"iamRoleArn": None}, "iamRoleArn"),
    ("FlowLog", {"logDestination": None}, "logDestination"),
    ("FlowLog", {"trafficType": None}, "trafficType"),
    ("FlowLog", {"vpcId": None, "transitGatewayId": "tgw-1"}, "maxAggregationInterval"),
    ("TransitGateway", {"amazonSideAsn": 65535}, "amazonSideAsn"),
    ("TransitGateway", {"dnsSupport": True}, "dnsSupport"),
    ("VpcAttachment", {"applianceModeSupport": "on"}, "applianceModeSupport"),
    ("VpcAttachment", {"subnetIds": []}, "subnetIds"),
    ("TransitRoute", {"destinationCidrBlock": "10.65.0.1/16"}, "destinationCidrBlock"),
    ("TransitRoute", {"blackhole": True}, "transitGatewayAttachmentId"),
    ("TransitRoute", {"transitGatewayAttachmentId": None}, "transitGatewayAttachmentId"),
    ("ResolverEndpoint", {"direction": "BOTH"}, "direction"),
    ("ResolverEndpoint", {"name": "2026"}, "name"),
    ("ResolverEndpoint", {"ipAddresses": [{"subnetId": "subnet-1"}]}, "ipAddresses"),
    ("ResolverEndpoint", {"protocols": ["Do54"]}, "protocols"),
    ("ResolverRule", {"ruleType": "PASS"}, "ruleType"),
    ("ResolverRule", {"targetIps": []}, "targetIps"),
    ("ResolverRule", {"targetIps": [{"ip": f"10.0.0.{host}"} for host in range(1, 8)]}, "targetIps"),
    ("ResolverRule", {"resolverEndpointId": None}, "resolverEndpointId"),
    ("ResolverRule", {"targetIps": [{"ip": "fd00::2"}]}, "targetIps[0].ip"),
    ("ResolverRule", {"targetIps": [{"ip": "10.0.0.2", "port": 0}]}, "targetIps.port"),
    ("ResolverRuleAssociation", {"name": "x" * 65}, "name"),
)


@pytest.fixture(scope="module")
def inputs_of(simulation: Simulation) -> dict[str, dict[str, Any]]:
    """Return good inputs of each kind, made once: complaints are about words, not about what exists."""
    return {name: _good(each, World(simulation.region("us-west-2"))) for name, each in SPECIMENS.items()}


def _good(specimen: Specimen, world: World) -> dict[str, Any]:
    return {**KINDS[specimen.token].defaults, **specimen.inputs_in(world)}


@pytest.mark.parametrize(("name", "spoiled", "key"), DEFECTS, ids=lambda value: str(value)[:60])
def test_what_aws_refuses_draws_a_complaint(
    name: str,
    spoiled: dict[str, Any],
    key: str,
    inputs_of: dict[str, dict[str, Any]],
    simulation: Simulation,
) -> None:
    """One wrong input is named, where the same inputs without it pass."""
    kind, aws = KINDS[SPECIMENS[name].token], simulation.region("us-west-2")
    good = inputs_of[name]

    complaints = list(kind.complaints(aws, {**good, **spoiled}))

    assert key in {each.key for each in complaints}
    assert all(each.reason for each in complaints)
    assert list(kind.complaints(aws, good)) == []


def test_a_complaint_about_a_key_keeps_it_secret(simulation: Simulation) -> None:
    """A preshared key is never told back, not even a wrong one."""
    kind = KINDS[SPECIMENS["VpnConnection"].token]

    complaints = list(kind.complaints(simulation.region("us-west-2"), {"tunnel1PresharedKey": "0hush"}))

    assert complaints
    assert not any("hush" in each.reason for each in complaints)
