"""The gateways of laptops: what each hands out of its pool, where it leads, and whom it tells laptops to ask for names.

Pure: what only AWS knows, public addresses and resolvers, comes from the record, and is left empty until it is there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network

from bedplate.plan.fleet import FleetPlan, LaptopPool
from bedplate.plan.links import asks_here
from bedplate.plan.reachability import Kind, Spot, carries, spots
from bedplate.spec.address import room

# What the name of every gateway's certificate begins with, and no laptop's.
NAME_PREFIX = "gateway."


class Transport(StrEnum):
    """How a laptop's packets are carried: UDP, or TCP where a network lets nothing else out."""

    UDP = "udp"
    TCP = "tcp"

    @property
    def port(self) -> int:
        """The port that a gateway listens on: OpenVPN's own, and the one that hotels and airports let out."""
        return {Transport.UDP: 1194, Transport.TCP: 443}[self]


@dataclass(frozen=True, slots=True)
class LaptopGateway:
    """A gateway of laptops: `place` is a region or a site, `routes` are the blocks that its laptops reach.

    `met` are the pools whose laptops its own reach and are reached by, its own first; none unless the file asks for it.
    `public` is None and `resolvers` are empty until the record holds them. `domains` are those that laptops ask the
    resolvers for, the fleet's own first.
    """

    fleet: str
    place: str
    pool: IPv4Network
    routes: tuple[IPv4Network, ...]
    met: tuple[IPv4Network, ...]
    domains: tuple[str, ...]
    public: IPv4Address | None
    resolvers: tuple[IPv4Address, ...]

    @property
    def name(self) -> str:
        """The name that its certificate bears."""
        return f"{NAME_PREFIX}{self.place}.{self.domains[0]}"

    @property
    def most(self) -> int:
        """How many laptops have an address of their own."""
        return room(self.pool)

    def block(self, transport: Transport) -> IPv4Network:
        """Return the half of the pool that one transport serves: each is a network device of its own."""
        lower, upper = self.pool.subnets()
        return {Transport.UDP: lower, Transport.TCP: upper}[transport]

    def address(self, transport: Transport, slot: int) -> IPv4Address:
        """Return the address of the laptop in a slot, from 0 on; IndexError from `most` on."""
        if not 0 <= slot < self.most:
            raise IndexError(slot)
        return self.block(transport)[2 + slot]


def laptop_gateways(plan: FleetPlan) -> tuple[LaptopGateway, ...]:
    """Return the gateways of a fleet, in the order in which laptops try them."""
    return tuple(_gateway(plan, pool) for pool in plan.laptops)


def gateway_in(plan: FleetPlan, place: str) -> LaptopGateway | None:
    """Return the gateway of a region or site, None where it has none."""
    return next((gateway for gateway in laptop_gateways(plan) if gateway.place == place), None)


def met_pools(plan: FleetPlan, pool: LaptopPool) -> tuple[LaptopPool, ...]:
    """Return the pools whose laptops and those of one reach each other: itself, and where the network leads."""
    if not pool.between:
        return ()
    return (pool, *(each for each in plan.laptops if each != pool and _meet(plan, pool, each)))


def resolver_region(plan: FleetPlan, place: str) -> str:
    """Return the region whose resolver answers the laptops of a gateway: the gateway's own if it has one, or home."""
    asked = {region.name for region in plan.regions if asks_here(plan, region)}
    return place if place in asked else plan.home.name


def _gateway(plan: FleetPlan, pool: LaptopPool) -> LaptopGateway:
    sites = {site.name: site.public for site in plan.sites}
    return LaptopGateway(
        fleet=plan.name,
        place=pool.place,
        pool=pool.block,
        routes=tuple(_routes(plan, pool)),
        met=tuple(each.block for each in met_pools(plan, pool)),
        domains=(plan.domain, *(site.dns.domain for site in plan.sites if site.dns)),
        public=sites.get(pool.place) or plan.record.gateways.get(pool.place),
        resolvers=plan.record.resolvers.get(resolver_region(plan, pool.place), ()),
    )


def _routes(plan: FleetPlan, pool: LaptopPool) -> Iterator[IPv4Network]:
    """Yield the blocks of the places that the network leads laptops to; never another gateway's pool."""
    every = spots(plan)
    laptop = next(spot for spot in every if spot.kind is Kind.LAPTOPS and spot.place == pool.place)
    reached = {spot.place for spot in every if spot.kind is not Kind.LAPTOPS and _leads(plan, laptop, spot)}
    yield from (region.block for region in plan.regions if region.name in reached)
    yield from (site.lan for site in plan.sites if site.name in reached)


def _meet(plan: FleetPlan, one: LaptopPool, other: LaptopPool) -> bool:
    every = {spot.place: spot for spot in spots(plan) if spot.kind is Kind.LAPTOPS}
    return _leads(plan, every[one.place], every[other.place])


def _leads(plan: FleetPlan, laptop: Spot, spot: Spot) -> bool:
    return carries(plan, laptop, spot) and carries(plan, spot, laptop)
