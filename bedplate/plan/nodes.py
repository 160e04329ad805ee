"""Every machine that a fleet's plan knows by name, as roles configure it: of sites, of the cloud, numbered or fixed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

from bedplate.catalog.catalog import Catalog
from bedplate.catalog.nearest import nearest
from bedplate.errors import InputError
from bedplate.plan.beyond import beyond
from bedplate.plan.fleet import FleetPlan, SitePlan
from bedplate.plan.hostnames import highest, ssh_pools
from bedplate.plan.joint import joined_regions, peers_of
from bedplate.plan.laptops import gateway_in
from bedplate.plan.node import Duty, Ground, Hardware, NodePlan
from bedplate.plan.node_doors import doors
from bedplate.plan.node_stores import buckets, mounts, shares
from bedplate.plan.pool import PoolPlan
from bedplate.spec.site import Use

_DUTY_OF = {Use.SSH: Duty.WORKBENCH, Use.KUBERNETES: Duty.WORKER}
GATEWAY = "laptops"
# What the gateway of a site calls itself at tunnels to other gateways of the fleet.
SITE_END = "tunnels"


# The name of a machine, and what plans it: to know a name is quick, to plan every machine of a large fleet is not.
_Named = tuple[str, Callable[[], NodePlan]]


def standing_nodes(plan: FleetPlan) -> tuple[NodePlan, ...]:
    """Return the machines that always stand: those of sites, the control plane's, the gateways of laptops."""
    return tuple(planned() for _, planned in _standing(plan))


def pool_nodes(plan: FleetPlan, catalog: Catalog) -> Iterator[NodePlan]:
    """Yield the machines that people log in to in the cloud, up to the highest number that each place may have."""
    yield from (planned() for _, planned in _pooled(plan, catalog))


def node_of(plan: FleetPlan, name: str, catalog: Catalog) -> NodePlan:
    """Return the machine of that name, with or without the domain; InputError, with the nearest name, for none."""
    short = name.removesuffix(f".{plan.domain}")
    known = dict((*_standing(plan), *_pooled(plan, catalog)))
    if short not in known:
        raise InputError(f"{name} is no machine of the fleet {plan.name}", fix=_meant(plan, short, known))
    return known[short]()


def _meant(plan: FleetPlan, name: str, known: Iterable[str]) -> str:
    """Return what to write in place of a name; of a group that there is, never another group's machine."""
    group, _, numbered = name.partition(".")[0].rpartition("-")
    region = name.partition(".")[2]
    pools = [pool for pool in plan.pools if pool.group == group and numbered.isdecimal()]
    here = [pool for pool in pools if pool in ssh_pools(plan) and pool.region == region]
    if here:
        return f"{group} has 1 to {max(highest(plan, pool) for pool in here)} in {region}"
    if pools and pools[0].use is Use.KUBERNETES:
        return f"machines of {group} go by EC2's names: --group {group}"
    if pools:
        regions = sorted({pool.region for pool in pools})
        return f"{group} has machines in {', '.join(regions)}, named as {group}-1.{regions[0]}"
    near = nearest(name, known)
    return f"write {near}" if near else "`bedplate node list` shows what there is"


def _standing(plan: FleetPlan) -> Iterator[_Named]:
    for site in plan.sites:
        yield from ((f"{label}.{site.name}", partial(_of_site, plan, site, label)) for label in site.machines)
    for member in plan.control_plane.members if plan.control_plane else ():
        duties = frozenset({Duty.CONTROL})
        yield member.name, partial(_node, plan, member.name, Ground.CLOUD, duties, member.address)
    regions = {region.name for region in plan.regions}
    for name in (f"{GATEWAY}.{pool.place}" for pool in plan.laptops if pool.place in regions):
        yield name, partial(_node, plan, name, Ground.CLOUD, _gateway_duties(plan, name), None)


def _pooled(plan: FleetPlan, catalog: Catalog) -> Iterator[_Named]:
    for pool in ssh_pools(plan):
        for number in range(1, highest(plan, pool) + 1):
            name = f"{pool.group}-{number}.{pool.region}"
            yield name, partial(pool_node, plan, pool, name, catalog)


def _of_site(plan: FleetPlan, site: SitePlan, label: str) -> NodePlan:
    duties = _site_duties(plan, site, label)
    node = _node(plan, f"{label}.{site.name}", Ground.METAL, duties, site.machines[label])
    gpus = site.gpus.get(label)
    found = Hardware(gpus.model, gpus.count) if gpus else None
    return replace(node, gpus=found, scratch=site.scratch.get(label, ()))


def _gateway_duties(plan: FleetPlan, name: str) -> frozenset[Duty]:
    is_joined = name.partition(".")[2] in joined_regions(plan)
    return frozenset({Duty.LAPTOPS, Duty.JOINT} if is_joined else {Duty.LAPTOPS})


def _site_duties(plan: FleetPlan, site: SitePlan, label: str) -> frozenset[Duty]:
    use = site.uses[label]
    found = {_DUTY_OF[use]} if use else set()
    if label == site.gateway:
        found.add(Duty.TUNNELS)
        found.update(Duty.LAPTOPS for pool in plan.laptops if pool.place == site.name)
    if any((each.site, each.machine) == (site.name, label) for each in plan.exports):
        found.add(Duty.FILES)
    return frozenset(found)


def pool_node(plan: FleetPlan, pool: PoolPlan, name: str, catalog: Catalog) -> NodePlan:
    """Return a machine of a pool under a name of its own, with the GPUs of the pool's first type."""
    facts = catalog.types.get(pool.types[0])
    gpus = Hardware(facts.gpu.name, facts.gpu.count) if facts and facts.gpu else None
    node = _node(plan, name, Ground.CLOUD, frozenset({_DUTY_OF[pool.use]}), None)
    return replace(node, gpus=gpus, owner=pool.tenure.owner, expires=pool.tenure.expires)


def _node(plan: FleetPlan, name: str, ground: Ground, duties: frozenset[Duty], address: IPv4Address | None) -> NodePlan:
    label, _, place = name.partition(".")
    region = place if ground is Ground.CLOUD else plan.home.name
    hosts = {f"{each}.{plan.domain}": one for each, one in plan.addresses.items()}
    return NodePlan(
        fleet=plan.name,
        domain=plan.domain,
        owner=plan.owner,
        name=name,
        ground=ground,
        duties=duties,
        region=region,
        address=address,
        accounts=plan.accounts,
        hosts=MappingProxyType(hosts),
        doors=doors(plan, label, place, duties),
        mounts=mounts(plan, label, place, ground, duties),
        shares=shares(plan, label, place) if ground is Ground.METAL else (),
        buckets=buckets(plan, region, duties),
        laptops=gateway_in(plan, place) if Duty.LAPTOPS in duties else None,
        elsewhere=tuple(_elsewhere(plan, place, duties)),
    )


def _elsewhere(plan: FleetPlan, place: str, duties: frozenset[Duty]) -> Iterator[IPv4Network]:
    if Duty.TUNNELS in duties:
        yield from (each.block for each in beyond(plan, place))
    if Duty.JOINT in duties:
        yield from (block for peer in peers_of(plan, place) for block in peer.blocks)
