"""What EC2 says of a resource that goes by an id; one that does not exist, or no longer does, is refused.

moto lets many ids pass that AWS would not, and tells of the deleted for ever: kinds ask here first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.rehearsal.faults import NO_ENDPOINT
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_GONE = frozenset({"deleted", "deleting", "delete-complete", "failed", "rejected", "expired"})


@dataclass(frozen=True, slots=True)
class Noun:
    """One type of EC2 resource: how it is described by id, and AWS's code for an id that does not exist."""

    word: str
    operation: str
    parameter: str
    listing: str
    code: str


ADDRESS = Noun("allocation", "describe_addresses", "AllocationIds", "Addresses", "InvalidAllocationID.NotFound")
CUSTOMER_GATEWAY = Noun(
    "customerGateway",
    "describe_customer_gateways",
    "CustomerGatewayIds",
    "CustomerGateways",
    "InvalidCustomerGatewayID.NotFound",
)
DHCP_OPTIONS = Noun(
    "dhcpOptions", "describe_dhcp_options", "DhcpOptionsIds", "DhcpOptions", "InvalidDhcpOptionID.NotFound"
)
FLOW_LOG = Noun("flowLog", "describe_flow_logs", "FlowLogIds", "FlowLogs", "InvalidFlowLogId.NotFound")
INTERNET_GATEWAY = Noun(
    "internetGateway",
    "describe_internet_gateways",
    "InternetGatewayIds",
    "InternetGateways",
    "InvalidInternetGatewayID.NotFound",
)
NAT_GATEWAY = Noun(
    "natGateway",
    "describe_nat_gateways",
    "NatGatewayIds",
    "NatGateways",
    "InvalidNatGatewayID.NotFound",
)
NETWORK_ACL = Noun(
    "networkAcl",
    "describe_network_acls",
    "NetworkAclIds",
    "NetworkAcls",
    "InvalidNetworkAclID.NotFound",
)
NETWORK_INTERFACE = Noun(
    "networkInterface",
    "describe_network_interfaces",
    "NetworkInterfaceIds",
    "NetworkInterfaces",
    "InvalidNetworkInterfaceID.NotFound",
)
PEERING = Noun(
    "vpcPeeringConnection",
    "describe_vpc_peering_connections",
    "VpcPeeringConnectionIds",
    "VpcPeeringConnections",
    "InvalidVpcPeeringConnectionID.NotFound",
)
PREFIX_LIST = Noun(
    "prefixList",
    "describe_managed_prefix_lists",
    "PrefixListIds",
    "PrefixLists",
    "InvalidPrefixListID.NotFound",
)
ROUTE_TABLE = Noun(
    "routeTable",
    "describe_route_tables",
    "RouteTableIds",
    "RouteTables",
    "InvalidRouteTableID.NotFound",
)
SECURITY_GROUP = Noun(
    "security group", "describe_security_groups", "GroupIds", "SecurityGroups", "InvalidGroup.NotFound"
)
SECURITY_GROUP_RULE = Noun(
    "security group rule",
    "describe_security_group_rules",
    "SecurityGroupRuleIds",
    "SecurityGroupRules",
    "InvalidSecurityGroupRuleId.NotFound",
)
SUBNET = Noun("subnet", "describe_subnets", "SubnetIds", "Subnets", "InvalidSubnetID.NotFound")
TRANSIT_ATTACHMENT = Noun(
    "transitGatewayAttachment",
    "describe_transit_gateway_attachments",
    "TransitGatewayAttachmentIds",
    "TransitGatewayAttachments",
    "InvalidTransitGatewayAttachmentID.NotFound",
)
TRANSIT_GATEWAY = Noun(
    "transitGateway",
    "describe_transit_gateways",
    "TransitGatewayIds",
    "TransitGateways",
    "InvalidTransitGatewayID.NotFound",
)
TRANSIT_TABLE = Noun(
    "transitGatewayRouteTable",
    "describe_transit_gateway_route_tables",
    "TransitGatewayRouteTableIds",
    "TransitGatewayRouteTables",
    "InvalidRouteTableID.NotFound",
)
VOLUME = Noun("volume", "describe_volumes", "VolumeIds", "Volumes", "InvalidVolume.NotFound")
VPC = Noun("vpc", "describe_vpcs", "VpcIds", "Vpcs", "InvalidVpcID.NotFound")
VPC_ENDPOINT = Noun(
    "vpcEndpoint",
    "describe_vpc_endpoints",
    "VpcEndpointIds",
    "VpcEndpoints",
    "InvalidVpcEndpointId.NotFound",
)
VPN_CONNECTION = Noun(
    "vpnConnection",
    "describe_vpn_connections",
    "VpnConnectionIds",
    "VpnConnections",
    "InvalidVpnConnectionID.NotFound",
)
VPN_GATEWAY = Noun(
    "vpnGateway",
    "describe_vpn_gateways",
    "VpnGatewayIds",
    "VpnGateways",
    "InvalidVpnGatewayID.NotFound",
)


def described(aws: Aws, noun: Noun, ident: str) -> dict[str, Any]:
    """Return EC2's description of a live resource; raise Refusal with AWS's code when there is none."""
    try:
        listed = aws.call("ec2", noun.operation, **{noun.parameter: [ident]})[noun.listing]
    except Refusal as refusal:
        if refusal.code == NO_ENDPOINT:
            raise
        listed = []
    live: list[dict[str, Any]] = [item for item in listed if is_live(item)]
    if not live:
        raise Refusal(noun.code, f"The {noun.word} ID '{ident}' does not exist")
    return live[0]


def require(aws: Aws, noun: Noun, *idents: str) -> None:
    """Raise Refusal with AWS's code unless every id is one of a live resource."""
    for ident in idents:
        described(aws, noun, ident)


def is_live(description: Mapping[str, Any]) -> bool:
    """Whether a description is of something that exists: AWS, too, tells for a while of what was deleted."""
    state = description.get("State") or description.get("Status") or ""
    word = state.get("Code", "") if isinstance(state, dict) else state
    return word not in _GONE
