"""The peering of two regions' transit gateways."""

import pulumi
from pulumi_aws.ec2transitgateway.peering_attachment import PeeringAttachment, PeeringAttachmentArgs
from pulumi_aws.ec2transitgateway.peering_attachment_accepter import (
    PeeringAttachmentAccepter,
    PeeringAttachmentAccepterArgs,
)
from pulumi_aws.ec2transitgateway.route import Route, RouteArgs
from pulumi_aws.ec2transitgateway.route_table_association import RouteTableAssociation, RouteTableAssociationArgs

from bedplate.plan.beyond import behind
from bedplate.plan.fleet import FleetPlan
from stacks.side import Side
from stacks.tags import named


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
