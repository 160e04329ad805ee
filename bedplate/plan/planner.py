"""Make the plan of a fleet from the fleet file, the lock and the catalog: its pools, kinds of images, and stores."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.catalog.tables import Arch, ChipFacts
from bedplate.plan import space
from bedplate.plan.allocation import TUNNEL_NUMBERS, allocate_blocks, initiating_site, joined_sites
from bedplate.plan.cluster import check_departed
from bedplate.plan.cost import GATEWAY_TYPE
from bedplate.plan.fleet import (
    ControlPlane,
    FleetPlan,
    LaptopPool,
    RegionPlan,
    SitePlan,
    SiteTunnelPlan,
    TunnelPlan,
    ZonePlan,
    member_names,
    number_accounts,
    place_members,
)
from bedplate.plan.hub import HUB_HOST, HubPlan
from bedplate.plan.pools import PoolPlan, bucket_name, pool_name
from bedplate.plan.record import Record
from bedplate.plan.stores import BucketPlan, stores
from bedplate.spec import Fleet
from bedplate.spec.groups import Group, Rung
from bedplate.spec.network import Endpoint, TunnelAuth
from bedplate.spec.sites import Use

# The part of an endpoint's service name after `com.amazonaws.<region>.`. A pull from ECR uses its API and its registry.
# Session Manager no longer needs `ec2messages`: the agent uses only `ssmmessages`, and newer regions have no such
# endpoint. Source: AWS Systems Manager user guide, VPC endpoints, 2026-11.
SERVICES: Mapping[Endpoint, tuple[str, ...]] = MappingProxyType(
    {
        Endpoint.ECR: ("ecr.api", "ecr.dkr"),
        Endpoint.SSM: ("ssm", "ssmmessages"),
        Endpoint.STS: ("sts",),
        Endpoint.LOGS: ("logs",),
    }
)


def endpoint_services(fleet: Fleet) -> tuple[str, ...]:
    """Return the services with an interface endpoint in every region, in the order of the file."""
    return tuple(service for name in dict.fromkeys(fleet.network.endpoints) for service in SERVICES[name])


IMAGE_ID = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})", re.ASCII)
# Canonical's names of the architectures in its public parameters.
# Source: https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/, read 2026-11.
_CANONICAL: dict[str, str] = {"x86_64": "amd64", "arm64": "arm64"}
_PARAMETER = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{arch}/hvm/ebs-gp3/ami-id"


def architecture(types: tuple[str, ...], catalog: Catalog) -> Arch:
    """Return the architecture of a pool's types; x86_64 if the catalog has none of them."""
    return next((catalog.types[name].arch for name in types if name in catalog.types), "x86_64")


def image_parameter(arch: str) -> str:
    """Return the name of Canonical's public parameter with its newest image, the same in every region."""
    return _PARAMETER.format(arch=_CANONICAL[arch])


def image_places(plan: FleetPlan, catalog: Catalog) -> tuple[str, ...]:
    """Return every `region/architecture` in which pools, laptop gateways, control plane or hub have machines."""
    return tuple(sorted({f"{region}/{architecture(types, catalog)}" for region, types in _machines(plan)}))


def unrecorded_images(plan: FleetPlan, catalog: Catalog) -> tuple[str, ...]:
    """Return the places without a recorded image."""
    return tuple(place for place in image_places(plan, catalog) if place not in plan.record.images)


def required_images(plan: FleetPlan, catalog: Catalog) -> tuple[str, ...]:
    """Return the places that require a recorded image, and have none.

    Auto Scaling accepts no SSM parameter as image together with instance requirements. Source: its user guide, "Use AWS
    Systems Manager parameters instead of AMI IDs in launch templates", limitations.
    """
    required = {f"{pool.region}/{architecture(pool.types, catalog)}" for pool in plan.pools if pool.group_spec.similar}
    return tuple(sorted(required - plan.record.images.keys()))


