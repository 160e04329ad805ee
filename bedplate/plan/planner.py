"""From a fleet file, its lock and the catalogue to the plan: every name and address decided."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.plan import paths
from bedplate.plan.accounts import accounts
from bedplate.plan.allot import allot
from bedplate.plan.direct import dialler, joined_sites
from bedplate.plan.endpoints import endpoint_services
from bedplate.plan.fleet import (
    ControlPlane,
    DirectPlan,
    FleetPlan,
    LaptopPool,
    NameServersPlan,
    RegionPlan,
    SitePlan,
    TunnelPlan,
    ZonePlan,
)
from bedplate.plan.member import members
from bedplate.plan.pools import pools
from bedplate.plan.record import Record
from bedplate.plan.stores import buckets, exports, files
from bedplate.plan.want import TUNNEL_NUMBERS
from bedplate.spec import Fleet
from bedplate.spec.site import Site
from bedplate.spec.vpn import TunnelAuth

Blocks = Mapping[str, IPv4Network]


def plan_fleet(fleet: Fleet, record: Record, catalog: Catalog) -> FleetPlan:
    """Return the plan of a fleet that has passed the checks; raises PlanFaults as `allot` does."""
    blocks = allot(fleet, record)
    regions = _regions(fleet, blocks)
    return FleetPlan(
        name=fleet.name,
        account=fleet.account,
        owner=fleet.owner,
        domain=fleet.domain,
        supernet=fleet.network.supernet,
        interconnect=fleet.network.interconnect,
        egress=fleet.network.egress,
        regions=regions,
        sites=_sites(fleet),
        pods=blocks.get(paths.PODS),
        services=blocks.get(paths.SERVICES),
        laptops=_laptops(fleet, blocks),
        tunnels=_tunnels(fleet, blocks),
        pools=pools(fleet, catalog),
        files=files(fleet),
        buckets=buckets(fleet),
        record=record,
        blocks=blocks,
        budget=(fleet.budget.monthly, fleet.budget.email) if fleet.budget else None,
        alarms=fleet.alarms.email if fleet.alarms else None,
        exports=exports(fleet),
        endpoints=endpoint_services(fleet),
        boundary=fleet.identity.permissions_boundary,
        control_plane=_control_plane(fleet, regions, record, catalog),
        accounts=accounts(fleet, record),
        directs=_directs(fleet, blocks),
        tunnel_auth=fleet.vpn.tunnels.auth if fleet.vpn else TunnelAuth.PSK,
    )


def _regions(fleet: Fleet, blocks: Blocks) -> tuple[RegionPlan, ...]:
    return tuple(
        RegionPlan(
            name=name,
            home=region.home,
            block=blocks[paths.region_path(name)],
            zones=tuple(
                ZonePlan(zone, blocks[paths.edge_path(name, zone)], blocks[paths.nodes_path(name, zone)])
                for zone in region.zones
            ),
        )
        for name, region in fleet.regions.items()
    )


def _sites(fleet: Fleet) -> tuple[SitePlan, ...]:
    return tuple(
        SitePlan(
            name=name,
            lan=site.lan,
            public=site.gateway.public,
            asn=site.gateway.asn,
            gateway=site.gateway.machine,
            dials=site.gateway.dials,
            machines=_addresses(site),
            uses=MappingProxyType({label: machine.use for label, machine in site.machines.items()}),
            dns=NameServersPlan(site.dns.domain, site.dns.servers) if site.dns else None,
            gpus=MappingProxyType({label: each.gpus for label, each in site.machines.items() if each.gpus}),
            scratch=MappingProxyType({label: each.scratch for label, each in site.machines.items() if each.scratch}),
        )
        for name, site in fleet.sites.items()
    )


def _addresses(site: Site) -> Mapping[str, IPv4Address]:
    return MappingProxyType({name: machine.address for name, machine in site.machines.items()})


def _control_plane(
    fleet: Fleet, regions: tuple[RegionPlan, ...], record: Record, catalog: Catalog
) -> ControlPlane | None:
    cluster = fleet.kubernetes
    if cluster is None:
        return None
    home = next(region for region in regions if region.home)
    asked = cluster.control_plane
    machines = members(home, asked.count, record.addresses, catalog.offered(asked.type, home.name))
    return ControlPlane(asked.type, cluster.version, machines)


def _laptops(fleet: Fleet, blocks: Blocks) -> tuple[LaptopPool, ...]:
    asked = fleet.vpn.laptops if fleet.vpn else None
    if asked is None:
        return ()
    places = dict.fromkeys(gateway.region or gateway.site or "" for gateway in asked.gateways)
    return tuple(LaptopPool(place, blocks[paths.pool_path(place)], asked.between) for place in places)


def _tunnels(fleet: Fleet, blocks: Blocks) -> tuple[TunnelPlan, ...]:
    return tuple(
        TunnelPlan(site, region, number, blocks[paths.tunnel_path(site, region, number)])
        for site in fleet.sites
        for region in fleet.regions
        for number in TUNNEL_NUMBERS
    )


def _directs(fleet: Fleet, blocks: Blocks) -> tuple[DirectPlan, ...]:
    return tuple(
        DirectPlan(pair, dialler(fleet, pair), blocks[paths.direct_path(*pair)]) for pair in joined_sites(fleet)
    )
