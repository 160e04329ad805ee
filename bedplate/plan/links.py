"""The network between regions, sites and laptop pools: remote blocks, transit gateways, peered gateways, names.

A place is a region or a site. Packets between pods travel encapsulated between nodes. To everybody else, the blocks of
pods and services are networks of the home region, behind the pods router (ADR 22).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from types import MappingProxyType

from bedplate.plan.fleet import ControlPlaneMember, FleetPlan, RegionPlan, cached_on_plan
from bedplate.plan.pools import PoolPlan, combined_max
from bedplate.plan.space import nodes_space
from bedplate.spec.network import Interconnect

# The first private AS number of four bytes (RFC 6996).
_FIRST_ASN = 4_200_000_000
# A region's block is a /20 or wider, so its first 20 bits are unique.
_HOST_BITS = 12
# Every AS number that a transit gateway may get.
TRANSIT_ASNS = range(_FIRST_ASN, _FIRST_ASN + 2 ** (32 - _HOST_BITS))


@dataclass(frozen=True, slots=True)
class RemoteNetwork:
    """A block of a region, of a site, or of a laptop pool, under its `name`; `place` is the region or site."""

    name: str
    place: str
    block: IPv4Network


@cached_on_plan
def _networks(plan: FleetPlan) -> Mapping[str, tuple[RemoteNetwork, ...]]:
    """Return the networks of each place; regions first, in the order of the file."""
    own = {region.name: [RemoteNetwork(region.name, region.name, region.block)] for region in plan.regions}
    for site in plan.sites:
        lans = site.networks.items()
        own[site.name] = [RemoteNetwork(f"site-{name}", site.name, block) for name, block in lans]
    return MappingProxyType(
        {
            place: (*networks, *_laptop_networks(plan, place), *_cluster_networks(plan, place))
            for place, networks in own.items()
        }
    )


def _laptop_networks(plan: FleetPlan, place: str) -> Iterator[RemoteNetwork]:
    for pool in plan.laptops:
        if pool.place == place:
            yield RemoteNetwork(f"laptops-{place}", place, pool.block)


def _cluster_networks(plan: FleetPlan, place: str) -> Iterator[RemoteNetwork]:
    if place == plan.home.name:
        for name, block in cluster_blocks(plan).items():
            yield RemoteNetwork(name, place, block)


def place_names(plan: FleetPlan) -> tuple[str, ...]:
    """Return the names of the regions, then of the sites, each in the order of the file."""
    return tuple(_networks(plan))


def remote_networks(plan: FleetPlan, place: str) -> tuple[RemoteNetwork, ...]:
    """Return the networks outside of a region or a site.

    A site whose gateway is a worker of the cluster reaches pods and services without the home region.
    """
    own = cluster_blocks(plan).values() if _is_gateway_a_worker(plan, place) else ()
    others = (network for other, networks in _networks(plan).items() if other != place for network in networks)
    return tuple(network for network in others if network.block not in own)


def _is_gateway_a_worker(plan: FleetPlan, place: str) -> bool:
    site = plan.sites_by_name.get(place)
    return site is not None and site.machines[site.gateway].spec.is_worker


def networks_of_place(plan: FleetPlan, place: str) -> tuple[RemoteNetwork, ...]:
    """Return the networks of a region or a site: its block, its laptop pool, and at home those of the cluster."""
    return _networks(plan).get(place, ())


def networks_accepted(plan: FleetPlan, region: str, site: str) -> tuple[RemoteNetwork, ...]:
    """Return the networks of a region that a site reaches through its tunnel to that region."""
    remote = remote_networks(plan, site)
    return tuple(network for network in networks_of_place(plan, region) if network in remote)


def is_linked(plan: FleetPlan) -> bool:
    """Return whether there is more than one region or site, so that the fleet has a stack `links`."""
    return len(plan.regions) + len(plan.sites) > 1


def has_transit(plan: FleetPlan) -> bool:
    """Return whether the fleet has transit gateways: the file says so, and there is more than one place."""
    return plan.interconnect is Interconnect.TRANSIT and is_linked(plan)


def pods_router(plan: FleetPlan) -> ControlPlaneMember | None:
    """Return the machine that routes packets of laptops and sites to pods: the first member of the control plane.

    None if nobody needs it, and in a fleet of several places without transit gateways: AWS's other connections carry
    the blocks of VPCs only.
    """
    has_clients = bool(plan.laptops or plan.sites)
    has_path = has_transit(plan) or not is_linked(plan)
    return plan.control_plane.members[0] if plan.control_plane and has_clients and has_path else None


def cluster_blocks(plan: FleetPlan) -> Mapping[str, IPv4Network]:
    """Return the blocks behind the pods router by name; none without a router."""
    if pods_router(plan) is None or plan.pods is None or plan.services is None:
        return {}
    return {"pods": plan.pods, "services": plan.services}


def forwards_dns(plan: FleetPlan) -> bool:
    """Return whether the laptop gateway forwards DNS to its VPC: in one region without sites only laptops need it."""
    return bool(plan.laptops) and len(plan.regions) == 1 and not plan.sites


def has_inbound_resolver(plan: FleetPlan, region: RegionPlan) -> bool:
    """Return whether a region needs an inbound resolver endpoint, for sites or laptops.

    The home region has one, unless its gateway forwards DNS. Without transit gateways, so has each region with a
    laptop gateway.
    """
    if forwards_dns(plan):
        return False
    if has_transit(plan):
        return region.home and bool(plan.sites or plan.laptops)
    has_gateway = any(pool.place == region.name for pool in plan.laptops)
    return has_gateway or (region.home and bool(plan.sites))


def forwards_to_cluster(plan: FleetPlan, region: RegionPlan) -> bool:
    """Return whether a region's resolver asks the cluster for names of services: the one that laptops and sites ask."""
    return region.home and bool(cluster_blocks(plan)) and has_inbound_resolver(plan, region)


