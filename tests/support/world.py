"""A small world that specimens of resource kinds stand in, made by plain AWS calls: each part when first asked for."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bedplate.rehearsal.simulation import Aws

TRUST: Mapping[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@dataclass
class World:
    """Parts by what they are; ids throughout."""

    aws: Aws

    def made(self, operation: str, path: str, /, service: str = "ec2", **params: object) -> str:
        """Make something by one call and return what the reply holds at a dotted path."""
        found: Any = self.aws.call(service, operation, **params)
        for part in path.split("."):
            found = found[part]
        return str(found)

    @cached_property
    def vpc(self) -> str:
        """A VPC of 10.20.0.0/16 that resolves names."""
        ident = self.made("create_vpc", "Vpc.VpcId", CidrBlock="10.20.0.0/16")
        self.aws.call("ec2", "modify_vpc_attribute", VpcId=ident, EnableDnsHostnames={"Value": True})
        return ident

    @cached_property
    def far_vpc(self) -> str:
        """Another VPC, apart from the first."""
        return self.made("create_vpc", "Vpc.VpcId", CidrBlock="10.30.0.0/16")

    @cached_property
    def subnet(self) -> str:
        """A subnet of the VPC in the region's first zone."""
        return self._subnet("10.20.0.0/24", "a")

    @cached_property
    def other_subnet(self) -> str:
        """A subnet of the VPC in the region's second zone."""
        return self._subnet("10.20.1.0/24", "b")

    def _subnet(self, block: str, zone: str) -> str:
        place = f"{self.aws.region}{zone}"
        return self.made("create_subnet", "Subnet.SubnetId", VpcId=self.vpc, CidrBlock=block, AvailabilityZone=place)

    @cached_property
    def zone_id(self) -> str:
        """The id, the same in every account, of the region's first zone."""
        return str(self.aws.call("ec2", "describe_availability_zones")["AvailabilityZones"][0]["ZoneId"])

    @cached_property
    def table(self) -> str:
        """A route table of the VPC."""
        return self.made("create_route_table", "RouteTable.RouteTableId", VpcId=self.vpc)

    @cached_property
    def other_table(self) -> str:
        """Another route table of the VPC."""
        return self.made("create_route_table", "RouteTable.RouteTableId", VpcId=self.vpc)

    @cached_property
    def gateway(self) -> str:
        """An internet gateway, attached to the VPC."""
        ident = self.made("create_internet_gateway", "InternetGateway.InternetGatewayId")
        self.aws.call("ec2", "attach_internet_gateway", InternetGatewayId=ident, VpcId=self.vpc)
        return ident

    @cached_property
    def group(self) -> str:
        """A security group of the VPC."""
        return self._group("nodes")

    @cached_property
    def other_group(self) -> str:
        """Another security group of the VPC."""
        return self._group("storage")

    def _group(self, name: str) -> str:
        return self.made("create_security_group", "GroupId", GroupName=name, Description=name, VpcId=self.vpc)

    @cached_property
    def address(self) -> str:
        """An elastic address that nothing uses."""
        return self.made("allocate_address", "AllocationId", Domain="vpc")

    @cached_property
    def interface(self) -> str:
        """A network interface in the subnet."""
        path = "NetworkInterface.NetworkInterfaceId"
        return self.made("create_network_interface", path, SubnetId=self.subnet, Groups=[self.group])

    @cached_property
    def prefixes(self) -> str:
        """A prefix list of one block."""
        return self.made(
            "create_managed_prefix_list",
            "PrefixList.PrefixListId",
            PrefixListName="sites",
            MaxEntries=5,
            AddressFamily="IPv4",
            Entries=[{"Cidr": "192.168.40.0/22"}],
        )

    @cached_property
    def vpn_gateway(self) -> str:
        """A virtual private gateway, attached to the VPC."""
        ident = self.made("create_vpn_gateway", "VpnGateway.VpnGatewayId", Type="ipsec.1", AmazonSideAsn=64600)
        self.aws.call("ec2", "attach_vpn_gateway", VpnGatewayId=ident, VpcId=self.vpc)
        return ident

    @cached_property
    def customer_gateway(self) -> str:
        """A customer gateway."""
        return self.made(
            "create_customer_gateway",
            "CustomerGateway.CustomerGatewayId",
            Type="ipsec.1",
            BgpAsn=65010,
            IpAddress="8.20.30.40",
        )

    @cached_property
    def hub(self) -> str:
        """A transit gateway."""
        return self.made("create_transit_gateway", "TransitGateway.TransitGatewayId")

    @cached_property
    def hub_table(self) -> str:
        """A route table of the transit gateway, in which nothing is."""
        path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
        return self.made("create_transit_gateway_route_table", path, TransitGatewayId=self.hub)

    @cached_property
    def plain_hub(self) -> str:
        """A transit gateway that puts nothing into tables by itself."""
        options = {"DefaultRouteTableAssociation": "disable", "DefaultRouteTablePropagation": "disable"}
        return self.made("create_transit_gateway", "TransitGateway.TransitGatewayId", Options=options)

    @cached_property
    def plain_table(self) -> str:
        """A route table of that gateway."""
        path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
        return self.made("create_transit_gateway_route_table", path, TransitGatewayId=self.plain_hub)

    @cached_property
    def attachment(self) -> str:
        """The VPC's attachment to that gateway."""
        path = "TransitGatewayVpcAttachment.TransitGatewayAttachmentId"
        ends = {"TransitGatewayId": self.plain_hub, "VpcId": self.vpc}
        return self.made("create_transit_gateway_vpc_attachment", path, SubnetIds=[self.subnet], **ends)

    @cached_property
    def abroad(self) -> "World":
        """A world in another region."""
        return World(self.aws.elsewhere("us-east-2"))

    @cached_property
    def hub_request(self) -> str:
        """A peering of transit gateways that the other region asks for."""
        path = "TransitGatewayPeeringAttachment.TransitGatewayAttachmentId"
        peer = {"PeerRegion": self.aws.region, "PeerAccountId": self.aws.account}
        ends = {"TransitGatewayId": self.abroad.plain_hub, "PeerTransitGatewayId": self.plain_hub}
        return self.abroad.made("create_transit_gateway_peering_attachment", path, **ends, **peer)

    @cached_property
    def role(self) -> str:
        """The ARN of a role that EC2 may take."""
        name = f"role-{self.vpc}"
        trust = json.dumps(TRUST)
        return self.made("create_role", "Role.Arn", "iam", RoleName=name, AssumeRolePolicyDocument=trust)

    @cached_property
    def peering(self) -> str:
        """A peering of the two VPCs, accepted."""
        ident = self.pending_peering
        self.aws.call("ec2", "accept_vpc_peering_connection", VpcPeeringConnectionId=ident)
        return ident

    @cached_property
    def pending_peering(self) -> str:
        """A peering of the two VPCs that nobody has accepted yet."""
        path = "VpcPeeringConnection.VpcPeeringConnectionId"
        return self.made("create_vpc_peering_connection", path, VpcId=self.vpc, PeerVpcId=self.far_vpc)

    def service(self, name: str) -> str:
        """Return the name that endpoints give a service of AWS."""
        return f"com.amazonaws.{self.aws.region}.{name}"

    def born_with(self, operation: str, listing: str, ident: str) -> str:
        """Return the id of what the VPC has from its birth, as a describe call lists it."""
        ours = [{"Name": "vpc-id", "Values": [self.vpc]}]
        return str(self.aws.call("ec2", operation, Filters=ours)[listing][0][ident])
