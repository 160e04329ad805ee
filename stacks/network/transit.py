"""Transit gateways of regions, the peerings between regions (by transit gateway or by VPC), and routes to other places.

The stack of a region declares `Transit`. The stack `links` declares the rest, with the outputs of the regions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import pulumi
from pulumi_aws.ec2._inputs import PeeringConnectionOptionsAccepterArgs, PeeringConnectionOptionsRequesterArgs
from pulumi_aws.ec2.peering_connection_options import PeeringConnectionOptions, PeeringConnectionOptionsArgs
from pulumi_aws.ec2.route import Route as VpcRoute
from pulumi_aws.ec2.route import RouteArgs as VpcRouteArgs
from pulumi_aws.ec2.vpc_peering_connection import VpcPeeringConnection, VpcPeeringConnectionArgs
from pulumi_aws.ec2.vpc_peering_connection_accepter import (
    VpcPeeringConnectionAccepter,
    VpcPeeringConnectionAccepterInitArgs,
)
from pulumi_aws.ec2transitgateway.peering_attachment import PeeringAttachment, PeeringAttachmentArgs
from pulumi_aws.ec2transitgateway.peering_attachment_accepter import (
    PeeringAttachmentAccepter,
    PeeringAttachmentAccepterArgs,
)
from pulumi_aws.ec2transitgateway.route import Route, RouteArgs
from pulumi_aws.ec2transitgateway.route_table import RouteTable, RouteTableArgs
from pulumi_aws.ec2transitgateway.route_table_association import RouteTableAssociation, RouteTableAssociationArgs
from pulumi_aws.ec2transitgateway.transit_gateway import TransitGateway, TransitGatewayArgs
from pulumi_aws.ec2transitgateway.vpc_attachment import VpcAttachment, VpcAttachmentArgs
from pulumi_aws.provider import Provider

from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.links import RemoteNetwork, networks_of_place, place_names, transit_asn
from bedplate.plan.stacks import LINKS
from stacks.network.vpc import Network
from stacks.options import child_options, name_tag, output_of, region_provider, stack_reference

_OFF = "disable"


class Transit(pulumi.ComponentResource):
    """A transit gateway with one route table, attached to the edge subnets of the VPC."""

    gateway_id: pulumi.Output[str]
    table_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, region: RegionPlan, network: Network, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:Transit", plan.name, None, opts)
        self.gateway_id = self._gateway(plan, region)
        table = RouteTableArgs(transit_gateway_id=self.gateway_id, tags=name_tag(plan.name))
        self.table_id = RouteTable(plan.name, table, child_options(self)).id
        attachment = Attachment(plan, self.table_id, self._attach(plan, network), child_options(self))
        # The block of the region, and its laptops.
        attachment.connect(plan.name, plan.name, region.name)
        self.register_outputs({"gateway_id": self.gateway_id, "table_id": self.table_id})

    def _gateway(self, plan: FleetPlan, region: RegionPlan) -> pulumi.Output[str]:
        """Declare the gateway without default associations and propagations: each is a resource."""
        args = TransitGatewayArgs(
            description=f"Transit of {plan.name} in {region.name}",
            amazon_side_asn=transit_asn(region),
            auto_accept_shared_attachments=_OFF,
            default_route_table_association=_OFF,
            default_route_table_propagation=_OFF,
            tags=name_tag(plan.name),
        )
        return TransitGateway(plan.name, args, child_options(self)).id

    def _attach(self, plan: FleetPlan, network: Network) -> pulumi.Output[str]:
        args = VpcAttachmentArgs(
            transit_gateway_id=self.gateway_id,
            vpc_id=network.vpc_id,
            subnet_ids=[network.zones[zone].edge_id for zone in sorted(network.zones)],
            transit_gateway_default_route_table_association=False,
            transit_gateway_default_route_table_propagation=False,
            tags=name_tag(plan.name),
        )
        return VpcAttachment(plan.name, args, child_options(self)).id


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment of a transit gateway with this route table; `options` are those of its children."""

    plan: FleetPlan
    table_id: pulumi.Output[str]
    id: pulumi.Output[str]
    options: pulumi.ResourceOptions

    def connect(self, association: str, prefix: str, place: str) -> None:
        """Associate it with the table under a name, and route the networks of a place to it."""
        args = RouteTableAssociationArgs(
            transit_gateway_attachment_id=self.id, transit_gateway_route_table_id=self.table_id
        )
        RouteTableAssociation(association, args, self.options)
        for destination in networks_of_place(self.plan, place):
            route = RouteArgs(
                destination_cidr_block=str(destination.block),
                transit_gateway_route_table_id=self.table_id,
                transit_gateway_attachment_id=self.id,
            )
            Route(f"{prefix}-to-{destination.name}", route, self.options)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RegionStack:
    """A region as `links` uses it: its plan, a reference to its stack, and a provider."""

    region: RegionPlan
    reference: pulumi.StackReference
    provider: Provider

    @property
    def name(self) -> str:
        """The name of the region."""
        return self.region.name

    def output(self, name: str) -> pulumi.Output[str]:
        """Return an output of the stack."""
        return output_of(self.reference, name)

    @property
    def table_ids(self) -> dict[str, pulumi.Output[str]]:
        """The route tables of the region by name: one for all edge subnets, one for the nodes of each zone."""
        node_tables: pulumi.Output[dict[str, str]] = output_of(self.reference, "node_table_ids")
        zones = sorted(zone.name for zone in self.region.zones)
        return {"edge": self.output("edge_table_id"), **{f"{zone}-nodes": node_tables[zone] for zone in zones}}

    def child_options(
        self, parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = ()
    ) -> pulumi.ResourceOptions:
        """Return the options of a child resource in this region."""
        return pulumi.ResourceOptions(parent=parent, depends_on=[*after], provider=self.provider)


