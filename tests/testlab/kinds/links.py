"""Fixtures of peerings, VPN connections, transit gateways and security groups."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.ec2 import described
from bedplate.rehearsal.kinds.transit_routes import associations, propagations
from bedplate.rehearsal.kinds.vpn import VPN_CONNECTION
from bedplate.rehearsal.simulation import Aws
from tests.testlab.kinds.world import KindFixture, World
from tests.testlab.rehearsal.live import describe_by_id


def vpn(world: World) -> dict[str, Any]:
    """Return the inputs of a VPN connection to the gateways of the world."""
    return {"customerGatewayId": world.customer_gateway, "type": "ipsec.1", "vpnGatewayId": world.vpn_gateway}


RESOLVES = {"allowRemoteVpcDnsResolution": True}

LINKS = (
    KindFixture(
        "aws:ec2/vpcPeeringConnection:VpcPeeringConnection",
        inputs=lambda world: {"vpcId": world.vpc, "peerVpcId": world.far_vpc},
        read_back=describe_by_id(ec2.PEERING),
    ),
    KindFixture(
        "aws:ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter",
        inputs=lambda world: {"vpcPeeringConnectionId": world.pending_peering},
        read_back=describe_by_id(ec2.PEERING),
        changes={"autoAccept": True},
        not_returned=frozenset({"vpcPeeringConnectionId"}),
        adopted=True,
    ),
    KindFixture(
        "aws:ec2/peeringConnectionOptions:PeeringConnectionOptions",
        inputs=lambda world: {"vpcPeeringConnectionId": world.peering},
        read_back=describe_by_id(ec2.PEERING),
        changes={"accepter": RESOLVES, "requester": RESOLVES},
        not_returned=frozenset({"vpcPeeringConnectionId"}),
        adopted=True,
    ),
    KindFixture(
        "aws:ec2/vpnGateway:VpnGateway",
        inputs=lambda world: {"vpcId": world.vpc},
        read_back=describe_by_id(ec2.VPN_GATEWAY),
        changes=lambda world: {"vpcId": world.far_vpc},
    ),
    KindFixture(
        "aws:ec2/customerGateway:CustomerGateway",
        inputs={
            "type": "ipsec.1",
            "bgpAsn": "65010",
            "ipAddress": "8.20.30.40",
            "deviceName": "gate",
        },
        read_back=describe_by_id(ec2.CUSTOMER_GATEWAY),
        not_returned=frozenset({"deviceName"}),
    ),
    KindFixture(
        "aws:ec2/vpnConnection:VpnConnection",
        inputs=lambda world: {**vpn(world), "tunnel1InsideCidr": "169.254.20.0/30"},
        read_back=describe_by_id(ec2.VPN_CONNECTION),
        not_returned=frozenset(VPN_CONNECTION.inputs.keys() - {"tags", "type"}),
    ),
    KindFixture(
        "aws:ec2/vpnConnection:VpnConnection",
        variant="to a transit gateway",
        inputs=lambda world: {
            "customerGatewayId": world.customer_gateway,
            "type": "ipsec.1",
            "transitGatewayId": world.hub,
        },
        read_back=describe_by_id(ec2.VPN_CONNECTION),
    ),
)


def read_attachment(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the description of a VPC attachment, and its memberships in route tables."""
    ids = {"TransitGatewayAttachmentIds": [ident]}
    (attachment,) = aws.call("ec2", "describe_transit_gateway_vpc_attachments", **ids)["TransitGatewayVpcAttachments"]
    tables = aws.call("ec2", "describe_transit_gateway_route_tables")["TransitGatewayRouteTables"]
    table_ids = [table["TransitGatewayRouteTableId"] for table in tables]
    memberships = [[ident in members(aws, table) for table in table_ids] for members in (associations, propagations)]
    return [attachment, memberships]


