"""A region's VPC, its way to the internet and to S3, and a pair of subnets in each zone."""

import pulumi
from pulumi_aws.ec2.default_route_table import DefaultRouteTable, DefaultRouteTableArgs
from pulumi_aws.ec2.default_security_group import DefaultSecurityGroup, DefaultSecurityGroupArgs
from pulumi_aws.ec2.internet_gateway import InternetGateway, InternetGatewayArgs
from pulumi_aws.ec2.route import Route, RouteArgs
from pulumi_aws.ec2.route_table import RouteTable, RouteTableArgs
from pulumi_aws.ec2.vpc import Vpc, VpcArgs
from pulumi_aws.ec2.vpc_endpoint import VpcEndpoint, VpcEndpointArgs
from pulumi_aws.ec2.vpc_endpoint_route_table_association import (
    VpcEndpointRouteTableAssociation,
    VpcEndpointRouteTableAssociationArgs,
)

from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.flow_log import FlowRecord
from stacks.options import inside
from stacks.subnets import VpcParts, ZoneSubnets
from stacks.tags import named

ANYWHERE = "0.0.0.0/0"


class Network(pulumi.ComponentResource):
    """The VPC at the region's block; its default group and table are emptied: nothing works by accident."""

    vpc_id: pulumi.Output[str]
    edge_table_id: pulumi.Output[str]
    internet_gateway: InternetGateway
    zones: dict[str, ZoneSubnets]

    def __init__(self, plan: FleetPlan, region: RegionPlan, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:Network", plan.name, None, opts)
        vpc = self._vpc(plan, region)
        self.vpc_id = vpc.id
        self._empty_defaults(plan, vpc)
        FlowRecord(plan, self.vpc_id, inside(self))
        self.internet_gateway = self._internet_gateway(plan)
        s3_id = self._s3_endpoint(plan, region)
        self.edge_table_id = self._edge_table(plan, s3_id)
        parts = VpcParts(self.vpc_id, self.edge_table_id, s3_id)
        self.zones = {zone.name: ZoneSubnets(plan, zone, parts, inside(self)) for zone in region.zones}
        self.register_outputs({"vpc_id": self.vpc_id})

    @property
    def node_subnet_ids(self) -> dict[str, pulumi.Output[str]]:
        """The node subnets by zone, in the order of the zones' names."""
        return {zone: self.zones[zone].nodes_id for zone in sorted(self.zones)}

    @property
    def table_ids(self) -> dict[str, pulumi.Output[str]]:
        """The route tables by name: one for all edges, one for each zone's nodes."""
        of_nodes = {f"{zone}-nodes": self.zones[zone].nodes_table_id for zone in sorted(self.zones)}
        return {"edge": self.edge_table_id, **of_nodes}

    def _vpc(self, plan: FleetPlan, region: RegionPlan) -> Vpc:
        args = VpcArgs(
            cidr_block=str(region.block),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=named(plan.name),
        )
        return Vpc(plan.name, args, inside(self))

    def _empty_defaults(self, plan: FleetPlan, vpc: Vpc) -> None:
        name = f"{plan.name}-default"
        DefaultSecurityGroup(name, DefaultSecurityGroupArgs(vpc_id=vpc.id, tags=named(name)), inside(self))
        table = DefaultRouteTableArgs(default_route_table_id=vpc.default_route_table_id, routes=[], tags=named(name))
        DefaultRouteTable(name, table, inside(self))

    def _internet_gateway(self, plan: FleetPlan) -> InternetGateway:
        args = InternetGatewayArgs(vpc_id=self.vpc_id, tags=named(plan.name))
        return InternetGateway(plan.name, args, inside(self))

    def _edge_table(self, plan: FleetPlan, s3_id: pulumi.Output[str]) -> pulumi.Output[str]:
        name = f"{plan.name}-edge"
        table = RouteTable(name, RouteTableArgs(vpc_id=self.vpc_id, tags=named(name)), inside(self))
        outward = RouteArgs(
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=self.internet_gateway.id,
        )
        Route(f"{name}-internet", outward, inside(self))
        to_s3 = VpcEndpointRouteTableAssociationArgs(route_table_id=table.id, vpc_endpoint_id=s3_id)
        VpcEndpointRouteTableAssociation(f"{name}-s3", to_s3, inside(self))
        return table.id

    def _s3_endpoint(self, plan: FleetPlan, region: RegionPlan) -> pulumi.Output[str]:
        """Make the gateway endpoint by which training data reaches nodes without paying a NAT gateway."""
        name = f"{plan.name}-s3"
        args = VpcEndpointArgs(
            vpc_id=self.vpc_id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{region.name}.s3",
            tags=named(name),
        )
        return VpcEndpoint(name, args, inside(self)).id
