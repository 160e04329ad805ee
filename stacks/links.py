"""The program of `<fleet>.links`: what ties the regions together."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pulumi
from pulumi_aws.route53.zone_association import ZoneAssociation, ZoneAssociationArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.joint import joined_regions
from bedplate.spec.network import Interconnect
from stacks.gateway_link import GatewayLink, JoinedGateway
from stacks.options import inside
from stacks.peering import Peering
from stacks.records import FleetRecords
from stacks.replication import StoreCopies, copies
from stacks.reverse import ReverseZone, reverse_names
from stacks.side import Side, pairs, sides
from stacks.sites import declare_sites
from stacks.transit_link import TransitLink

_LINKS: Mapping[Interconnect, Callable[[FleetPlan, Side, Side], object]] = MappingProxyType(
    {Interconnect.TRANSIT: TransitLink, Interconnect.PEERING: Peering}
)


class SharedNames(pulumi.ComponentResource):
    """The home region's private zone, resolvable in the VPC of every other region."""

    def __init__(self, plan: FleetPlan, every: Mapping[str, Side], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:SharedNames", plan.name, None, opts)
        zone_id = every[plan.home.name].output("zone_id")
        for side in (side for side in every.values() if not side.region.home):
            args = ZoneAssociationArgs(zone_id=zone_id, vpc_id=side.output("vpc_id"), vpc_region=side.name)
            ZoneAssociation(f"{plan.name}-{side.name}", args, inside(self))
        self.register_outputs({})


def declare_links(plan: FleetPlan) -> None:
    """Declare what ties the regions of a fleet together."""
    every = sides(plan)
    _declare_names(plan, every)
    link = _LINKS.get(plan.interconnect)
    if link is not None:
        for near, far in pairs(every):
            link(plan, near, far)
    _declare_joints(plan, every)
    declare_sites(plan, every)
    for buckets in copies(plan).values():
        StoreCopies(plan, buckets, every)
    pulumi.export("regions", sorted(every))


def _declare_joints(plan: FleetPlan, every: Mapping[str, Side]) -> None:
    """Declare what gateways need that join regions by tunnels of their own."""
    joined = {name: JoinedGateway(plan, every[name]) for name in sorted(joined_regions(plan))}
    for near, far in pairs(joined):
        GatewayLink(plan, near, far)


def _declare_names(plan: FleetPlan, every: Mapping[str, Side]) -> None:
    """Declare what is known by name: the home region acts, for names have no region of their own."""
    home = every[plan.home.name]
    at_home = pulumi.ResourceOptions(providers=[home.provider])
    SharedNames(plan, every, at_home)
    FleetRecords(plan, home.output("zone_id"), every, at_home)
    for zone, names in reverse_names(plan).items():
        ReverseZone(plan, zone, names, every, at_home)
