"""AWS's end of a region's tunnels: the region's transit gateway, or a virtual private gateway where it has none."""

from dataclasses import dataclass

import pulumi
from pulumi_aws.ec2.route import Route as Ec2Route
from pulumi_aws.ec2.route import Route as VpcRoute
from pulumi_aws.ec2.route import RouteArgs as Ec2RouteArgs
from pulumi_aws.ec2.route import RouteArgs as VpcRouteArgs
from pulumi_aws.ec2.vpn_connection import VpnConnection
from pulumi_aws.ec2.vpn_gateway import VpnGateway, VpnGatewayArgs
from pulumi_aws.ec2transitgateway.route import Route, RouteArgs
from pulumi_aws.ec2transitgateway.route_table_association import RouteTableAssociation, RouteTableAssociationArgs
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule, SecurityGroupIngressRuleArgs

from bedplate.plan.firewall import joined_rules
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.links import behind, has_transit
from bedplate.plan.nodes import IKE
from stacks.network.transit import Side
from stacks.options import named, output_of


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


_ALL = "-1"  # every protocol, every port


class JoinedGateway(pulumi.ComponentResource):
    """A region's gateway as far as it is joined to any other: it takes from nodes what it is to carry."""

    side: Side
    public_ip: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    group_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, side: Side) -> None:
        name = f"{plan.name}-{side.name}-laptops"
        super().__init__("bedplate:stacks:JoinedGateway", name)
        told: pulumi.Output[dict[str, str]] = output_of(side.stack, "laptop_gateway")
        self.side = side
        self.public_ip, self.interface_id, self.group_id = told["public_ip"], told["interface_id"], told["group_id"]
        for rule in joined_rules(side.region):
            args = SecurityGroupIngressRuleArgs(
                security_group_id=self.group_id,
                ip_protocol=_ALL,
                cidr_ipv4=str(rule.block),
                description=rule.about,
                tags=named(f"{name}-{rule.name}"),
            )
            SecurityGroupIngressRule(f"{name}-{rule.name}", args, side.inside(self))
        self.register_outputs({})


class GatewayLink(pulumi.ComponentResource):
    """Two regions, joined by their gateways: each lets the other's IKE in, and leads to it what is for the other."""

    def __init__(self, plan: FleetPlan, near: JoinedGateway, far: JoinedGateway) -> None:
        super().__init__("bedplate:stacks:GatewayLink", f"{plan.name}-{near.side.name}-{far.side.name}")
        self._plan = plan
        for here, there in ((near, far), (far, near)):
            self._route(here, there, self._doors(here, there))
        self.register_outputs({})

    def _doors(self, here: JoinedGateway, there: JoinedGateway) -> tuple[pulumi.Resource, ...]:
        """Open IKE to the other gateway's address alone; ESP comes within it, for both addresses are translated."""
        return tuple(self._door(here, there, port) for port in IKE)

    def _door(self, here: JoinedGateway, there: JoinedGateway, port: int) -> SecurityGroupIngressRule:
        name = f"{self._plan.name}-{here.side.name}-laptops-ike-{port}-from-{there.side.name}"
        args = SecurityGroupIngressRuleArgs(
            security_group_id=here.group_id,
            ip_protocol="udp",
            from_port=port,
            to_port=port,
            cidr_ipv4=there.public_ip.apply(lambda address: f"{address}/32"),
            description=f"IKE from the gateway in {there.side.name}",
            tags=named(name),
        )
        return SecurityGroupIngressRule(name, args, here.side.inside(self))

    def _route(self, here: JoinedGateway, there: JoinedGateway, doors: tuple[pulumi.Resource, ...]) -> None:
        """Lead to the gateway here what is for the other region; routes wait for the doors to the gateway there."""
        for each in behind(self._plan, there.side.name):
            for table, table_id in sorted(here.side.table_ids.items()):
                args = Ec2RouteArgs(
                    route_table_id=table_id,
                    destination_cidr_block=str(each.block),
                    network_interface_id=here.interface_id,
                )
                name = f"{self._plan.name}-{here.side.name}-{table}-to-{each.name}"
                Ec2Route(name, args, here.side.inside(self, after=doors))
