"""A region's transit gateway: what its VPC hands to it, and what it hands to its VPC.

What it exchanges with other regions and with sites belongs to `links`.
"""

import pulumi
from pulumi_aws.ec2.route import Route as VpcRoute
from pulumi_aws.ec2.route import RouteArgs as VpcRouteArgs
from pulumi_aws.ec2transitgateway.route import Route, RouteArgs
from pulumi_aws.ec2transitgateway.route_table import RouteTable, RouteTableArgs
from pulumi_aws.ec2transitgateway.route_table_association import RouteTableAssociation, RouteTableAssociationArgs
from pulumi_aws.ec2transitgateway.transit_gateway import TransitGateway, TransitGatewayArgs
from pulumi_aws.ec2transitgateway.vpc_attachment import VpcAttachment, VpcAttachmentArgs

from bedplate.plan.beyond import behind, beyond, transit_asn
from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.network import Network
from stacks.options import inside
from stacks.tags import named

_OFF = "disable"


class Transit(pulumi.ComponentResource):
    """The gateway, the one table that it routes by, and its interfaces in the edge subnets of every zone."""

    gateway_id: pulumi.Output[str]
    table_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, region: RegionPlan, network: Network, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:Transit", plan.name, None, opts)
        self.gateway_id = self._gateway(plan, region)
        table = RouteTableArgs(transit_gateway_id=self.gateway_id, tags=named(plan.name))
        self.table_id = RouteTable(plan.name, table, inside(self)).id
        attachment = self._attach(plan, network)
        self._lead_in(plan, region, attachment)
        self._lead_out(plan, region, network, attachment)
        self.register_outputs({"gateway_id": self.gateway_id, "table_id": self.table_id})

    def _gateway(self, plan: FleetPlan, region: RegionPlan) -> pulumi.Output[str]:
        """Make the gateway; nothing joins it, and nothing is learnt, unless a resource says so."""
        args = TransitGatewayArgs(
            description=f"Transit of {plan.name} in {region.name}",
            amazon_side_asn=transit_asn(region),
            auto_accept_shared_attachments=_OFF,
            default_route_table_association=_OFF,
            default_route_table_propagation=_OFF,
            tags=named(plan.name),
        )
        return TransitGateway(plan.name, args, inside(self)).id

    def _attach(self, plan: FleetPlan, network: Network) -> VpcAttachment:
        args = VpcAttachmentArgs(
            transit_gateway_id=self.gateway_id,
            vpc_id=network.vpc_id,
            subnet_ids=[network.zones[zone].edge_id for zone in sorted(network.zones)],
            transit_gateway_default_route_table_association=False,
            transit_gateway_default_route_table_propagation=False,
            tags=named(plan.name),
        )
        attachment = VpcAttachment(plan.name, args, inside(self))
        by_table = RouteTableAssociationArgs(
            transit_gateway_attachment_id=attachment.id, transit_gateway_route_table_id=self.table_id
        )
        RouteTableAssociation(plan.name, by_table, inside(self))
        return attachment

    def _lead_in(self, plan: FleetPlan, region: RegionPlan, attachment: VpcAttachment) -> None:
        """Route the region's own block, and its laptops, into the VPC."""
        for each in behind(plan, region.name):
            args = RouteArgs(
                destination_cidr_block=str(each.block),
                transit_gateway_route_table_id=self.table_id,
                transit_gateway_attachment_id=attachment.id,
            )
            Route(f"{plan.name}-to-{each.name}", args, inside(self))

    def _lead_out(self, plan: FleetPlan, region: RegionPlan, network: Network, attachment: VpcAttachment) -> None:
        """Route all that lies beyond to the gateway, from every table: to those blocks, and to nothing else."""
        for each in beyond(plan, region.name):
            for table, table_id in sorted(network.table_ids.items()):
                args = VpcRouteArgs(
                    route_table_id=table_id,
                    destination_cidr_block=str(each.block),
                    transit_gateway_id=self.gateway_id,
                )
                VpcRoute(f"{plan.name}-{table}-to-{each.name}", args, inside(self, after=(attachment,)))