def region_stacks(plan: FleetPlan) -> dict[str, RegionStack]:
    """Return all regions of a fleet by name."""
    return {
        region.name: RegionStack(region, stack_reference(plan, region.name), region_provider(plan, LINKS, region.name))
        for region in plan.regions
    }


def pairs(items: Mapping[str, T]) -> Iterator[tuple[T, T]]:
    """Yield each pair of items once, sorted by name: the first requests a peering, the second accepts it."""
    yield from combinations((items[name] for name in sorted(items)), 2)


@dataclass(frozen=True, slots=True)
class NextHop:
    """The target of VPC routes: an argument of a route and its value. Routes are created after `after`."""

    argument: str
    id: pulumi.Output[str]
    after: tuple[pulumi.Resource, ...] = ()


class RemoteRoutes(pulumi.ComponentResource):
    """Routes from all tables of a region's VPC to networks of another region or of a site.

    Names do not depend on the next hop, so a change of the interconnect updates the routes: AWS refuses a second route
    to a destination.
    """

    def __init__(self, plan: FleetPlan, stack: RegionStack, networks: Sequence[RemoteNetwork], hop: NextHop) -> None:
        name = f"{plan.name}-{stack.name}"
        super().__init__("bedplate:stacks:RemoteRoutes", f"{name}-to-{networks[0].place}")
        options = stack.child_options(self, after=hop.after)
        for network in networks:
            for table, table_id in sorted(stack.table_ids.items()):
                args = VpcRouteArgs(route_table_id=table_id, destination_cidr_block=str(network.block))
                pulumi.set(args, hop.argument, hop.id)
                VpcRoute(f"{name}-{table}-to-{network.name}", args, options)
        self.register_outputs({})


def declare_transit_routes(plan: FleetPlan, stack: RegionStack) -> None:
    """Declare the routes of a region's VPC to its transit gateway, for all other places."""
    hop = NextHop("transit_gateway_id", stack.output("transit_gateway_id"))
    for place in place_names(plan):
        if place != stack.name:
            RemoteRoutes(plan, stack, networks_of_place(plan, place), hop)


