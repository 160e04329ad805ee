"""What a fleet pays for as long as it stands, whatever its pools hold: gateways, links, names, keys, alarms.

What is paid for by use is left out: bytes stored, bytes moved, requests, logs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.plan.beyond import asks_here, has_transit
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.pool import Volume
from bedplate.spec.network import Egress

# OpenVPN works on one core, so two are enough; every region offers this type, and its network keeps its pace.
GATEWAY_TYPE = "c6in.large"
GATEWAY_VOLUME = Volume(16)
CONTROL_VOLUME = Volume(50)
# etcd holds 8 GiB at the most, and writes its snapshots beside them. Source: etcd documentation, "System limits".
ETCD_VOLUME = Volume(32)
# AWS wants a resolver endpoint in two zones.
RESOLVER_ADDRESSES = 2


@dataclass(frozen=True, slots=True)
class Standing:
    """So many of one thing in a region: `rate` names a rate of the catalogue, or the type of a machine for `work`."""

    rate: str
    region: str
    count: int
    work: str = ""

    @property
    def what(self) -> str:
        """What it is called on a bill."""
        return f"{self.work}, {self.rate}" if self.work else self.rate


def standing(plan: FleetPlan) -> tuple[Standing, ...]:
    """Return what stands in each region, machines of pools and volumes left out; nothing that counts none."""
    every = (each for region in plan.regions for each in _in_region(plan, region))
    return tuple(each for each in every if each.count)


def _in_region(plan: FleetPlan, region: RegionPlan) -> Iterator[Standing]:
    gateways, sites = laptop_gateways(plan, region), len(plan.sites)
    nat = nat_gateways(plan, region)
    counts = {
        "nat-gateway": nat,
        "public-address": nat + gateways,
        "transit-attachment": _attachments(plan),
        "vpn-connection": sites,
        "resolver-address": RESOLVER_ADDRESSES * resolvers(plan, region),
        "interface-endpoint": len(plan.endpoints) * len(region.zones),
        "key": 2,
        "alarm": _alarms(plan, region, nat + gateways),
    }
    yield from (Standing(rate, region.name, count) for rate, count in counts.items())
    yield Standing(GATEWAY_TYPE, region.name, gateways, "laptop gateway")
    if region.home:
        yield from _at_home(plan, region.name)


def _at_home(plan: FleetPlan, home: str) -> Iterator[Standing]:
    yield Standing("key", home, 1)
    yield Standing("secret", home, len(plan.sites) * len(plan.regions))
    yield Standing("hosted-zone", home, 1 + len(reverse_zones(plan)))
    if plan.control_plane:
        yield Standing(plan.control_plane.type, home, len(plan.control_plane.members), "control plane")


@dataclass(frozen=True, slots=True)
class StandingVolume:
    """So many volumes of one kind in a region, beside those of pools."""

    what: str
    region: str
    count: int
    volume: Volume


def standing_volumes(plan: FleetPlan) -> tuple[StandingVolume, ...]:
    """Return the volumes of the machines that the fleet keeps for itself."""
    members, home = len(plan.control_plane.members) if plan.control_plane else 0, plan.home.name
    every = (
        *(
            StandingVolume("laptop gateway, disk", region.name, laptop_gateways(plan, region), GATEWAY_VOLUME)
            for region in plan.regions
        ),
        StandingVolume("control plane, disks", home, members, CONTROL_VOLUME),
        StandingVolume("control plane, etcd", home, members, ETCD_VOLUME),
    )
    return tuple(each for each in every if each.count)


def nat_gateways(plan: FleetPlan, region: RegionPlan) -> int:
    """Return how many NAT gateways a region has."""
    return {Egress.SHARED: 1, Egress.PER_ZONE: len(region.zones), Egress.NONE: 0}[plan.egress]


def reverse_zones(plan: FleetPlan) -> frozenset[str]:
    """Return the reverse zones, of 256 addresses each, that hold a machine of a site."""
    return frozenset(address.reverse_pointer.partition(".")[2] for address in plan.site_addresses.values())


def resolvers(plan: FleetPlan, region: RegionPlan) -> int:
    """Return the resolver endpoints of a region: one that answers, one that asks the sites' own servers."""
    return asks_here(plan, region) + any(site.dns for site in plan.sites)


def laptop_gateways(plan: FleetPlan, region: RegionPlan) -> int:
    """Return how many gateways for laptops a region has."""
    return sum(pool.place == region.name for pool in plan.laptops)


def _attachments(plan: FleetPlan) -> int:
    """Return the attachments of one region's transit gateway: its VPC, each other region, each site.

    Each end of a peering is paid for by itself.
    """
    return len(plan.regions) + len(plan.sites) if has_transit(plan) else 0


def _alarms(plan: FleetPlan, region: RegionPlan, gateways: int) -> int:
    groups = sum(pool.region == region.name for pool in plan.pools)
    if region.home and plan.control_plane:
        groups += len(plan.control_plane.members)
    return gateways + groups + len(plan.sites)
