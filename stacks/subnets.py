"""The two subnets of an availability zone: edge, which faces the internet, and nodes, which does not."""

from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_aws.ec2.route_table import RouteTable, RouteTableArgs
from pulumi_aws.ec2.route_table_association import RouteTableAssociation, RouteTableAssociationArgs
from pulumi_aws.ec2.subnet import Subnet, SubnetArgs
from pulumi_aws.ec2.subnet_cidr_reservation import SubnetCidrReservation, SubnetCidrReservationArgs
from pulumi_aws.ec2.vpc_endpoint_route_table_association import (
    VpcEndpointRouteTableAssociation,
    VpcEndpointRouteTableAssociationArgs,
)

from bedplate.plan.fleet import FleetPlan, ZonePlan
from bedplate.plan.member import fixed_block
from stacks.options import inside
from stacks.tags import named


@dataclass(frozen=True, slots=True)
class VpcParts:
    """What a zone's subnets hang on: the VPC, the table of all edge subnets, the endpoint for S3."""

    vpc_id: pulumi.Output[str]
    edge_table_id: pulumi.Output[str]
    s3_endpoint_id: pulumi.Output[str]


class ZoneSubnets(pulumi.ComponentResource):
    """One zone's subnets and the nodes' own route table; neither subnet gives a machine a public address."""

    edge_id: pulumi.Output[str]
    nodes_id: pulumi.Output[str]
    nodes_table_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, zone: ZonePlan, parts: VpcParts, opts: pulumi.ResourceOptions) -> None:
        self._zone, self._prefix = zone.name, f"{plan.name}-{zone.name}"
        super().__init__("bedplate:stacks:ZoneSubnets", self._prefix, None, opts)
        self.nodes_table_id = self._nodes_table(parts)
        self.edge_id = self._subnet("edge", zone.edge, parts.vpc_id, parts.edge_table_id)
        self.nodes_id = self._subnet("nodes", zone.nodes, parts.vpc_id, self.nodes_table_id)
        self._keep_fixed(zone)
        self.register_outputs({"edge_id": self.edge_id, "nodes_id": self.nodes_id})

    def _nodes_table(self, parts: VpcParts) -> pulumi.Output[str]:
        name = f"{self._prefix}-nodes"
        table = RouteTable(name, RouteTableArgs(vpc_id=parts.vpc_id, tags=named(name)), inside(self))
        to_s3 = VpcEndpointRouteTableAssociationArgs(route_table_id=table.id, vpc_endpoint_id=parts.s3_endpoint_id)
        VpcEndpointRouteTableAssociation(f"{name}-s3", to_s3, inside(self))
        return table.id

    def _keep_fixed(self, zone: ZonePlan) -> None:
        """Keep AWS from handing out, to whatever starts there, the addresses that the plan gives out itself."""
        args = SubnetCidrReservationArgs(
            subnet_id=self.nodes_id,
            cidr_block=str(fixed_block(zone.nodes)),
            reservation_type="explicit",
            description="Fixed addresses",
        )
        SubnetCidrReservation(f"{self._prefix}-nodes-fixed", args, inside(self))

    def _subnet(
        self, tier: str, block: IPv4Network, vpc_id: pulumi.Output[str], table_id: pulumi.Output[str]
    ) -> pulumi.Output[str]:
        name = f"{self._prefix}-{tier}"
        args = SubnetArgs(
            vpc_id=vpc_id,
            availability_zone=self._zone,
            cidr_block=str(block),
            map_public_ip_on_launch=False,
            tags=named(name),
        )
        subnet = Subnet(name, args, inside(self))
        RouteTableAssociation(
            name, RouteTableAssociationArgs(route_table_id=table_id, subnet_id=subnet.id), inside(self)
        )
        return subnet.id