def has_outbound_resolver(plan: FleetPlan, region: RegionPlan) -> bool:
    """Return whether a region needs an outbound resolver endpoint, for the domains of sites or of the cluster."""
    return any(site.dns for site in plan.sites) or forwards_to_cluster(plan, region)


def transit_asn(region: RegionPlan) -> int:
    """Return the AS number of a region's transit gateway.

    It depends on the region's block alone: no change of another region changes it, and no two regions share it. It has
    four bytes, so it collides with no two-byte number of a site.
    """
    return _FIRST_ASN + (int(region.block.network_address) >> _HOST_BITS)


@dataclass(frozen=True, slots=True)
class RegionPeer:
    """A region's gateway as its peers see it; `blocks` are the region's block, then its laptop pool.

    `public` is None until the record holds it. `ping_address` is the gateway's address in its laptop pool.
    """

    region: str
    public: IPv4Address | None
    blocks: tuple[IPv4Network, ...]
    ping_address: IPv4Address


@cached_on_plan
def connected_regions(plan: FleetPlan) -> tuple[str, ...]:
    """Return the regions whose gateways are connected by tunnels, in the order of the file: two or more, or none."""
    if plan.interconnect is not Interconnect.NONE:
        return ()
    with_gateway = {pool.place for pool in plan.laptops}
    regions = tuple(region.name for region in plan.regions if region.name in with_gateway)
    return regions if len(regions) > 1 else ()


@cached_on_plan
def tunnel_pairs(plan: FleetPlan) -> tuple[frozenset[str], ...]:
    """Return each pair of places whose gateways have a tunnel to each other, without AWS's VPN: regions, then sites."""
    regions = (frozenset(pair) for pair in combinations(connected_regions(plan), 2))
    return (*regions, *(frozenset(direct.sites) for direct in plan.site_tunnels))


def is_connected(plan: FleetPlan, place: str, other: str) -> bool:
    """Return whether a network path leads from a region or site to another; every site has tunnels to every region."""
    is_mixed = (place in plan.regions_by_name) != (other in plan.regions_by_name)
    return is_mixed or plan.interconnect is not Interconnect.NONE or frozenset((place, other)) in tunnel_pairs(plan)


