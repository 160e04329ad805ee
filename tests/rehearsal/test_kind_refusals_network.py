"""What AWS refuses of the network's kinds and moto would let pass, told by AWS's own codes; nothing stays half made."""

from collections.abc import Callable
from typing import Any

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.transit_membership import pair
from bedplate.rehearsal.refusal import Refusal
from tests.support.census import census
from tests.support.specimen import Given, Specimen
from tests.support.specimens_links import vpn
from tests.support.specimens_network import NETWORK
from tests.support.specimens_resolver import made_endpoint, made_rule
from tests.support.specimens_rules import ssh_from
from tests.support.world import World

SPECIMENS: dict[str, Specimen] = {each.token.rpartition(":")[2]: each for each in reversed(NETWORK)}
# Types of two packages may have one name: those of transit gateways come last in it, and go by another here.
SPECIMENS |= {
    f"Transit{short}": next(each for each in NETWORK if each.token == f"aws:ec2transitgateway/{module}:{name}")
    for short, module, name in (
        ("Table", "routeTable", "RouteTable"),
        ("Association", "routeTableAssociation", "RouteTableAssociation"),
        ("Route", "route", "Route"),
    )
}
SPECIMENS |= {"Interface": next(each for each in NETWORK if each.form == "interface")}
DEFAULT_ROUTE = {"cidrBlock": "0.0.0.0/0"}


def foreign_gateway(world: World) -> dict[str, Any]:
    """Return a route to a gateway of another VPC."""
    ident = world.made("create_internet_gateway", "InternetGateway.InternetGatewayId")
    world.aws.call("ec2", "attach_internet_gateway", InternetGatewayId=ident, VpcId=world.far_vpc)
    return {"gatewayId": ident}


def foreign_group(world: World) -> dict[str, Any]:
    """Return a security group of another VPC as the source."""
    params = {"GroupName": "far", "Description": "far", "VpcId": world.far_vpc}
    return {"cidrIpv4": None, "referencedSecurityGroupId": world.made("create_security_group", "GroupId", **params)}


def crowded_zone(world: World) -> dict[str, Any]:
    """Return two subnets of one zone."""
    zone = f"{world.aws.region}a"
    params = {"VpcId": world.vpc, "CidrBlock": "10.20.9.0/24", "AvailabilityZone": zone}
    return {"subnetIds": [world.subnet, world.made("create_subnet", "Subnet.SubnetId", **params)]}


NOWHERE = {
    "cloudwatchLogOptions": {
        "logEnabled": True,
        "logGroupArn": "arn:aws:logs:us-west-2:111122223333:log-group:nowhere",
    }
}


def taken_block(world: World) -> dict[str, Any]:
    """Return inputs of a second VPN connection with the tunnel block of a first."""
    given = {**vpn(world), "tunnel1InsideCidr": "169.254.20.0/30"}
    KINDS["aws:ec2/vpnConnection:VpnConnection"].create(world.aws, given)
    return given


def served_subnet(world: World) -> dict[str, Any]:
    """Return a subnet that a route table serves already."""
    world.aws.call("ec2", "associate_route_table", RouteTableId=world.other_table, SubnetId=world.subnet)
    return {"subnetId": world.subnet}


def reserved_block(world: World) -> dict[str, Any]:
    """Return a block that holds one which is reserved already."""
    call = {"SubnetId": world.subnet, "Cidr": "10.20.0.32/28", "ReservationType": "explicit"}
    world.aws.call("ec2", "create_subnet_cidr_reservation", **call)
    return {"cidrBlock": "10.20.0.32/27"}


def used_address(world: World) -> dict[str, Any]:
    """Return an address that an interface has."""
    world.aws.call("ec2", "associate_address", AllocationId=world.address, NetworkInterfaceId=world.interface)
    return {"allocationId": world.address}


def attached_already(world: World) -> dict[str, Any]:
    """Return the ends of an attachment that exists."""
    assert world.attachment
    off = dict.fromkeys((f"transitGatewayDefaultRouteTable{word}" for word in ("Association", "Propagation")), False)
    return {"transitGatewayId": world.plain_hub, **off}


