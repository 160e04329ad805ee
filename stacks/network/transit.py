"""A region's transit gateway: what its VPC hands to it, and what it hands to its VPC.

What it exchanges with other regions and with sites belongs to `links`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import pulumi
from pulumi_aws.ec2._inputs import PeeringConnectionOptionsAccepterArgs, PeeringConnectionOptionsRequesterArgs
from pulumi_aws.ec2.peering_connection_options import PeeringConnectionOptions, PeeringConnectionOptionsArgs
from pulumi_aws.ec2.route import Route as Ec2Route
from pulumi_aws.ec2.route import Route as VpcRoute
from pulumi_aws.ec2.route import RouteArgs as Ec2RouteArgs
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
from bedplate.plan.links import behind, beyond, transit_asn
from stacks.network.vpc import Network
from stacks.options import LINKS, inside, named, output_of, provider_of, stack_of

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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Side:
    """A region's plan, its stack, and the provider by which `links` acts there."""

    region: RegionPlan
    stack: pulumi.StackReference
    provider: Provider

    @property
    def name(self) -> str:
        """The region's name."""
        return self.region.name

    def output(self, name: str) -> pulumi.Output[str]:
        """Return what the region's stack exports under a name."""
        return output_of(self.stack, name)

    @property
    def table_ids(self) -> dict[str, pulumi.Output[str]]:
        """The region's route tables by name: one for all edges, one for each zone's nodes."""
        of_nodes: pulumi.Output[dict[str, str]] = output_of(self.stack, "node_table_ids")
        zones = sorted(zone.name for zone in self.region.zones)
        return {"edge": self.output("edge_table_id"), **{f"{zone}-nodes": of_nodes[zone] for zone in zones}}

    def inside(self, parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = ()) -> pulumi.ResourceOptions:
        """Return the options of a part of a component that stands in this region."""
        return pulumi.ResourceOptions(parent=parent, depends_on=[*after], provider=self.provider)


def sides(plan: FleetPlan) -> dict[str, Side]:
    """Return every region of a fleet as a side, by name."""
    return {
        region.name: Side(region, stack_of(plan, region.name), provider_of(plan, LINKS, region.name))
        for region in plan.regions
    }


def pairs(every: Mapping[str, T]) -> Iterator[tuple[T, T]]:
    """Yield what each two regions have once, the one whose name sorts first in front: it asks, the other accepts."""
    yield from combinations((every[name] for name in sorted(every)), 2)


class TransitLink(pulumi.ComponentResource):
    """One peering, asked for by `near` and accepted by `far`, and the routes of each side to what the other has."""

    def __init__(self, plan: FleetPlan, near: Side, far: Side) -> None:
        self._name = f"{plan.name}-{near.name}-{far.name}"
        super().__init__("bedplate:stacks:TransitLink", self._name)
        self._plan = plan
        attachment = self._ask(near, far)
        accepted = PeeringAttachmentAccepter(
            self._name,
            PeeringAttachmentAccepterArgs(transit_gateway_attachment_id=attachment.id, tags=named(self._name)),
            far.inside(self),
        )
        self._open(near, far, attachment, accepted)
        self._open(far, near, attachment, accepted)
        self.register_outputs({})

    def _ask(self, near: Side, far: Side) -> PeeringAttachment:
        args = PeeringAttachmentArgs(
            transit_gateway_id=near.output("transit_gateway_id"),
            peer_transit_gateway_id=far.output("transit_gateway_id"),
            peer_region=far.name,
            tags=named(self._name),
        )
        return PeeringAttachment(self._name, args, near.inside(self))

    def _open(self, here: Side, there: Side, attachment: PeeringAttachment, accepted: pulumi.Resource) -> None:
        """Route by this side's own table what comes over the peering, and over the peering what is for the other."""
        name = f"{self._plan.name}-{here.name}-to-"
        table_id, inside = here.output("transit_table_id"), here.inside(self, after=(accepted,))
        by_table = RouteTableAssociationArgs(
            transit_gateway_attachment_id=attachment.id, transit_gateway_route_table_id=table_id
        )
        RouteTableAssociation(f"{name}{there.name}", by_table, inside)
        for each in behind(self._plan, there.name):
            args = RouteArgs(
                destination_cidr_block=str(each.block),
                transit_gateway_route_table_id=table_id,
                transit_gateway_attachment_id=attachment.id,
            )
            Route(f"{name}{each.name}", args, inside)


class Peering(pulumi.ComponentResource):
    """One peering, asked for by `near` and accepted by `far`; routes both ways, and each resolves the other's names."""

    def __init__(self, plan: FleetPlan, near: Side, far: Side) -> None:
        self._name, self._prefix = f"{plan.name}-{near.name}-{far.name}", plan.name
        super().__init__("bedplate:stacks:Peering", self._name)
        asked = self._ask(near, far)
        accepted = VpcPeeringConnectionAccepter(
            self._name,
            VpcPeeringConnectionAccepterInitArgs(
                vpc_peering_connection_id=asked.id, auto_accept=True, tags=named(self._name)
            ),
            far.inside(self),
        )
        self._resolve(near, far, accepted)
        self._route(near, far, accepted)
        self._route(far, near, accepted)
        self.register_outputs({})

    def _ask(self, near: Side, far: Side) -> VpcPeeringConnection:
        args = VpcPeeringConnectionArgs(
            vpc_id=near.output("vpc_id"),
            peer_vpc_id=far.output("vpc_id"),
            peer_region=far.name,
            tags=named(self._name),
        )
        return VpcPeeringConnection(self._name, args, near.inside(self))

    def _resolve(self, near: Side, far: Side, accepted: VpcPeeringConnectionAccepter) -> None:
        """Let each side resolve the other's host names to private addresses; a side may set only its own options."""
        asking = PeeringConnectionOptionsArgs(
            vpc_peering_connection_id=accepted.id,
            requester=PeeringConnectionOptionsRequesterArgs(allow_remote_vpc_dns_resolution=True),
        )
        answering = PeeringConnectionOptionsArgs(
            vpc_peering_connection_id=accepted.id,
            accepter=PeeringConnectionOptionsAccepterArgs(allow_remote_vpc_dns_resolution=True),
        )
        PeeringConnectionOptions(f"{self._name}-{near.name}", asking, near.inside(self))
        PeeringConnectionOptions(f"{self._name}-{far.name}", answering, far.inside(self))

    def _route(self, here: Side, there: Side, accepted: VpcPeeringConnectionAccepter) -> None:
        for table, table_id in sorted(here.table_ids.items()):
            args = Ec2RouteArgs(
                route_table_id=table_id,
                destination_cidr_block=str(there.region.block),
                vpc_peering_connection_id=accepted.id,
            )
            Ec2Route(f"{self._prefix}-{here.name}-{table}-to-{there.name}", args, here.inside(self))