class TransitPeering(pulumi.ComponentResource):
    """The peering of two transit gateways, and the routes of both through it."""

    def __init__(self, plan: FleetPlan, requester: RegionStack, accepter: RegionStack) -> None:
        self._name = f"{plan.name}-{requester.name}-{accepter.name}"
        super().__init__("bedplate:stacks:TransitPeering", self._name)
        attachment_id = self._request(requester, accepter)
        accepted = PeeringAttachmentAccepter(
            self._name,
            PeeringAttachmentAccepterArgs(transit_gateway_attachment_id=attachment_id, tags=name_tag(self._name)),
            accepter.child_options(self),
        )
        for local, remote in ((requester, accepter), (accepter, requester)):
            options = local.child_options(self, after=(accepted,))
            attachment = Attachment(plan, local.output("transit_table_id"), attachment_id, options)
            prefix = f"{plan.name}-{local.name}"
            attachment.connect(f"{prefix}-to-{remote.name}", prefix, remote.name)
        self.register_outputs({})

    def _request(self, requester: RegionStack, accepter: RegionStack) -> pulumi.Output[str]:
        args = PeeringAttachmentArgs(
            transit_gateway_id=requester.output("transit_gateway_id"),
            peer_transit_gateway_id=accepter.output("transit_gateway_id"),
            peer_region=accepter.name,
            tags=name_tag(self._name),
        )
        return PeeringAttachment(self._name, args, requester.child_options(self)).id


class VpcPeering(pulumi.ComponentResource):
    """The peering of two VPCs: routes both ways, and DNS resolution of private host names."""

    def __init__(self, plan: FleetPlan, requester: RegionStack, accepter: RegionStack) -> None:
        self._name = f"{plan.name}-{requester.name}-{accepter.name}"
        super().__init__("bedplate:stacks:VpcPeering", self._name)
        request = self._request(requester, accepter)
        accepted = VpcPeeringConnectionAccepter(
            self._name,
            VpcPeeringConnectionAccepterInitArgs(
                vpc_peering_connection_id=request.id, auto_accept=True, tags=name_tag(self._name)
            ),
            accepter.child_options(self),
        )
        self._enable_dns(requester, accepter, accepted)
        # A peering accepts no packet to addresses outside the peer's VPC, such as those of laptops.
        hop = NextHop("vpc_peering_connection_id", accepted.id)
        RemoteRoutes(plan, requester, networks_of_place(plan, accepter.name)[:1], hop)
        RemoteRoutes(plan, accepter, networks_of_place(plan, requester.name)[:1], hop)
        self.register_outputs({})

    def _request(self, requester: RegionStack, accepter: RegionStack) -> VpcPeeringConnection:
        args = VpcPeeringConnectionArgs(
            vpc_id=requester.output("vpc_id"),
            peer_vpc_id=accepter.output("vpc_id"),
            peer_region=accepter.name,
            tags=name_tag(self._name),
        )
        return VpcPeeringConnection(self._name, args, requester.child_options(self))

    def _enable_dns(
        self, requester: RegionStack, accepter: RegionStack, accepted: VpcPeeringConnectionAccepter
    ) -> None:
        """Enable DNS resolution across the peering; each side can set only its own options."""
        requester_options = PeeringConnectionOptionsArgs(
            vpc_peering_connection_id=accepted.id,
            requester=PeeringConnectionOptionsRequesterArgs(allow_remote_vpc_dns_resolution=True),
        )
        accepter_options = PeeringConnectionOptionsArgs(
            vpc_peering_connection_id=accepted.id,
            accepter=PeeringConnectionOptionsAccepterArgs(allow_remote_vpc_dns_resolution=True),
        )
        PeeringConnectionOptions(f"{self._name}-{requester.name}", requester_options, requester.child_options(self))
        PeeringConnectionOptions(f"{self._name}-{accepter.name}", accepter_options, accepter.child_options(self))
