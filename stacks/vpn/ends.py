"""Gateways of AWS for VPN connections with sites, and the peering of regions by their VPN gateways.

A VPN connection ends at the transit gateway of the region, or at a virtual private gateway if there is none.
"""

from dataclasses import dataclass

import pulumi
from pulumi_aws.ec2.vpn_connection import VpnConnection
from pulumi_aws.ec2.vpn_gateway import VpnGateway, VpnGatewayArgs
from pulumi_aws.ec2transitgateway.route import Route, RouteArgs
from pulumi_aws.ec2transitgateway.route_table_association import RouteTableAssociation, RouteTableAssociationArgs
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule, SecurityGroupIngressRuleArgs

from bedplate.plan.firewall import region_transit_rules
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.links import has_transit, networks_of_place
from bedplate.plan.nodes import IKE
from stacks.network.transit import NextHop, RegionStack, RemoteRoutes
from stacks.options import name_tag, output_of


@dataclass(frozen=True, slots=True, kw_only=True)
class VpnGateways:
    """The gateway of a VPN connection: one of the two."""

    transit: pulumi.Output[str] | None = None
    private: pulumi.Output[str] | None = None


@dataclass(frozen=True, slots=True)
class TransitEnd:
    """A transit gateway as the end of VPN connections; `declare_transit_routes` routes the VPC to it."""

    stack: RegionStack

    @property
    def gateways(self) -> VpnGateways:
        """The gateway arguments of a VPN connection."""
        return VpnGateways(transit=self.stack.output("transit_gateway_id"))

    def declare_routes(self, plan: FleetPlan, site: str, connection: VpnConnection, parent: pulumi.Resource) -> None:
        """Associate the connection with the table of the gateway, and route the blocks of the site to it."""
        name, options = f"{plan.name}-{self.stack.name}", self.stack.child_options(parent)
        table_id, attachment_id = self.stack.output("transit_table_id"), connection.transit_gateway_attachment_id
        association = RouteTableAssociationArgs(
            transit_gateway_attachment_id=attachment_id, transit_gateway_route_table_id=table_id
        )
        RouteTableAssociation(f"{name}-from-site-{site}", association, options)
        for destination in networks_of_place(plan, site):
            args = RouteArgs(
                destination_cidr_block=str(destination.block),
                transit_gateway_route_table_id=table_id,
                transit_gateway_attachment_id=attachment_id,
            )
            Route(f"{name}-to-{destination.name}", args, options)


@dataclass(frozen=True, slots=True)
class PrivateEnd:
    """A virtual private gateway as the end of VPN connections, with routes in every table of the region."""

    stack: RegionStack
    gateway: VpnGateway

    @property
    def gateways(self) -> VpnGateways:
        """The gateway arguments of a VPN connection."""
        return VpnGateways(private=self.gateway.id)

    def declare_routes(self, plan: FleetPlan, site: str, connection: VpnConnection, _: pulumi.Resource) -> None:
        """Route the planned blocks of the site to the gateway; routes announced by BGP are not used."""
        hop = NextHop("gateway_id", self.gateway.id, after=(connection,))
        RemoteRoutes(plan, self.stack, networks_of_place(plan, site), hop)


VpnEnd = TransitEnd | PrivateEnd


class PrivateGateway(pulumi.ComponentResource):
    """A virtual private gateway, attached to a region's VPC."""

    gateway: VpnGateway

    def __init__(self, plan: FleetPlan, stack: RegionStack) -> None:
        name = f"{plan.name}-{stack.name}"
        super().__init__("bedplate:stacks:PrivateGateway", name)
        args = VpnGatewayArgs(vpc_id=stack.output("vpc_id"), tags=name_tag(name))
        self.gateway = VpnGateway(name, args, stack.child_options(self))
        self.register_outputs({"gateway_id": self.gateway.id})


def aws_end(plan: FleetPlan, stack: RegionStack) -> VpnEnd:
    """Return the end of VPN connections in a region; declare a virtual private gateway without transit gateways."""
    return TransitEnd(stack) if has_transit(plan) else PrivateEnd(stack, PrivateGateway(plan, stack).gateway)


_ALL_PROTOCOLS = "-1"  # every protocol, every port


class PeeredGateway(pulumi.ComponentResource):
    """The VPN gateway of a region that is peered with others; it accepts packets of nodes to forward them."""

    stack: RegionStack
    public_ip: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    group_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, stack: RegionStack) -> None:
        name = f"{plan.name}-{stack.name}-laptops"
        super().__init__("bedplate:stacks:PeeredGateway", name)
        outputs: pulumi.Output[dict[str, str]] = output_of(stack.reference, "laptop_gateway")
        self.stack = stack
        self.public_ip, self.interface_id, self.group_id = (
            outputs["public_ip"],
            outputs["interface_id"],
            outputs["group_id"],
        )
        for rule in region_transit_rules(stack.region):
            args = SecurityGroupIngressRuleArgs(
                security_group_id=self.group_id,
                ip_protocol=_ALL_PROTOCOLS,
                cidr_ipv4=str(rule.block),
                description=rule.about,
                tags=name_tag(f"{name}-{rule.name}"),
            )
            SecurityGroupIngressRule(f"{name}-{rule.name}", args, stack.child_options(self))
        self.register_outputs({})


class GatewayPeering(pulumi.ComponentResource):
    """The peering of two regions by their gateways: IKE from each other, and routes to each other."""

    def __init__(self, plan: FleetPlan, first: PeeredGateway, second: PeeredGateway) -> None:
        super().__init__("bedplate:stacks:GatewayPeering", f"{plan.name}-{first.stack.name}-{second.stack.name}")
        self._plan = plan
        for local, remote in ((first, second), (second, first)):
            hop = NextHop("network_interface_id", local.interface_id, after=self._ike_rules(local, remote))
            RemoteRoutes(plan, local.stack, networks_of_place(plan, remote.stack.name), hop)
        self.register_outputs({})

    def _ike_rules(self, local: PeeredGateway, remote: PeeredGateway) -> tuple[pulumi.Resource, ...]:
        """Allow IKE from the address of the other gateway; ESP is inside UDP because of NAT on both sides."""
        return tuple(self._ike_rule(local, remote, port) for port in IKE)

    def _ike_rule(self, local: PeeredGateway, remote: PeeredGateway, port: int) -> SecurityGroupIngressRule:
        name = f"{self._plan.name}-{local.stack.name}-laptops-ike-{port}-from-{remote.stack.name}"
        args = SecurityGroupIngressRuleArgs(
            security_group_id=local.group_id,
            ip_protocol="udp",
            from_port=port,
            to_port=port,
            cidr_ipv4=remote.public_ip.apply(lambda address: f"{address}/32"),
            description=f"IKE from the gateway in {remote.stack.name}",
            tags=name_tag(name),
        )
        return SecurityGroupIngressRule(name, args, local.stack.child_options(self))