def _machines(plan: FleetPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from ((pool.region, pool.types) for pool in plan.pools)
    yield from ((pool.place, (GATEWAY_TYPE,)) for pool in plan.laptops if pool.place in plan.regions_by_name)
    if plan.control_plane:
        yield plan.home.name, (plan.control_plane.type,)
    if plan.hub and plan.hub.region:
        yield plan.hub.region, (plan.hub.type,)


def pools(fleet: Fleet, catalog: Catalog) -> tuple[PoolPlan, ...]:
    """Return the pools of all groups, in the order of the file."""
    return tuple(pool for name, group in fleet.groups.items() for pool in group_pools(name, group, fleet, catalog))


def group_pools(name: str, group: Group, fleet: Fleet, catalog: Catalog) -> Iterator[PoolPlan]:
    """Yield one group's pools, with the group's minimum in the first; KeyError for a rung of an unknown region.

    The maximum of each is the group's, or the size of its reservation: available capacity decides at run time which
    rung grows. If one rung names a zone and another its region, the zone has one pool, from the first of the two.
    """
    pools: dict[str, tuple[int, tuple[str, ...]]] = {}
    for rung, rung_spec in enumerate(group.ladder):
        for place, zones in _places(group, rung_spec, fleet.regions[rung_spec.region].zones, catalog):
            pools.setdefault(pool_name(name, rung_spec, place), (rung, zones))
    for index, (pool, (rung, zones)) in enumerate(pools.items()):
        region = group.ladder[rung].region
        offered = [kind for kind in group.types if any(_is_offered((kind,), region, zone, catalog) for zone in zones)]
        yield PoolPlan(
            name=pool,
            group=name,
            group_spec=group,
            rung=rung,
            zones=zones,
            # The rules report a rung that offers none.
            types=tuple(offered) or group.types,
            min=0 if index else group.nodes.min,
            max=min(group.nodes.max, group.ladder[rung].reserved or group.nodes.max),
            owner=group.owner or fleet.owner,
        )


def _places(
    group: Group, rung: Rung, zones: tuple[str, ...], catalog: Catalog
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if rung.zone is not None:
        yield rung.zone, (rung.zone,)
        return
    offering = tuple(zone for zone in zones if _is_offered(group.types, rung.region, zone, catalog))
    if group.fabric is None:
        yield rung.region, offering
    else:
        yield from ((zone, (zone,)) for zone in offering)


def _is_offered(types: tuple[str, ...], region: str, zone: str, catalog: Catalog) -> bool:
    return any(name not in catalog.types or zone in catalog.offered(name, region) for name in types)


def gateway_zone(region: RegionPlan, catalog: Catalog) -> str:
    """Return the zone of the laptop gateway: the first assigned zone that offers its instance type."""
    offering = catalog.offered(GATEWAY_TYPE, region.name)
    suitable = [zone for zone in region.zones if zone.name in offering]
    return min(suitable or region.zones, key=lambda zone: zone.edge).name


def chosen_zones(plan: FleetPlan, region: RegionPlan, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Yield the pools and machines of a region whose zones depend on the offers, each with its zones."""
    if plan.control_plane and region.home:
        yield from ((member.name, member.zone) for member in plan.control_plane.members)
    if any(pool.place == region.name for pool in plan.laptops):
        yield f"laptop gateway of {region.name}", gateway_zone(region, catalog)
    if plan.hub and plan.hub.region == region.name:
        yield plan.hub.node, plan.hub.zone
    for pool in plan.pools:
        if pool.region == region.name and pool.rung_spec.zone is None:
            yield pool.name, ", ".join(pool.zones)


Blocks = Mapping[str, IPv4Network]


def plan_fleet(fleet: Fleet, record: Record, catalog: Catalog) -> FleetPlan:
    """Return the plan of a fleet that has passed the checks; raises PlanFaults."""
    blocks = allocate_blocks(fleet, record)
    regions = _regions(fleet, blocks)
    accounts = number_accounts(fleet, record)
    files, exports, buckets = stores(fleet)
    control = _control_plane(fleet, regions, record, catalog)
    check_departed(fleet, accounts)
    return FleetPlan(
        name=fleet.name,
        account=fleet.account,
        owner=fleet.owner,
        tags=fleet.tags,
        domain=fleet.domain,
        supernet=fleet.network.supernet,
        interconnect=fleet.network.interconnect,
        egress=fleet.network.egress,
        regions=regions,
        sites=tuple(SitePlan(name, site) for name, site in fleet.sites.items()),
        pods=blocks.get(space.PODS),
        services=blocks.get(space.SERVICES),
        laptops=_laptops(fleet, blocks),
        tunnels=_tunnels(fleet, blocks),
        pools=pools(fleet, catalog),
        files=files,
        buckets=buckets,
        record=record,
        blocks=blocks,
        catalog=catalog,
        jobs=fleet.jobs,
        budget=fleet.budget,
        max_cost=fleet.max_cost,
        alarms=fleet.alarms,
        exports=exports,
        endpoints=endpoint_services(fleet),
        boundary=fleet.identity.permissions_boundary,
        control_plane=control,
        hub=_hub(fleet, regions, {**record.addresses, **_addresses(control)}, catalog),
        image=fleet.image.model_copy(update=_versions(fleet, catalog)),
        software=catalog.software_set(fleet.software).name,
        accounts=accounts,
        site_tunnels=_directs(fleet, blocks),
        tunnel_auth=fleet.vpn.tunnels.auth if fleet.vpn else TunnelAuth.PSK,
    )


def _versions(fleet: Fleet, catalog: Catalog) -> dict[str, str | None]:
    kubelet = fleet.image.kubernetes
    driver = fleet.image.driver or catalog.software_set(fleet.software).driver
    return {"driver": driver, "kubernetes": catalog.kubernetes(kubelet) if kubelet else None}


def _regions(fleet: Fleet, blocks: Blocks) -> tuple[RegionPlan, ...]:
    return tuple(
        RegionPlan(
            name=name,
            home=region.home,
            block=blocks[space.region_path(name)],
            zones=tuple(
                ZonePlan(zone, blocks[space.edge_path(name, zone)], blocks[space.nodes_path(name, zone)])
                for zone in region.zones
            ),
        )
        for name, region in fleet.regions.items()
    )


_PLAIN = "http://"


def _control_plane(
    fleet: Fleet, regions: tuple[RegionPlan, ...], record: Record, catalog: Catalog
) -> ControlPlane | None:
    cluster = fleet.kubernetes
    if cluster is None:
        return None
    home = next(region for region in regions if region.home)
    spec = cluster.control_plane
    names = member_names(spec.count, home.name)
    members = place_members(home, names, record.addresses, catalog.offered(spec.type, home.name))
    containerd = catalog.software_set(fleet.software).value("containerd")
    version = catalog.kubernetes(cluster.version)
    # Without an entry containerd speaks https.
    plain = {url.removeprefix(_PLAIN): url for url in fleet.jobs.registries if url.startswith(_PLAIN)}
    return ControlPlane(spec.type, version, members, containerd, {**plain, **cluster.mirrors}, cluster.pod_roles)


def _addresses(control: ControlPlane | None) -> Mapping[str, IPv4Address]:
    return {member.name: member.address for member in control.members} if control else {}


def _hub(
    fleet: Fleet, regions: tuple[RegionPlan, ...], taken: Mapping[str, IPv4Address], catalog: Catalog
) -> HubPlan | None:
    """Return the plan of the hub; in a region it gets none of the `taken` addresses but its own."""
    spec = fleet.hub
    if spec is None:
        return None
    people = {name: one.email if one.notify == "mail" else "" for name, one in fleet.people.items() if one.notify}
    administrators = [name for name in people if fleet.people[name].admin]
    kept = fleet.monitoring.model_dump(include={"keep", "remote_write"})
    alerts = list(fleet.monitoring.notify or administrators)
    messages = {"relay": spec.relay, "sender": spec.sender, "people": people, "alerts": alerts}
    if spec.region is None:
        site, label = spec.site or "", spec.machine or ""
        backup = next((export for export in stores(fleet)[1] if export.store == spec.backup), None)
        address = fleet.sites[site].machines[label].address
        return HubPlan(f"{label}.{site}", fleet.domain, address, backup=backup, messages=messages, **kept)
    region = next(region for region in regions if region.name == spec.region)
    name = f"{HUB_HOST}.{region.name}"
    (place,) = place_members(region, (name,), taken, catalog.offered(spec.type, region.name))
    bucket = BucketPlan(
        HUB_HOST, region.name, bucket_name(fleet.name, HUB_HOST, fleet.account, region.name), expire_days=None
    )
    machine = (place.address, region.name, place.zone, spec.type, spec.disk, bucket)
    return HubPlan(name, fleet.domain, *machine, messages=messages, **kept)


def _laptops(fleet: Fleet, blocks: Blocks) -> tuple[LaptopPool, ...]:
    spec = fleet.vpn.laptops if fleet.vpn else None
    if spec is None:
        return ()
    places = dict.fromkeys(gateway.region or gateway.site or "" for gateway in spec.gateways)
    return tuple(LaptopPool(place, blocks[space.pool_path(place)], spec.between) for place in places)


def _tunnels(fleet: Fleet, blocks: Blocks) -> tuple[TunnelPlan, ...]:
    return tuple(
        TunnelPlan(site, region, number, blocks[space.tunnel_path(site, region, number)])
        for site in fleet.sites
        for region in fleet.regions
        for number in TUNNEL_NUMBERS
    )


def _directs(fleet: Fleet, blocks: Blocks) -> tuple[SiteTunnelPlan, ...]:
    return tuple(
        SiteTunnelPlan(pair, initiating_site(fleet, pair), blocks[space.direct_path(*pair)])
        for pair in joined_sites(fleet)
    )


@dataclass(frozen=True, slots=True)
class ImageKind:
    """The properties that pools with the same image share.

    `driver` is a branch with its modules, such as `580-open`; `-fabric` adds the Fabric Manager, `-nvlsm` its subnet
    manager, `-imex` the sharing of memory between machines. Empty without GPUs. `frameworks`: with PyTorch.
    """

    use: Use
    arch: Arch
    driver: str = ""
    efa: bool = False
    frameworks: bool = False

    @property
    def name(self) -> str:
        """The name in commands, tags, parameters and the lock, such as `worker-x86_64-580-open-efa`."""
        parts = (self.driver, "efa" if self.efa else "", "frameworks" if self.frameworks else "")
        return "-".join(filter(None, (self._role, self.arch, *parts)))

    @property
    def _role(self) -> str:
        match self.use:
            case Use.SSH:
                return "workbench"
            case Use.KUBERNETES:
                return "worker"


def pool_kind(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> ImageKind:
    """Return the kind of a pool's image; the first type decides, as for its roles."""
    arch = architecture(pool.types, catalog)
    facts = catalog.types.get(pool.types[0])
    gpu = facts.gpu if facts else None
    chip = catalog.chips.get(gpu.name) if gpu else None
    default = pool.use.is_ssh and chip is not None and chip.open
    return ImageKind(
        pool.use,
        arch,
        _driver(pool.group_spec.driver or plan.image.driver or "", gpu.count, chip) if gpu else "",
        efa=pool.fabric is not None,
        frameworks=default if pool.group_spec.frameworks is None else pool.use.is_ssh and pool.group_spec.frameworks,
    )


def _driver(branch: str, count: int, chip: ChipFacts | None) -> str:
    if chip is None:
        return f"{branch}-open"
    fabric = chip.needs_switch(count)
    parts = {
        "open" if chip.open else "closed": True,
        "fabric": fabric,
        "nvlsm": fabric and chip.generation == "blackwell",
        "imex": chip.name.startswith("gb"),
    }
    return "-".join((branch, *(part for part, has_part in parts.items() if has_part)))


def image_kinds(plan: FleetPlan, catalog: Catalog) -> Mapping[ImageKind, tuple[PoolPlan, ...]]:
    """Return the kinds that the fleet needs, each with its pools, in the order of the file."""
    kinds: dict[ImageKind, tuple[PoolPlan, ...]] = {}
    for pool in plan.pools:
        kind = pool_kind(plan, pool, catalog)
        kinds[kind] = (*kinds.get(kind, ()), pool)
    return kinds


def baked_image(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> str | None:
    """Return the recorded image that was baked for a pool's kind in its region; None without one."""
    return plan.record.baked.get(f"{pool.region}/{pool_kind(plan, pool, catalog).name}")
