"""The OpenVPN gateways of laptops: their pools, the routes and the DNS settings that they push.

Public addresses and resolvers come from the record and are empty until it holds them.
"""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network

from bedplate.plan.cluster import cluster_plan
from bedplate.plan.fleet import FleetPlan, LaptopPool, cached_on_plan
from bedplate.plan.links import cluster_blocks, forwards_dns, has_inbound_resolver
from bedplate.plan.reachability import Endpoint, EndpointKind, endpoints, is_routed
from bedplate.spec.network import laptop_capacity

# The prefix of the certificate name of every gateway, and of no laptop.
NAME_PREFIX = "gateway."


class Transport(StrEnum):
    """The protocol that carries a laptop's packets: UDP, or TCP where a network blocks UDP."""

    UDP = "udp"
    TCP = "tcp"

    @property
    def port(self) -> int:
        """The port of a gateway: OpenVPN's default for UDP, and HTTPS's for TCP, which most networks allow."""
        return {Transport.UDP: 1194, Transport.TCP: 443}[self]


@dataclass(frozen=True, slots=True)
class LaptopGatewayPlan:
    """A gateway of laptops: `place` is a region or a site, `routes` are the blocks that its laptops reach.

    `met` are the pools whose laptops reach each other, the gateway's pool first; empty unless the file enables it.
    `public` is None and `resolvers` are empty until the record holds them. `upstream` is the resolver of the VPC if the
    gateway forwards DNS itself; `services` are then the domain and the name server of the cluster, if laptops reach
    pods. `domains` are the domains that laptops resolve there, the fleet's domain first.
    """

    fleet: str
    place: str
    pool: IPv4Network
    routes: tuple[IPv4Network, ...]
    met: tuple[IPv4Network, ...]
    domains: tuple[str, ...]
    public: IPv4Address | None
    resolvers: tuple[IPv4Address, ...]
    upstream: IPv4Address | None = None
    services: tuple[str, IPv4Address] | None = None

    @property
    def name(self) -> str:
        """The name in the gateway's certificate."""
        return f"{NAME_PREFIX}{self.place}.{self.domains[0]}"

    @property
    def most(self) -> int:
        """The number of laptops that can have a fixed address."""
        return laptop_capacity(self.pool)

    def block(self, transport: Transport) -> IPv4Network:
        """Return the half of the pool that one transport uses; each transport has a network device."""
        lower, upper = self.pool.subnets()
        return {Transport.UDP: lower, Transport.TCP: upper}[transport]

    def name_servers(self, transport: Transport) -> tuple[IPv4Address, ...]:
        """Return the DNS servers of laptops: the gateway if it forwards DNS, else the recorded resolvers."""
        return (self.block(transport)[1],) if self.upstream else self.resolvers

    def address(self, transport: Transport, slot: int) -> IPv4Address:
        """Return the address of the laptop in a slot, counted from 0; IndexError from `most` on."""
        if not 0 <= slot < self.most:
            raise IndexError(slot)
        return self.block(transport)[2 + slot]


@cached_on_plan
def laptop_gateways(plan: FleetPlan) -> tuple[LaptopGatewayPlan, ...]:
    """Return the gateways of a fleet, in the order in which laptops try them."""
    return tuple(_gateway(plan, pool) for pool in plan.laptops)


def laptop_gateway_at(plan: FleetPlan, place: str) -> LaptopGatewayPlan | None:
    """Return the gateway of a region or site, or None."""
    return next((gateway for gateway in laptop_gateways(plan) if gateway.place == place), None)


def connected_pools(plan: FleetPlan, pool: LaptopPool) -> tuple[LaptopPool, ...]:
    """Return the pools whose laptops and a pool's laptops reach each other: the pool, and those it has a route to."""
    if not pool.between:
        return ()
    by_place = _pool_endpoints(plan)
    others = (other for other in plan.laptops if other != pool)
    return (pool, *(other for other in others if _is_routed(plan, by_place[pool.place], by_place[other.place])))


def resolver_regions(plan: FleetPlan) -> list[str]:
    """Return the regions whose resolvers answer laptops and sites; none if the gateway forwards DNS."""
    if forwards_dns(plan):
        return []
    places = (*(pool.place for pool in plan.laptops), *(site.name for site in plan.sites))
    return sorted({resolver_region(plan, place) for place in places})


def resolver_region(plan: FleetPlan, place: str) -> str:
    """Return the region whose resolver answers the laptops or machines of a place: that region, or the home region."""
    region = plan.regions_by_name.get(place)
    return place if region and has_inbound_resolver(plan, region) else plan.home.name


def _gateway(plan: FleetPlan, pool: LaptopPool) -> LaptopGatewayPlan:
    site, forwards, cluster = plan.sites_by_name.get(pool.place), forwards_dns(plan), cluster_plan(plan)
    return LaptopGatewayPlan(
        fleet=plan.name,
        place=pool.place,
        pool=pool.block,
        routes=_routes(plan, pool),
        met=tuple(other.block for other in connected_pools(plan, pool)),
        domains=(plan.domain, *(site.dns.domain for site in plan.sites if site.dns)),
        public=site.public if site else plan.record.gateways.get(pool.place),
        resolvers=plan.record.resolvers.get(resolver_region(plan, pool.place), ()),
        # The resolver of a VPC has the third address of its block. Source: Amazon VPC user guide, "Amazon DNS server".
        upstream=plan.home.block[2] if forwards else None,
        services=(cluster.short_domain, cluster.dns) if forwards and cluster and cluster_blocks(plan) else None,
    )


def _routes(plan: FleetPlan, pool: LaptopPool) -> tuple[IPv4Network, ...]:
    """Return the blocks of the regions, the sites and the cluster that a pool has a path to; never another pool."""
    laptop = _pool_endpoints(plan)[pool.place]
    targets = (endpoint for endpoint in endpoints(plan) if endpoint.kind is not EndpointKind.LAPTOPS)
    reached = {endpoint.place for endpoint in targets if _is_routed(plan, laptop, endpoint)}
    regions = (region.block for region in plan.regions if region.name in reached)
    cluster = cluster_blocks(plan).values() if plan.home.name in reached else ()
    sites = (block for site in plan.sites if site.name in reached for block in site.networks.values())
    return (*regions, *sites, *cluster)


def _pool_endpoints(plan: FleetPlan) -> dict[str, Endpoint]:
    """Return the endpoint of each pool, by region or site."""
    return {endpoint.place: endpoint for endpoint in endpoints(plan) if endpoint.kind is EndpointKind.LAPTOPS}


def _is_routed(plan: FleetPlan, laptop: Endpoint, other: Endpoint) -> bool:
    """Return whether the network carries packets between two endpoints in both directions."""
    return is_routed(plan, laptop, other) and is_routed(plan, other, laptop)