def own_request(world: World) -> dict[str, Any]:
    """Return a peering of transit gateways that this region itself asks for."""
    peer = SPECIMENS["PeeringAttachment"]
    return {"transitGatewayAttachmentId": KINDS[peer.token].create(world.aws, peer.inputs_in(world))}


def accepted_request(world: World) -> dict[str, Any]:
    """Return a peering of transit gateways that this region has accepted."""
    world.aws.call("ec2", "accept_transit_gateway_peering_attachment", TransitGatewayAttachmentId=world.hub_request)
    return {"transitGatewayAttachmentId": world.hub_request}


def pending_attachment(world: World) -> dict[str, Any]:
    """Return a peering that nobody has accepted yet."""
    return {"transitGatewayAttachmentId": world.hub_request}


def peered_attachment(world: World) -> dict[str, Any]:
    """Return a peering that this region has accepted, and a table of its gateway."""
    return {**accepted_request(world), "transitGatewayRouteTableId": world.plain_table}


def foreign_table(world: World) -> dict[str, Any]:
    """Return a table of another transit gateway than the attachment's."""
    return {"transitGatewayRouteTableId": world.hub_table}


def associated_already(world: World) -> dict[str, Any]:
    """Return a table of the gateway another of whose tables has the attachment."""
    world.aws.call("ec2", "associate_transit_gateway_route_table", **pair(world.plain_table, world.attachment))
    path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
    other = world.made("create_transit_gateway_route_table", path, TransitGatewayId=world.plain_hub)
    return {"transitGatewayRouteTableId": other}


def propagating_already(world: World) -> dict[str, Any]:
    """Return a table that learns from the attachment."""
    call = "enable_transit_gateway_route_table_propagation"
    world.aws.call("ec2", call, **pair(world.plain_table, world.attachment))
    return {}


def routed_already(world: World) -> dict[str, Any]:
    """Return a block that the table has a route to."""
    call = {"TransitGatewayRouteTableId": world.plain_table, "DestinationCidrBlock": "10.65.0.0/16"}
    world.aws.call("ec2", "create_transit_gateway_route", **call, Blackhole=True)
    return {}


def far_group(world: World) -> str:
    """Return a security group of another VPC."""
    given = {"GroupName": "far", "Description": "far", "VpcId": world.far_vpc}
    return world.made("create_security_group", "GroupId", **given)


def two_addresses(world: World, address: str) -> dict[str, Any]:
    """Return a fixed address and another."""
    return {"ipAddresses": [{"subnetId": world.subnet, "ip": address}, {"subnetId": world.other_subnet}]}


def taken_address(world: World) -> dict[str, Any]:
    """Return the address of an interface, and another."""
    world.aws.call("ec2", "create_network_interface", SubnetId=world.subnet, PrivateIpAddress="10.20.0.77")
    return two_addresses(world, "10.20.0.77")


def inbound_endpoint(world: World) -> dict[str, Any]:
    """Return an endpoint that leads in."""
    return {"resolverEndpointId": made_endpoint(world, direction="INBOUND")}


def forwarded_already(world: World) -> dict[str, Any]:
    """Return a rule for a domain that the VPC has a rule for."""
    associate = KINDS["aws:route53/resolverRuleAssociation:ResolverRuleAssociation"].create
    associate(world.aws, {"resolverRuleId": made_rule(world, "office.lab"), "vpcId": world.vpc})
    return {"resolverRuleId": made_rule(world, "office.lab")}


def cut_off(world: World) -> dict[str, Any]:
    """Return an interface in a VPC without a way out."""
    subnet = world.made("create_subnet", "Subnet.SubnetId", VpcId=world.far_vpc, CidrBlock="10.30.0.0/24")
    return {"networkInterfaceId": world.made("create_network_interface", ENI, SubnetId=subnet)}


