"""AWS's end of a region's tunnels: the region's transit gateway, or a virtual private gateway where it has none."""

from dataclasses import dataclass

import pulumi
from pulumi_aws.ec2.route import Route as VpcRoute
from pulumi_aws.ec2.route import RouteArgs as VpcRouteArgs
from pulumi_aws.ec2.vpn_connection import VpnConnection
from pulumi_aws.ec2.vpn_gateway import VpnGateway, VpnGatewayArgs
from pulumi_aws.ec2transitgateway.route import Route, RouteArgs
from pulumi_aws.ec2transitgateway.route_table_association import RouteTableAssociation, RouteTableAssociationArgs

from bedplate.plan.beyond import behind, has_transit
from bedplate.plan.fleet import FleetPlan
from stacks.side import Side
from stacks.tags import named


@dataclass(frozen=True, slots=True, kw_only=True)
class VpnGateways:
    """The gateway that a VPN connection ends at: one of the two."""

    transit: pulumi.Output[str] | None = None
    private: pulumi.Output[str] | None = None


@dataclass(frozen=True, slots=True)
class TransitEnd:
    """A transit gateway, which leads to a site by its own table; VPC tables lead to it already."""

    side: Side

    @property
    def gateways(self) -> VpnGateways:
        """What a VPN connection names as AWS's end."""
        return VpnGateways(transit=self.side.output("transit_gateway_id"))

    def lead(self, plan: FleetPlan, site: str, connection: VpnConnection, parent: pulumi.Resource) -> None:
        """Route to the site what is for it, and by the gateway's own table what comes from it."""
        name, inside = f"{plan.name}-{self.side.name}", self.side.inside(parent)
        table_id, attachment_id = self.side.output("transit_table_id"), connection.transit_gateway_attachment_id
        by_table = RouteTableAssociationArgs(
            transit_gateway_attachment_id=attachment_id, transit_gateway_route_table_id=table_id
        )
        RouteTableAssociation(f"{name}-from-site-{site}", by_table, inside)
        for each in behind(plan, site):
            args = RouteArgs(
                destination_cidr_block=str(each.block),
                transit_gateway_route_table_id=table_id,
                transit_gateway_attachment_id=attachment_id,
            )
            Route(f"{name}-to-{each.name}", args, inside)


@dataclass(frozen=True, slots=True)
class PrivateEnd:
    """A virtual private gateway on the region's VPC, which every table of the region leads to."""

    side: Side
    gateway: VpnGateway

    @property
    def gateways(self) -> VpnGateways:
        """What a VPN connection names as AWS's end."""
        return VpnGateways(private=self.gateway.id)

    def lead(self, plan: FleetPlan, site: str, connection: VpnConnection, parent: pulumi.Resource) -> None:
        """Route to the gateway what is for the site: its declared blocks, whatever it announces."""
        for each in behind(plan, site):
            for table, table_id in sorted(self.side.table_ids.items()):
                args = VpcRouteArgs(
                    route_table_id=table_id, destination_cidr_block=str(each.block), gateway_id=self.gateway.id
                )
                name = f"{plan.name}-{self.side.name}-{table}-to-{each.name}"
                VpcRoute(name, args, self.side.inside(parent, after=(connection,)))


VpnEnd = TransitEnd | PrivateEnd


class PrivateGateway(pulumi.ComponentResource):
    """A virtual private gateway, attached to a region's VPC."""

    gateway: VpnGateway

    def __init__(self, plan: FleetPlan, side: Side) -> None:
        name = f"{plan.name}-{side.name}"
        super().__init__("bedplate:stacks:PrivateGateway", name)
        args = VpnGatewayArgs(vpc_id=side.output("vpc_id"), tags=named(name))
        self.gateway = VpnGateway(name, args, side.inside(self))
        self.register_outputs({"gateway_id": self.gateway.id})


def vpn_end(plan: FleetPlan, side: Side) -> VpnEnd:
    """Return AWS's end of a region's tunnels; where that is a gateway of its own, declare it."""
    return TransitEnd(side) if has_transit(plan) else PrivateEnd(side, PrivateGateway(plan, side).gateway)
