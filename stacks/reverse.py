"""From an address back to a name, for the machines of sites; AWS itself names what stands in a VPC."""

from collections.abc import Mapping

import pulumi
from pulumi_aws.route53._inputs import ZoneVpcArgs
from pulumi_aws.route53.record import Record, RecordArgs
from pulumi_aws.route53.zone import Zone, ZoneArgs
from pulumi_aws.route53.zone_association import ZoneAssociation, ZoneAssociationArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.records import TTL_SECONDS
from stacks.side import Side
from stacks.tags import named


def reverse_names(plan: FleetPlan) -> dict[str, dict[str, str]]:
    """Return the reverse zones, of 256 addresses each, that hold a machine of a site, and its names in each."""
    zones: dict[str, dict[str, str]] = {}
    for name, address in plan.site_addresses.items():
        last, _, zone = address.reverse_pointer.partition(".")
        zones.setdefault(zone, {})[last] = f"{name}.{plan.domain}"
    return zones


class ReverseZone(pulumi.ComponentResource):
    """One reverse zone, seen from the VPC of every region."""

    def __init__(
        self,
        plan: FleetPlan,
        zone: str,
        names: Mapping[str, str],
        every: Mapping[str, Side],
        opts: pulumi.ResourceOptions,
    ) -> None:
        name = f"{plan.name}-{zone}"
        super().__init__("bedplate:stacks:ReverseZone", name, None, opts)
        home = every[plan.home.name]
        args = ZoneArgs(
            name=zone,
            comment=f"Addresses of the fleet {plan.name}",
            vpcs=[ZoneVpcArgs(vpc_id=home.output("vpc_id"), vpc_region=home.name)],
            tags=named(name),
        )
        zone_id = Zone(name, args, inside(self, ignore=("vpcs",))).zone_id
        for side in (side for side in every.values() if not side.region.home):
            seen = ZoneAssociationArgs(zone_id=zone_id, vpc_id=side.output("vpc_id"), vpc_region=side.name)
            ZoneAssociation(f"{name}-{side.name}", seen, inside(self))
        for last, host in names.items():
            record = RecordArgs(zone_id=zone_id, name=f"{last}.{zone}", type="PTR", ttl=TTL_SECONDS, records=[host])
            Record(f"{name}-{last}", record, inside(self))
        self.register_outputs({})
