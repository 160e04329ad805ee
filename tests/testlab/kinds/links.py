"""Specimens of what ties networks together: peerings, gateways and VPN."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import ec2 as nouns
from bedplate.rehearsal.kinds.ec2 import described
from bedplate.rehearsal.kinds.transit_routes import associations, propagations
from bedplate.rehearsal.kinds.vpn_connection import VPN_CONNECTION
from bedplate.rehearsal.simulation import Aws
from tests.testlab.kinds.world import Specimen, World
from tests.testlab.rehearsal.live import by


def vpn(world: World) -> dict[str, Any]:
    """Return the inputs of a VPN connection to the world's gateways."""
    return {"customerGatewayId": world.customer_gateway, "type": "ipsec.1", "vpnGatewayId": world.vpn_gateway}


RESOLVES = {"allowRemoteVpcDnsResolution": True}
BOTH_SIDES = {"accepter": RESOLVES, "requester": RESOLVES}

LINKS = (
    Specimen(
        "aws:ec2/vpcPeeringConnection:VpcPeeringConnection",
        inputs=lambda world: {"vpcId": world.vpc, "peerVpcId": world.far_vpc},
        told=by(nouns.PEERING),
        changes={"autoAccept": True, **BOTH_SIDES},
    ),
    Specimen(
        "aws:ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter",
        inputs=lambda world: {"vpcPeeringConnectionId": world.pending_peering},
        told=by(nouns.PEERING),
        changes={"autoAccept": True, **BOTH_SIDES},
        silent=frozenset({"vpcPeeringConnectionId"}),
        adopted=True,
    ),
    Specimen(
        "aws:ec2/peeringConnectionOptions:PeeringConnectionOptions",
        inputs=lambda world: {"vpcPeeringConnectionId": world.peering},
        told=by(nouns.PEERING),
        changes=dict(BOTH_SIDES),
        silent=frozenset({"vpcPeeringConnectionId"}),
        adopted=True,
    ),
    Specimen(
        "aws:ec2/vpnGateway:VpnGateway",
        inputs=lambda world: {"amazonSideAsn": "64620", "vpcId": world.vpc},
        told=by(nouns.VPN_GATEWAY),
        changes=lambda world: {"vpcId": world.far_vpc},
    ),
    Specimen(
        "aws:ec2/customerGateway:CustomerGateway",
        inputs={
            "type": "ipsec.1",
            "bgpAsn": "65010",
            "ipAddress": "8.20.30.40",
            "deviceName": "gate",
        },
        told=by(nouns.CUSTOMER_GATEWAY),
        silent=frozenset({"deviceName"}),
    ),
    Specimen(
        "aws:ec2/vpnConnection:VpnConnection",
        inputs=lambda world: {**vpn(world), "tunnel1InsideCidr": "169.254.20.0/30"},
        told=by(nouns.VPN_CONNECTION),
        silent=frozenset(VPN_CONNECTION.inputs.keys() - {"tags", "type"}),
    ),
    Specimen(
        "aws:ec2/vpnConnection:VpnConnection",
        form="to a transit gateway",
        inputs=lambda world: {
            "customerGatewayId": world.customer_gateway,
            "type": "ipsec.1",
            "transitGatewayId": world.hub,
        },
        told=by(nouns.VPN_CONNECTION),
    ),
)


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


def told_group(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return a security group with its rules, in an order that does not depend on their making."""
    found = described(aws, nouns.SECURITY_GROUP, ident)
    sides = ("IpPermissions", "IpPermissionsEgress")
    return [found, [sorted(map(str, found[side])) for side in sides]]


def told_rule(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the rules of the group that a rule is of, and its own tags."""
    rules = [{"Name": "group-id", "Values": [inputs["securityGroupId"]]}]
    found = aws.call("ec2", "describe_security_group_rules", Filters=rules)["SecurityGroupRules"]
    return [{key: value for key, value in rule.items() if key != "SecurityGroupRuleId"} for rule in found]


def ssh_from(block: str) -> dict[str, Any]:
    """Return a rule block that lets SSH in from a block of addresses."""
    return {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": [block], "description": "ssh"}


RULES = (
    Specimen(
        "aws:ec2/securityGroup:SecurityGroup",
        inputs=lambda world: {
            "name": "gates",
            "description": "A group",
            "vpcId": world.vpc,
            "ingress": [ssh_from("192.168.40.0/22"), {**ssh_from("10.0.0.0/8"), "self": True}],
            "egress": [
                {"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]},
                {"protocol": "udp", "fromPort": 53, "toPort": 53, "securityGroups": [world.group]},
            ],
        },
        told=told_group,
        changes={"ingress": [ssh_from("192.168.44.0/22")], "egress": []},
        silent=frozenset({"egress", "ingress", "revokeRulesOnDelete"}),
    ),
    Specimen(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        inputs=lambda world: {"vpcId": world.vpc},
        told=told_group,
        changes={"ingress": [ssh_from("10.0.0.0/8")], "egress": [ssh_from("10.0.0.0/8")]},
        silent=frozenset({"revokeRulesOnDelete"}),
        adopted=True,
    ),
    Specimen(
        "aws:ec2/securityGroupRule:SecurityGroupRule",
        inputs=lambda world: {
            "type": "ingress",
            "securityGroupId": world.group,
            "protocol": "tcp",
            "fromPort": 2049,
            "toPort": 2050,
            "cidrBlocks": ["10.20.0.0/16", "10.30.0.0/16"],
            "description": "nfs",
        },
        told=told_rule,
        changes={"description": "storage"},
        silent=frozenset({"type"}),
    ),
    Specimen(
        "aws:ec2/securityGroupRule:SecurityGroupRule",
        form="from another group",
        inputs=lambda world: {
            "type": "egress",
            "securityGroupId": world.group,
            "protocol": "-1",
            "fromPort": 0,
            "toPort": 0,
            "sourceSecurityGroupId": world.other_group,
        },
        told=told_rule,
        silent=frozenset({"fromPort", "toPort", "type"}),
    ),
    Specimen(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        inputs=lambda world: {
            "securityGroupId": world.group,
            "ipProtocol": "tcp",
            "fromPort": 443,
            "toPort": 443,
            "cidrIpv4": "10.30.0.0/16",
            "description": "https",
        },
        told=told_rule,
        changes={
            "description": "web",
            "toPort": 8443,
            "fromPort": 80,
            "ipProtocol": "udp",
            "cidrIpv4": "10.31.0.0/16",
        },
        silent=frozenset({"cidrIpv6", "prefixListId", "referencedSecurityGroupId"}),
    ),
    Specimen(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        inputs=lambda world: {
            "securityGroupId": world.group,
            "ipProtocol": "-1",
            "referencedSecurityGroupId": world.other_group,
        },
        told=told_rule,
        changes=lambda world: {"referencedSecurityGroupId": world.group},
        silent=frozenset({"cidrIpv4", "cidrIpv6", "description", "fromPort", "ipProtocol", "prefixListId", "toPort"}),
    ),
)