def node_blocks(plan: FleetPlan, place: str) -> tuple[tuple[str, IPv4Network], ...]:
    """Return the name and block of each range of nodes in a region, or of a site's LAN."""
    site = plan.sites_by_name.get(place)
    if site:
        return tuple(site.networks.items())
    return tuple((f"{place}-{block.prefixlen}", block) for block in nodes_space(plan.region(place).block))


def machine_blocks(plan: FleetPlan, place: str, *, workers: bool = False) -> tuple[tuple[str, IPv4Network], ...]:
    """Return the ranges of nodes in a region, or the addresses of a site's machines with a use, each with a name."""
    site = plan.sites_by_name.get(place)
    return site.used_blocks(workers=workers) if site else node_blocks(plan, place)


def connected_places(plan: FleetPlan, place: str) -> Iterator[str]:
    """Yield the machine's place, then each other place with a network path to it."""
    yield place
    yield from (other for other in place_names(plan) if other != place and is_connected(plan, place, other))


@cached_on_plan
def _region_peers(plan: FleetPlan) -> Mapping[str, RegionPeer]:
    """Return the gateway of each connected region."""
    pools = {pool.place: pool.block for pool in plan.laptops}
    return MappingProxyType(
        {
            region: RegionPeer(
                region=region,
                public=plan.record.gateways.get(region),
                blocks=tuple(network.block for network in networks_of_place(plan, region)),
                ping_address=pools[region][1],
            )
            for region in connected_regions(plan)
        }
    )


def region_gateway_of(plan: FleetPlan, region: str) -> RegionPeer:
    """Return the gateway of a connected region; KeyError for any other region."""
    return _region_peers(plan)[region]


def region_peers(plan: FleetPlan, region: str) -> tuple[RegionPeer, ...]:
    """Return the peers of a region's gateway; none for a region that is not connected."""
    gateways = _region_peers(plan)
    return tuple(peer for peer in gateways.values() if peer.region != region) if region in gateways else ()


API_PORT = 6443


def api_name(plan: FleetPlan) -> str:
    """Return the DNS name of the Kubernetes API, which resolves to every control-plane machine."""
    return f"kubernetes.{plan.domain}"


@cached_on_plan
def fixed_hosts(plan: FleetPlan) -> Mapping[str, tuple[IPv4Address, ...]]:
    """Return the fixed addresses of the fleet by full name, and those of the Kubernetes API and the hub."""
    addresses: dict[str, tuple[IPv4Address, ...]] = {
        f"{name}.{plan.domain}": (address,) for name, address in plan.addresses.items()
    }
    if plan.control_plane:
        addresses[api_name(plan)] = tuple(member.address for member in plan.control_plane.members)
    if plan.hub:
        addresses[plan.hub.host] = (plan.hub.address,)
    return MappingProxyType(addresses)


@cached_on_plan
def ssh_pools(plan: FleetPlan) -> tuple[PoolPlan, ...]:
    """Return the first pool of each SSH group in each region: names of machines are per group and region."""
    pools: dict[tuple[str, str], PoolPlan] = {}
    for pool in plan.pools:
        if pool.use.is_ssh:
            pools.setdefault((pool.group, pool.region), pool)
    return tuple(pools.values())


def ssh_name(plan: FleetPlan, pool: PoolPlan, number: int) -> str:
    """Return the full name of an SSH machine, such as `workbench-gpu-1.us-west-2.lab.internal`."""
    return f"{pool.group}-{number}.{pool.region}.{plan.domain}"


def highest_number(plan: FleetPlan, pool: PoolPlan) -> int:
    """Return the highest number of a pool's machines; the pools of a group in one region share the numbers."""
    same_place = [other for other in plan.pools if (other.group, other.region) == (pool.group, pool.region)]
    return combined_max([pool, *(other for other in same_place if other.name != pool.name)])


def ssh_patterns(plan: FleetPlan, pool: PoolPlan) -> tuple[str, ...]:
    """Return patterns for the names of a pool's machines, with a `?` for each digit of the number."""
    digits = range(1, len(str(highest_number(plan, pool))) + 1)
    return tuple(f"{pool.group}-{'?' * count}.{pool.region}.{plan.domain}" for count in digits)