# Kind, what spoils the specimen's inputs, and AWS's code.
DEFECTS: tuple[tuple[str, Given, str], ...] = (
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
    ("EipAssociation", {"allocationId": "eipalloc-0"}, "InvalidAllocationID.NotFound"),
    ("EipAssociation", {"networkInterfaceId": "eni-0"}, "InvalidNetworkInterfaceID.NotFound"),
    ("EipAssociation", {"privateIpAddress": "10.20.9.9"}, "InvalidParameterValue"),
    ("EipAssociation", cut_off, "Gateway.NotAttached"),
    ("NatGateway", {"subnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
    ("NatGateway", {"allocationId": "eipalloc-0"}, "InvalidAllocationID.NotFound"),
    ("NatGateway", used_address, "Resource.AlreadyAssociated"),
    ("RouteTable", {"routes": [{**DEFAULT_ROUTE, "natGatewayId": "nat-0"}]}, "InvalidNatGatewayID.NotFound"),
    ("RouteTable", {"propagatingVgws": ["vgw-0"]}, "InvalidVpnGatewayID.NotFound"),
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
    (
        "Route",
        {"destinationCidrBlock": None, "destinationPrefixListId": "pl-0"},
        "InvalidPrefixListID.NotFound",
    ),
    ("RouteTableAssociation", {"subnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
    ("RouteTableAssociation", served_subnet, "Resource.AlreadyAssociated"),
    ("VpcEndpoint", {"serviceName": "com.amazonaws.us-east-1.s3"}, "InvalidServiceName"),
    ("VpcEndpoint", lambda world: {"serviceName": world.service("ssm")}, "InvalidServiceName"),
    ("VpcEndpoint", {"routeTableIds": ["rtb-0"]}, "InvalidRouteTableID.NotFound"),
    ("Interface", lambda world: {"serviceName": world.service("sms")}, "InvalidServiceName"),
    ("Interface", {"securityGroupIds": ["sg-0"]}, "InvalidGroup.NotFound"),
    ("Interface", crowded_zone, "DuplicateSubnetsInSameZone"),
    ("Interface", lambda world: {"vpcId": world.far_vpc}, "InvalidParameter"),
    ("SecurityGroup", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("SecurityGroup", lambda world: {"name": world.group and "nodes"}, "InvalidGroup.Duplicate"),
    (
        "SecurityGroup",
        {"ingress": [{**ssh_from("10.0.0.0/8"), "securityGroups": ["sg-0"]}]},
        "InvalidGroup.NotFound",
    ),
    (
        "SecurityGroup",
        {"egress": [{**ssh_from("10.0.0.0/8"), "prefixListIds": ["pl-0"]}]},
        "InvalidPrefixListID.NotFound",
    ),
    ("SecurityGroup", {"ingress": [ssh_from("10.0.0.0/8")] * 2}, "InvalidPermission.Duplicate"),
    ("SecurityGroupRule", {"securityGroupId": "sg-0"}, "InvalidGroup.NotFound"),
    (
        "SecurityGroupIngressRule",
        {"cidrIpv4": None, "referencedSecurityGroupId": "sg-0"},
        "InvalidGroup.NotFound",
    ),
    ("SecurityGroupIngressRule", foreign_group, "InvalidGroup.NotFound"),
    ("NetworkInterface", {"privateIps": ["10.20.1.10"]}, "InvalidParameterValue"),
    ("NetworkInterface", {"securityGroups": ["sg-0"]}, "InvalidGroup.NotFound"),
    ("VpcPeeringConnection", lambda world: {"peerVpcId": world.vpc}, "failed"),
    ("VpcPeeringConnection", {"requester": {"allowRemoteVpcDnsResolution": True}}, "OperationNotPermitted"),
    ("VpnGateway", {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ("VpnGateway", lambda world: {"vpcId": world.vpn_gateway and world.vpc}, "VpnGatewayLimitExceeded"),
    ("VpnConnection", {"customerGatewayId": "cgw-0"}, "InvalidCustomerGatewayID.NotFound"),
    ("VpnConnection", {"vpnGatewayId": "vgw-0"}, "InvalidVpnGatewayID.NotFound"),
    ("VpnConnection", taken_block, "InvalidParameterValue"),
    ("VpnConnection", {"tunnel1LogOptions": NOWHERE}, "InvalidParameterValue"),
    (
        "VpnConnectionRoute",
        lambda world: {"vpnConnectionId": KINDS["aws:ec2/vpnConnection:VpnConnection"].create(world.aws, vpn(world))},
        "InvalidVpnConnection.InvalidType",
    ),
    ("FlowLog", {"vpcId": "vpc-0123456789abcdef0"}, "InvalidVpcID.NotFound"),
    ("FlowLog", {"iamRoleArn": "arn:aws:iam::111122223333:role/nobody"}, "InvalidParameter"),
    ("FlowLog", {"logDestinationType": "s3", "logDestination": "arn:aws:s3:::nowhere"}, "400"),
    ("VpcDhcpOptionsAssociation", {"dhcpOptionsId": "dopt-0"}, "InvalidDhcpOptionID.NotFound"),
    ("NetworkAcl", {"subnetIds": ["subnet-0"]}, "InvalidSubnetID.NotFound"),
    (
        "DefaultNetworkAcl",
        lambda world: {"defaultNetworkAclId": world.made("create_network_acl", ACL, VpcId=world.vpc)},
        "InvalidNetworkAclID.NotFound",
    ),
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
    ("PeeringAttachment", {"peerAccountId": "444455556666"}, "Unsupported"),
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
    ("RouteTablePropagation", foreign_table, "InvalidParameterValue"),
    ("RouteTablePropagation", peered_attachment, "InvalidParameterValue"),
    ("RouteTablePropagation", propagating_already, "TransitGatewayRouteTablePropagation.Duplicate"),
    ("TransitRoute", {"transitGatewayRouteTableId": "tgw-rtb-0"}, "InvalidRouteTableID.NotFound"),
    (
        "TransitRoute",
        {"transitGatewayAttachmentId": "tgw-attach-0"},
        "InvalidTransitGatewayAttachmentID.NotFound",
    ),
    ("TransitRoute", pending_attachment, "IncorrectState"),
    ("TransitRoute", foreign_table, "InvalidParameterValue"),
    ("TransitRoute", routed_already, "RouteAlreadyExists"),
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
ACL = "NetworkAcl.NetworkAclId"
ENI = "NetworkInterface.NetworkInterfaceId"


def inputs_of(name: str, world: World, spoiled: Given) -> dict[str, Any]:
    """Return a specimen's inputs with some of them spoiled; what is spoiled to None is left out."""
    specimen = SPECIMENS[name]
    good = {**KINDS[specimen.token].defaults, **specimen.inputs_in(world)}
    bad = spoiled(world) if callable(spoiled) else spoiled
    return {key: value for key, value in {**good, **bad}.items() if value is not None}


@pytest.mark.parametrize(("name", "spoiled", "code"), DEFECTS)
def test_what_aws_refuses_is_refused_and_leaves_nothing(name: str, spoiled: Given, code: str, world: World) -> None:
    """A refused create has AWS's code, and all that it had made is gone."""
    kind, inputs = KINDS[SPECIMENS[name].token], inputs_of(name, world, spoiled)
    before = census(world.aws)

    with pytest.raises(Refusal) as refused:
        kind.create(world.aws, inputs)

    assert refused.value.code == code
    assert census(world.aws) == before


def test_a_public_nat_gateway_needs_a_way_out(world: World) -> None:
    """Without an internet gateway in its VPC AWS makes a NAT gateway, and it fails."""
    kind = KINDS["aws:ec2/natGateway:NatGateway"]
    inputs = {"subnetId": world.subnet, "allocationId": world.address, "connectivityType": "public"}

    with pytest.raises(Refusal, match=r"Gateway\.NotAttached"):
        kind.create(world.aws, inputs)

    assert world.gateway
    assert kind.create(world.aws, inputs)


def holds_interface(world: World) -> None:
    """Put an interface into the world's subnet and group."""
    assert world.interface


def names_group(world: World) -> None:
    """Let a rule of another group name the world's group."""
    pairs = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": world.group}]}]
    world.aws.call("ec2", "authorize_security_group_ingress", GroupId=world.other_group, IpPermissions=pairs)


def takes_address(world: World) -> None:
    """Let an interface take the world's address."""
    used_address(world)


def holds_connection(world: World) -> None:
    """Make a VPN connection of the world's customer gateway."""
    KINDS["aws:ec2/vpnConnection:VpnConnection"].create(world.aws, vpn(world))


# Kind, the part of the world that is to go, what holds it, and AWS's code.
HELD: tuple[tuple[str, str, Callable[[World], None], str], ...] = (
    ("aws:ec2/subnet:Subnet", "subnet", holds_interface, "DependencyViolation"),
    ("aws:ec2/securityGroup:SecurityGroup", "group", holds_interface, "DependencyViolation"),
    ("aws:ec2/securityGroup:SecurityGroup", "group", names_group, "DependencyViolation"),
    ("aws:ec2/eip:Eip", "address", takes_address, "InvalidIPAddress.InUse"),
    ("aws:ec2/customerGateway:CustomerGateway", "customer_gateway", holds_connection, "IncorrectState"),
)


@pytest.mark.parametrize(("token", "part", "hold", "code"), HELD)
def test_what_is_in_use_is_not_deleted(
    token: str, part: str, hold: Callable[[World], None], code: str, world: World
) -> None:
    """AWS keeps what something else depends on, and lets it go once nothing does."""
    kind, free, ident = KINDS[token], World(world.aws), getattr(world, part)
    hold(world)

    with pytest.raises(Refusal) as refused:
        kind.delete(world.aws, ident, schema.outputs(token))

    assert refused.value.code == code
    kind.delete(free.aws, getattr(free, part), schema.outputs(token))


def test_interfaces_of_terminated_instances_hold_nothing(world: World) -> None:
    """AWS deletes a terminated instance's interface; moto keeps it, and it must not keep its subnet."""
    image = world.aws.call("ec2", "describe_images")["Images"][0]["ImageId"]
    placed = {"SubnetId": world.subnet, "SecurityGroupIds": [world.group]}
    run = world.aws.call("ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, **placed)
    world.aws.call("ec2", "terminate_instances", InstanceIds=[run["Instances"][0]["InstanceId"]])

    for token, ident in (
        ("aws:ec2/securityGroup:SecurityGroup", world.group),
        ("aws:ec2/subnet:Subnet", world.subnet),
    ):
        KINDS[token].delete(world.aws, ident, schema.outputs(token))
        with pytest.raises(Refusal):
            KINDS[token].read(world.aws, ident, {})


def test_one_endpoint_of_a_network_answers_to_a_services_name(world: World) -> None:
    """A second one is refused, unless it leaves the name alone or serves something else."""
    kind = KINDS["aws:ec2/vpcEndpoint:VpcEndpoint"]
    asked = {"vpcId": world.vpc, "vpcEndpointType": "Interface", "serviceName": world.service("ssm")}
    kind.create(world.aws, {**asked, "privateDnsEnabled": True})

    with pytest.raises(Refusal, match="conflicting DNS domain") as refused:
        kind.create(world.aws, {**asked, "privateDnsEnabled": True})

    assert (refused.value.code, refused.value.key) == ("InvalidParameter", "privateDnsEnabled")
    kind.create(world.aws, {**asked, "privateDnsEnabled": False})
    kind.create(world.aws, {**asked, "serviceName": world.service("sts"), "privateDnsEnabled": True})


def test_an_interface_of_its_own_outlives_the_machine_that_took_it_over(world: World) -> None:
    """It is free again when the machine ends, holds its subnet as before, and can be deleted."""
    image = world.aws.call("ec2", "describe_images")["Images"][0]["ImageId"]
    interface, token = KINDS["aws:ec2/networkInterface:NetworkInterface"], "aws:ec2/subnet:Subnet"
    ident = interface.create(world.aws, {"subnetId": world.subnet})
    taken = [{"DeviceIndex": 0, "NetworkInterfaceId": ident}]
    run = world.aws.call("ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, NetworkInterfaces=taken)
    with pytest.raises(Refusal):
        interface.delete(world.aws, ident, {})

    world.aws.call("ec2", "terminate_instances", InstanceIds=[run["Instances"][0]["InstanceId"]])

    with pytest.raises(Refusal, match="dependencies"):
        KINDS[token].delete(world.aws, world.subnet, schema.outputs(token))
    interface.delete(world.aws, ident, {})
    KINDS[token].delete(world.aws, world.subnet, schema.outputs(token))
