"""Reports of `plan`, `image record` and `schema`."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from itertools import groupby

from bedplate.catalog import Catalog
from bedplate.plan.fleet import FleetPlan, SitePlan, ZonePlan
from bedplate.plan.links import API_PORT, api_name
from bedplate.plan.planner import chosen_zones, unrecorded_images
from bedplate.plan.pools import PoolPlan
from bedplate.plan.space import (
    PODS,
    SERVICES,
    SLOTS,
    direct_path,
    edge_path,
    is_nested,
    pool_path,
    region_path,
    site_path,
)
from bedplate.report.columns import aligned, counted
from bedplate.spec import Fleet

# AWS keeps the first four addresses of a subnet and the last (VPC User Guide, "Subnet sizing").
KEPT_BY_AWS = 5

Row = tuple[str, ...]


def plan_lines(plan: FleetPlan) -> Iterator[str]:
    """Yield the addresses, machines, stores, people and pools; `+` marks what the lock does not contain yet."""
    yield f"{plan.name} · account {plan.account} · supernet {plan.supernet} ({_share(plan)} allocated)"
    machines = ((f"  {name}", str(address)) for name, address in plan.site_addresses.items())
    for rows in (_regions(plan), _others(plan), machines, _stores(plan), _people(plan)):
        if lines := aligned(rows):
            yield from ("", *lines)
    yield from _control_plane(plan)
    yield from _hub(plan)
    for _, pools in groupby(plan.pools, key=lambda pool: pool.group):
        yield from _group(tuple(pools))


def missing_image_lines(plan: FleetPlan, catalog: Catalog) -> Iterator[str]:
    """Yield a hint if the lock of a recorded fleet lacks images."""
    missing = unrecorded_images(plan, catalog) if plan.record.blocks else ()
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        yield f"no recorded image for {missing[0]}{more}, so the newest is used: `bedplate image record`"


def _mark(name: str, new: Container[str]) -> str:
    return "+ " if name in new else "  "


def _regions(plan: FleetPlan) -> Iterator[Row]:
    for region in plan.regions:
        free = f"{counted(_free_slots(plan, region.name), 'more zone')} possible"
        note = f"home, {free}" if region.home else free
        yield (_mark(region_path(region.name), plan.new_blocks) + region.name, str(region.block), note)
        for zone in region.zones:
            yield _zone(plan, region.name, zone)


def _zone(plan: FleetPlan, region: str, zone: ZonePlan) -> Row:
    mark = _mark(edge_path(region, zone.name), plan.new_blocks)
    edge, nodes = (f"{block}  {_usable(block):,} usable" for block in (zone.edge, zone.nodes))
    return (f"{mark}  {zone.name}", f"edge {edge}", f"nodes {nodes}")


def _free_slots(plan: FleetPlan, region: str) -> int:
    """Return how many zones can be added to the region. A retired zone keeps its blocks."""
    blocks = {**plan.record.blocks, **plan.blocks}
    return SLOTS - sum(path.startswith(f"region/{region}/zone/") and path.endswith("/edge") for path in blocks)


def _usable(block: IPv4Network) -> int:
    return block.num_addresses - KEPT_BY_AWS


def _share(plan: FleetPlan) -> str:
    """Return the allocated share of the supernet, including retired blocks."""
    blocks = {**plan.record.blocks, **plan.blocks}.items()
    taken = sum(block.num_addresses for path, block in blocks if not is_nested(path) and block.subnet_of(plan.supernet))
    return f"{100 * taken / plan.supernet.num_addresses:.0f} %"


def _others(plan: FleetPlan) -> Iterator[Row]:
    for site in plan.sites:
        yield _site(plan, site)
        for direct in plan.site_tunnels_of(site.name):
            mark = _mark(direct_path(*direct.sites), plan.new_blocks)
            facts = f"direct tunnel {direct.inside}, initiated by {direct.dials}"
            yield (f"{mark}  peer", direct.other(site.name), facts)
        if site.dns:
            servers = " ".join(map(str, site.dns.servers))
            yield ("    dns", site.dns.domain, f"forwarded to {servers} by a resolver in each region")
    for path, block in ((PODS, plan.pods), (SERVICES, plan.services)):
        if block:
            yield (_mark(path, plan.new_blocks) + path, str(block), f"{block.num_addresses:,} addresses")
    for pool in plan.laptops:
        mark = _mark(pool_path(pool.place), plan.new_blocks)
        # All addresses but those of the network, the gateway and broadcasts.
        count = pool.block.num_addresses - 3
        yield (f"{mark}laptops", str(pool.block), f"{count:,} laptops by the gateway in {pool.place}")


def _site(plan: FleetPlan, site: SitePlan) -> Row:
    tunnels = [tunnel for tunnel in plan.tunnels if tunnel.site == site.name]
    inside = f", {counted(len(tunnels), 'tunnel')} from {tunnels[0].inside}" if tunnels else ""
    gateway = f"gateway {site.gateway} at {site.public}, AS{site.asn}{inside}"
    blocks = ", ".join(map(str, site.networks.values()))
    return (_mark(site_path(site.name), plan.new_blocks) + site.name, blocks, gateway)


def _stores(plan: FleetPlan) -> Iterator[Row]:
    files, exports, buckets = plan.stores
    for system in files:
        yield (f"  {system.store}", f"EFS in {system.region}", f"mounted on {system.mount}")
    for nfs in exports:
        yield (f"  {nfs.store}", f"NFS in {nfs.site}", f"mounted on {nfs.mount}, from {nfs.machine}:{nfs.export}")
    for bucket in buckets:
        yield (f"  {bucket.store}", f"S3 in {bucket.region}", f"s3://{bucket.name}")


def _people(plan: FleetPlan) -> Iterator[Row]:
    """Yield people and groups with their user and group ids."""
    for person in plan.accounts.people:
        roles = ("administrator", *person.groups) if person.admin else person.groups
        yield (_mark(person.name, plan.new_people) + person.name, f"id {person.uid}", ", ".join(roles))
    for group, gid in plan.accounts.groups.items():
        yield (_mark(group, plan.new_groups) + group, f"id {gid}", "group")


def _control_plane(plan: FleetPlan) -> Iterator[str]:
    if control := plan.control_plane:
        machines = counted(len(control.members), "machine")
        facts = (control.type, f"Kubernetes {control.version}", machines, f"https://{api_name(plan)}:{API_PORT}")
        yield from ("", f"  control plane   {' · '.join(facts)}")
        yield from aligned(
            (f"{_mark(member.name, plan.new_addresses)}  {member.name}", member.zone, str(member.address))
            for member in control.members
        )


def _hub(plan: FleetPlan) -> Iterator[str]:
    if hub := plan.hub:
        machine = (hub.type, f"{hub.disk} GiB") if hub.region else ()
        backups = f"s3://{hub.bucket.name}" if hub.bucket else hub.backup.store if hub.backup else "none"
        yield from ("", f"  hub   {' · '.join((*machine, f'https://{hub.host}'))}")
        mark = _mark(hub.node, plan.new_addresses)
        yield from aligned([(f"{mark}  {hub.node}", hub.zone or hub.place, str(hub.address)), ("    backups", backups)])


def _group(pools: tuple[PoolPlan, ...]) -> Iterator[str]:
    first = pools[0]
    facts = (
        ", ".join(first.types),
        f"for {first.use.value}",
        f"{first.min} to {counted(first.max, 'machine')}",
        *((f"{first.fabric.value} fabric",) if first.fabric else ()),
    )
    yield from ("", f"  {first.group}   {' · '.join(facts)}")
    yield from aligned((f"    {pool.name}", pool.market.value, " ".join(pool.zones)) for pool in pools)


def summary(fleet: Fleet) -> str:
    """Return `3 regions, 1 site, 5 groups, 5 stores, 2 people`, without parts that the fleet does not have."""
    parts = (
        (len(fleet.regions), "region", "regions"),
        (len(fleet.sites), "site", "sites"),
        (len(fleet.groups), "group", "groups"),
        (len(fleet.storage), "store", "stores"),
        (len(fleet.people), "person", "people"),
    )
    return ", ".join(counted(*part) for part in parts if part[0])


def difference_lines(plan: FleetPlan) -> Iterator[str]:
    """Yield the differences between plan and lock; one line if there are none."""
    retired = roots(plan.retired)
    if retired:
        yield "recorded but no longer in the fleet file; free it with `bedplate plan --write --release PATH`:"
        yield from aligned((f"- {path}", str(plan.retired[path])) for path in retired)
    if fresh := unrecorded(plan):
        yield f"not recorded yet: {', '.join(fresh)}"
        yield "`bedplate plan --write` records them"
    elif not retired:
        yield "fleet.lock is up to date"


def recorded_lines(plan: FleetPlan, released: Mapping[str, IPv4Network]) -> Iterator[str]:
    """Yield what `plan --write` has recorded and freed."""
    freed = roots(released)
    if freed:
        yield f"freed: {', '.join(freed)}"
    if fresh := unrecorded(plan):
        yield f"recorded in fleet.lock: {', '.join(fresh)}"
    elif not freed:
        yield "fleet.lock is up to date"


def foreign_zone_lines(plan: FleetPlan, catalog: Catalog) -> Iterator[str]:
    """Yield the zones that are chosen from the offers of another account."""
    regions = [region for region in plan.regions if not catalog.has_letters_of(plan.account, region.name)]
    rows = [row for region in regions for row in chosen_zones(plan, region, catalog)]
    yield "zones chosen from the offers of another account:"
    yield from (f"  {line}" for line in aligned(rows))
    yield "before `bedplate up`, run `bedplate catalog refresh`: it lists zones that do not offer the type"


def roots(blocks: Mapping[str, IPv4Network]) -> tuple[str, ...]:
    """Return the paths, without subnets of regions that are among them."""
    return tuple(path for path in blocks if not is_nested(path) or path.partition("/zone/")[0] not in blocks)


def named(names: Sequence[str], noun: str) -> str:
    """Return `3 blocks (a, 2 more)`: the number, and the first name."""
    more = (f"{len(names) - 1} more",) if names[1:] else ()
    return f"{counted(len(names), noun)} ({', '.join((*names[:1], *more))})"


def unrecorded(plan: FleetPlan) -> tuple[str, ...]:
    """Return what the lock lacks, in words."""
    blocks, addresses = roots(plan.new_blocks), len(plan.new_addresses)
    people, groups = len(plan.new_people), len(plan.new_groups)
    counts = {
        named(blocks, "block"): blocks,
        counted(addresses, "address", "addresses"): addresses,
        counted(people, "person", "people"): people,
        counted(groups, "group"): groups,
    }
    return tuple(words for words, count in counts.items() if count)


def image_lines(places: Iterable[str], before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield the image of each region and architecture, `+` if it is new; then the number of new ones."""
    rows = tuple(places)
    fresh = [place for place in rows if before.get(place) != now[place]]
    previous = {place: (f"was {before[place]}",) for place in fresh if place in before}
    yield from aligned((_mark(place, fresh) + place, now[place], *previous.get(place, ())) for place in rows)
    yield f"recorded in fleet.lock: {counted(len(fresh), 'image')}" if fresh else "fleet.lock is up to date"