def read_tags(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the description of a peering in the accepting region, with its tags there."""
    filters = [{"Name": "resource-id", "Values": [ident]}]
    return [
        describe_by_id(ec2.TRANSIT_ATTACHMENT)(aws, ident, inputs),
        aws.call("ec2", "describe_tags", Filters=filters)["Tags"],
    ]


def read_peering(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the description of a peering."""
    ids = {"TransitGatewayAttachmentIds": [ident]}
    response = aws.call("ec2", "describe_transit_gateway_peering_attachments", **ids)
    return response["TransitGatewayPeeringAttachments"]


def read_membership(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the associations and propagations of the route table of an association."""
    table = str(inputs["transitGatewayRouteTableId"])
    return [table, associations(aws, table), propagations(aws, table)]


def read_route(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the static routes in the table of a route."""
    table = str(inputs["transitGatewayRouteTableId"])
    filters = [{"Name": "type", "Values": ["static"]}]
    response = aws.call("ec2", "search_transit_gateway_routes", TransitGatewayRouteTableId=table, Filters=filters)
    return [table, response["Routes"]]


def membership(world: World) -> dict[str, Any]:
    """Return the attachment and the table of the gateway without default tables."""
    return {"transitGatewayAttachmentId": world.attachment, "transitGatewayRouteTableId": world.plain_table}


TRANSIT = (
    KindFixture(
        "aws:ec2transitgateway/transitGateway:TransitGateway",
        inputs={"amazonSideAsn": 64520, "description": "us-west-2"},
        read_back=describe_by_id(ec2.TRANSIT_GATEWAY),
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
    KindFixture(
        "aws:ec2transitgateway/transitGateway:TransitGateway",
        variant="without default tables",
        inputs={"defaultRouteTableAssociation": "disable", "defaultRouteTablePropagation": "disable"},
        read_back=describe_by_id(ec2.TRANSIT_GATEWAY),
    ),
    KindFixture(
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment",
        inputs=lambda world: {"transitGatewayId": world.hub, "vpcId": world.vpc, "subnetIds": [world.subnet]},
        read_back=read_attachment,
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
    KindFixture(
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment",
        variant="to a gateway without default tables",
        inputs=lambda world: {
            "transitGatewayId": world.plain_hub,
            "vpcId": world.vpc,
            "subnetIds": [world.subnet, world.other_subnet],
            "transitGatewayDefaultRouteTableAssociation": False,
            "transitGatewayDefaultRouteTablePropagation": False,
        },
        read_back=read_attachment,
    ),
    KindFixture(
        "aws:ec2transitgateway/peeringAttachment:PeeringAttachment",
        inputs=lambda world: {
            "transitGatewayId": world.plain_hub,
            "peerRegion": world.abroad.aws.region,
            "peerTransitGatewayId": world.abroad.plain_hub,
        },
        read_back=read_peering,
    ),
    KindFixture(
        "aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter",
        inputs=lambda world: {"transitGatewayAttachmentId": world.hub_request},
        read_back=read_tags,
        adopted=True,
    ),
    KindFixture(
        "aws:ec2transitgateway/routeTable:RouteTable",
        inputs=lambda world: {"transitGatewayId": world.plain_hub},
        read_back=describe_by_id(ec2.TRANSIT_TABLE),
    ),
    KindFixture(
        "aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation",
        inputs=membership,
        read_back=read_membership,
    ),
    KindFixture(
        "aws:ec2transitgateway/route:Route",
        inputs=lambda world: {**membership(world), "destinationCidrBlock": "10.65.0.0/16"},
        read_back=read_route,
    ),
)


def read_group(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return a security group with its rules, sorted."""
    group = described(aws, ec2.SECURITY_GROUP, ident)
    directions = ("IpPermissions", "IpPermissionsEgress")
    return [group, [sorted(map(str, group[direction])) for direction in directions]]


def read_rule(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return all rules of the group of a rule, with their tags."""
    filters = [{"Name": "group-id", "Values": [inputs["securityGroupId"]]}]
    rules = aws.call("ec2", "describe_security_group_rules", Filters=filters)["SecurityGroupRules"]
    return [{key: value for key, value in rule.items() if key != "SecurityGroupRuleId"} for rule in rules]


RULES = (
    KindFixture(
        "aws:ec2/securityGroup:SecurityGroup",
        inputs=lambda world: {
            "name": "gates",
            "description": "A group",
            "vpcId": world.vpc,
        },
        read_back=read_group,
        not_returned=frozenset({"revokeRulesOnDelete"}),
    ),
    KindFixture(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        inputs=lambda world: {"vpcId": world.vpc},
        read_back=read_group,
        not_returned=frozenset({"revokeRulesOnDelete"}),
        adopted=True,
    ),
    KindFixture(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        inputs=lambda world: {
            "securityGroupId": world.group,
            "ipProtocol": "tcp",
            "fromPort": 443,
            "toPort": 443,
            "cidrIpv4": "10.30.0.0/16",
            "description": "https",
        },
        read_back=read_rule,
        changes={
            "description": "web",
            "toPort": 8443,
            "fromPort": 80,
            "ipProtocol": "udp",
            "cidrIpv4": "10.31.0.0/16",
        },
        not_returned=frozenset({"referencedSecurityGroupId"}),
    ),
    KindFixture(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        inputs=lambda world: {
            "securityGroupId": world.group,
            "ipProtocol": "-1",
            "referencedSecurityGroupId": world.other_group,
        },
        read_back=read_rule,
        changes=lambda world: {"referencedSecurityGroupId": world.group},
        not_returned=frozenset({"cidrIpv4", "description", "fromPort", "ipProtocol", "toPort"}),
    ),
)
