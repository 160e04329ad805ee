"""The peering of two regions' VPCs, for fleets with `interconnect: peering`.

A peering carries what the two VPCs themselves send each other: no laptop pool and no site crosses it.
"""

import pulumi
from pulumi_aws.ec2._inputs import PeeringConnectionOptionsAccepterArgs, PeeringConnectionOptionsRequesterArgs
from pulumi_aws.ec2.peering_connection_options import PeeringConnectionOptions, PeeringConnectionOptionsArgs
from pulumi_aws.ec2.route import Route, RouteArgs
from pulumi_aws.ec2.vpc_peering_connection import VpcPeeringConnection, VpcPeeringConnectionArgs
from pulumi_aws.ec2.vpc_peering_connection_accepter import (
    VpcPeeringConnectionAccepter,
    VpcPeeringConnectionAccepterInitArgs,
)

from bedplate.plan.fleet import FleetPlan
from stacks.side import Side
from stacks.tags import named


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
            args = RouteArgs(
                route_table_id=table_id,
                destination_cidr_block=str(there.region.block),
                vpc_peering_connection_id=accepted.id,
            )
            Route(f"{self._prefix}-{here.name}-{table}-to-{there.name}", args, here.inside(self))
