"""Network resources that AWS refuses and moto accepts: one invalid change of a fixture in each row."""

from typing import Any

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.transit_routes import pair
from tests.testlab.kinds.links import vpn
from tests.testlab.kinds.names import made_endpoint, made_rule
from tests.testlab.kinds.network import NETWORK
from tests.testlab.kinds.world import Given, World


def foreign_gateway(world: World) -> dict[str, Any]:
    """Return a route to an internet gateway of another VPC."""
    ident = world.create("create_internet_gateway", "InternetGateway.InternetGatewayId")
    world.aws.call("ec2", "attach_internet_gateway", InternetGatewayId=ident, VpcId=world.far_vpc)
    return {"gatewayId": ident}


def foreign_group(world: World) -> dict[str, Any]:
    """Return a security group of another VPC as source."""
    params = {"GroupName": "far", "Description": "far", "VpcId": world.far_vpc}
    return {"cidrIpv4": None, "referencedSecurityGroupId": world.create("create_security_group", "GroupId", **params)}


def same_rule(world: World) -> dict[str, Any]:
    """Return a rule that the group has."""
    rule = {"securityGroupId": world.group, "ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "cidrIpv4": "10.0.0.0/8"}
    KINDS["aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"].create(world.aws, rule)
    return rule


def pending_peering(world: World) -> dict[str, Any]:
    """Return a peering that the other side has not accepted."""
    path = "VpcPeeringConnection.VpcPeeringConnectionId"
    ident = world.create("create_vpc_peering_connection", path, VpcId=world.far_vpc, PeerVpcId=world.vpc)
    return {"vpcPeeringConnectionId": ident}


def crowded_zone(world: World) -> dict[str, Any]:
    """Return two subnets of one zone."""
    zone = f"{world.aws.region}a"
    params = {"VpcId": world.vpc, "CidrBlock": "10.20.9.0/24", "AvailabilityZone": zone}
    return {"subnetIds": [world.subnet, world.create("create_subnet", "Subnet.SubnetId", **params)]}


UNKNOWN_LOG_GROUP = {
    "cloudwatchLogOptions": {
        "logEnabled": True,
        "logGroupArn": "arn:aws:logs:us-west-2:111122223333:log-group:nowhere",
    }
}


def used_block(world: World) -> dict[str, Any]:
    """Return the inputs of a VPN connection with the tunnel block of another."""
    inputs = {**vpn(world), "tunnel1InsideCidr": "169.254.20.0/30"}
    KINDS["aws:ec2/vpnConnection:VpnConnection"].create(world.aws, inputs)
    return inputs


def associated_subnet(world: World) -> dict[str, Any]:
    """Return a subnet that is associated with a route table."""
    world.aws.call("ec2", "associate_route_table", RouteTableId=world.other_table, SubnetId=world.subnet)
    return {"subnetId": world.subnet}


def reserved_block(world: World) -> dict[str, Any]:
    """Return a block that contains a reserved block."""
    call = {"SubnetId": world.subnet, "Cidr": "10.20.0.32/28", "ReservationType": "explicit"}
    world.aws.call("ec2", "create_subnet_cidr_reservation", **call)
    return {"cidrBlock": "10.20.0.32/27"}


def used_address(world: World) -> dict[str, Any]:
    """Return an address that is associated with an interface."""
    world.aws.call("ec2", "associate_address", AllocationId=world.address, NetworkInterfaceId=world.interface)
    return {"allocationId": world.address}


def far_group(world: World) -> str:
    """Return a security group of another VPC."""
    inputs = {"GroupName": "far", "Description": "far", "VpcId": world.far_vpc}
    return world.create("create_security_group", "GroupId", **inputs)


def two_addresses(world: World, address: str) -> dict[str, Any]:
    """Return one fixed and one free address."""
    return {"ipAddresses": [{"subnetId": world.subnet, "ip": address}, {"subnetId": world.other_subnet}]}


def taken_address(world: World) -> dict[str, Any]:
    """Return a used and a free address."""
    world.aws.call("ec2", "create_network_interface", SubnetId=world.subnet, PrivateIpAddress="10.20.0.77")
    return two_addresses(world, "10.20.0.77")


def inbound_endpoint(world: World) -> dict[str, Any]:
    """Return an inbound endpoint."""
    return {"resolverEndpointId": made_endpoint(world, direction="INBOUND")}


def forwarded_already(world: World) -> dict[str, Any]:
    """Return a second rule for a domain in a VPC."""
    associate = KINDS["aws:route53/resolverRuleAssociation:ResolverRuleAssociation"].create
    associate(world.aws, {"resolverRuleId": made_rule(world, "office.lab"), "vpcId": world.vpc})
    return {"resolverRuleId": made_rule(world, "office.lab")}


# Kind, changes that make the inputs invalid, and the error code of AWS.
NETWORK_CALLS: tuple[tuple[str, Given, str], ...] = (
    ("Subnet", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("Subnet", {"availabilityZone": "us-east-1a"}, "InvalidParameterValue"),
    ("Subnet", {"cidrBlock": "10.99.0.0/24"}, "InvalidSubnet.Range"),
    ("Subnet", lambda world: {"cidrBlock": world.subnet and "10.20.0.0/25"}, "InvalidSubnet.Conflict"),
    ("SubnetCidrReservation", {"subnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
    ("SubnetCidrReservation", {"cidrBlock": "10.20.9.0/28"}, "InvalidParameterValue"),
    ("SubnetCidrReservation", reserved_block, "InvalidParameterValue"),
    ("InternetGateway", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("InternetGateway", lambda world: {"vpcId": world.gateway and world.vpc}, "InvalidParameterValue"),
    ("Eip", {"networkInterface": "eni-0"}, "InvalidNetworkInterfaceID.NotFound"),
    ("NatGateway", {"subnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
    ("NatGateway", {"allocationId": "eipalloc-0"}, "InvalidAllocationID.NotFound"),
    ("NatGateway", used_address, "Resource.AlreadyAssociated"),
    ("Route", {"gatewayId": None, "natGatewayId": "nat-0"}, "InvalidNatGatewayID.NotFound"),
    ("Route", {"routeTableId": "rtb-0"}, "InvalidRouteTableID.NotFound"),
    ("Route", {"gatewayId": "gate-0"}, "InvalidGatewayID.NotFound"),
    ("Route", {"destinationCidrBlock": "10.20.0.0/16"}, "RouteAlreadyExists"),
    ("Route", {"destinationCidrBlock": "10.20.5.0/24"}, "InvalidParameterValue"),
    ("Route", foreign_gateway, "InvalidParameterValue"),
    (
        "Route",
        lambda world: {"gatewayId": None, "transitGatewayId": world.hub},
        "InvalidTransitGatewayID.NotFound",
    ),
    ("RouteTableAssociation", {"subnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
    ("RouteTableAssociation", associated_subnet, "Resource.AlreadyAssociated"),
    ("VpcEndpoint", {"serviceName": "com.amazonaws.us-east-1.s3"}, "InvalidServiceName"),
    ("VpcEndpoint", lambda world: {"serviceName": world.service("ssm")}, "InvalidServiceName"),
    ("Interface", lambda world: {"serviceName": world.service("sms")}, "InvalidServiceName"),
    ("Interface", {"securityGroupIds": ["sg-0"]}, "InvalidGroup.NotFound"),
    ("Interface", crowded_zone, "DuplicateSubnetsInSameZone"),
    ("Interface", lambda world: {"vpcId": world.far_vpc}, "InvalidParameter"),
    ("SecurityGroup", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("SecurityGroup", lambda world: {"name": world.group and "nodes"}, "InvalidGroup.Duplicate"),
    ("SecurityGroupIngressRule", same_rule, "InvalidPermission.Duplicate"),
    (
        "SecurityGroupIngressRule",
        {"cidrIpv4": None, "referencedSecurityGroupId": "sg-0"},
        "InvalidGroup.NotFound",
    ),
    ("SecurityGroupIngressRule", foreign_group, "InvalidGroup.NotFound"),
    ("NetworkInterface", {"privateIps": ["10.20.1.10"]}, "InvalidParameterValue"),
    ("NetworkInterface", {"securityGroups": ["sg-0"]}, "InvalidGroup.NotFound"),
    ("VpcPeeringConnection", lambda world: {"peerVpcId": world.vpc}, "failed"),
    ("PeeringConnectionOptions", pending_peering, "OperationNotPermitted"),
    ("VpnGateway", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("VpnGateway", lambda world: {"vpcId": world.vpn_gateway and world.vpc}, "VpnGatewayLimitExceeded"),
    ("VpnConnection", {"customerGatewayId": "cgw-0"}, "InvalidCustomerGatewayID.NotFound"),
    ("VpnConnection", {"vpnGatewayId": "vgw-0"}, "InvalidVpnGatewayID.NotFound"),
    ("VpnConnection", used_block, "InvalidParameterValue"),
    ("VpnConnection", {"tunnel1LogOptions": UNKNOWN_LOG_GROUP}, "InvalidParameterValue"),
    ("FlowLog", {"vpcId": "vpc-0123456789abcdef0"}, "InvalidVpcID.NotFound"),
    ("FlowLog", {"iamRoleArn": "arn:aws:iam::111122223333:role/nobody"}, "InvalidParameter"),
    ("ResolverEndpoint", {"securityGroupIds": ["sg-0"]}, "InvalidGroup.NotFound"),
    ("ResolverEndpoint", lambda world: {"securityGroupIds": [far_group(world)]}, "InvalidRequestException"),
    ("ResolverEndpoint", lambda world: two_addresses(world, "10.20.0.2"), "InvalidRequestException"),
    ("ResolverEndpoint", lambda world: two_addresses(world, "10.20.7.9"), "InvalidRequestException"),
    ("ResolverEndpoint", taken_address, "ResourceExistsException"),
    ("ResolverRule", {"resolverEndpointId": "rslvr-out-0"}, "ResourceNotFoundException"),
    ("ResolverRule", inbound_endpoint, "InvalidRequestException"),
    ("ResolverRuleAssociation", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("ResolverRuleAssociation", {"resolverRuleId": "rslvr-rr-0"}, "ResourceNotFoundException"),
    ("ResolverRuleAssociation", forwarded_already, "InvalidRequestException"),
    ("PeeringConnectionOptions", {"vpcPeeringConnectionId": "pcx-0"}, "InvalidVpcPeeringConnectionID.NotFound"),
)


def attached_already(world: World) -> dict[str, Any]:
    """Return the gateway of an existing attachment of the VPC."""
    assert world.attachment
    off = dict.fromkeys((f"transitGatewayDefaultRouteTable{word}" for word in ("Association", "Propagation")), False)
    return {"transitGatewayId": world.plain_hub, **off}


def own_request(world: World) -> dict[str, Any]:
    """Return a peering that this region requested."""
    peer = next(fixture for fixture in NETWORK if fixture.token.endswith(":PeeringAttachment"))
    return {"transitGatewayAttachmentId": KINDS[peer.token].create(world.aws, peer.inputs_in(world))}


def accepted_request(world: World) -> dict[str, Any]:
    """Return a peering that this region has accepted."""
    world.aws.call("ec2", "accept_transit_gateway_peering_attachment", TransitGatewayAttachmentId=world.hub_request)
    return {"transitGatewayAttachmentId": world.hub_request}


def pending_attachment(world: World) -> dict[str, Any]:
    """Return a peering that is not accepted."""
    return {"transitGatewayAttachmentId": world.hub_request}


def foreign_table(world: World) -> dict[str, Any]:
    """Return a route table of another transit gateway."""
    return {"transitGatewayRouteTableId": world.hub_table}


def associated_already(world: World) -> dict[str, Any]:
    """Return a second table for an associated attachment."""
    world.aws.call("ec2", "associate_transit_gateway_route_table", **pair(world.plain_table, world.attachment))
    path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
    other = world.create("create_transit_gateway_route_table", path, TransitGatewayId=world.plain_hub)
    return {"transitGatewayRouteTableId": other}


def routed_already(world: World) -> dict[str, Any]:
    """Add the route to the table; return no changes."""
    call = {"TransitGatewayRouteTableId": world.plain_table, "DestinationCidrBlock": "10.65.0.0/16"}
    world.aws.call("ec2", "create_transit_gateway_route", **call, Blackhole=True)
    return {}


# Kind, changes that make the inputs invalid, and the error code of AWS.
TRANSIT_CALLS: tuple[tuple[str, Given, str], ...] = (
    ("VpcAttachment", {"transitGatewayId": "tgw-0"}, "InvalidTransitGatewayID.NotFound"),
    ("VpcAttachment", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("VpcAttachment", {"subnetIds": ["subnet-0"]}, "InvalidSubnetID.NotFound"),
    ("VpcAttachment", lambda world: {"vpcId": world.far_vpc}, "InvalidParameterValue"),
    ("VpcAttachment", crowded_zone, "DuplicateSubnetsInSameZone"),
    ("VpcAttachment", lambda world: {"transitGatewayId": world.plain_hub}, "InvalidInput"),
    ("VpcAttachment", attached_already, "DuplicateTransitGatewayAttachment"),
    ("PeeringAttachment", {"transitGatewayId": "tgw-0"}, "InvalidTransitGatewayID.NotFound"),
    ("PeeringAttachment", {"peerTransitGatewayId": "tgw-0"}, "InvalidTransitGatewayID.NotFound"),
    ("PeeringAttachment", {"peerRegion": "us-west-2"}, "InvalidTransitGatewayID.NotFound"),
    ("PeeringAttachment", lambda world: {"peerTransitGatewayId": world.plain_hub}, "InvalidParameterCombination"),
    (
        "PeeringAttachmentAccepter",
        {"transitGatewayAttachmentId": "tgw-attach-0"},
        "InvalidTransitGatewayAttachmentID.NotFound",
    ),
    ("PeeringAttachmentAccepter", own_request, "InvalidParameterValue"),
    ("PeeringAttachmentAccepter", accepted_request, "IncorrectState"),
    ("TransitTable", {"transitGatewayId": "tgw-0"}, "InvalidTransitGatewayID.NotFound"),
    ("TransitAssociation", {"transitGatewayRouteTableId": "tgw-rtb-0"}, "InvalidRouteTableID.NotFound"),
    ("TransitAssociation", foreign_table, "InvalidParameterValue"),
    ("TransitAssociation", associated_already, "Resource.AlreadyAssociated"),
    ("TransitAssociation", pending_attachment, "IncorrectState"),
    ("TransitRoute", {"transitGatewayRouteTableId": "tgw-rtb-0"}, "InvalidRouteTableID.NotFound"),
    (
        "TransitRoute",
        {"transitGatewayAttachmentId": "tgw-attach-0"},
        "InvalidTransitGatewayAttachmentID.NotFound",
    ),
    ("TransitRoute", pending_attachment, "IncorrectState"),
    ("TransitRoute", foreign_table, "InvalidParameterValue"),
    ("TransitRoute", routed_already, "RouteAlreadyExists"),
)
