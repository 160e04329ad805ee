"""Every machine that a fleet's plan knows by name, as roles configure it: of sites, of the cloud, numbered or fixed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

from bedplate.catalog.catalog import Catalog
from bedplate.catalog.nearest import nearest
from bedplate.errors import InputError
from bedplate.plan.firewall import ANYWHERE, NFS, SSH, TCP, WORKER_PORTS, Rule, has_workers
from bedplate.plan.fleet import Accounts, BucketPlan, ExportPlan, FleetPlan, MachinePlan, SitePlan
from bedplate.plan.laptops import LaptopGateway, Transport, gateway_in
from bedplate.plan.links import API_PORT, beyond, highest, is_led, joined_regions, peers_of, places, ssh_pools
from bedplate.plan.pools import PoolPlan
from bedplate.plan.space import nodes_space
from bedplate.spec.sites import Clients, Use


class Ground(StrEnum):
    """Where a machine stands."""

    CLOUD = "cloud"
    METAL = "metal"


class Duty(StrEnum):
    """What a machine does for the fleet; it may have several duties, or none."""

    WORKBENCH = "workbench"
    WORKER = "worker"
    CONTROL = "control plane"
    LAPTOPS = "gateway of laptops"
    TUNNELS = "gateway of the site"
    JOINT = "gateway to other regions"
    FILES = "file server"


class MountKind(StrEnum):
    """How shared storage is mounted."""

    EFS = "efs"
    NFS = "nfs"


@dataclass(frozen=True, slots=True)
class Mount:
    """Shared storage at a path: `server` is the name that resolves in the fleet, `export` the folder on it.

    `region` is the region of an EFS file system, by which its server proves itself.
    """

    store: str
    kind: MountKind
    server: str
    export: str
    path: str
    region: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A folder that the machine itself exports over NFS, and the blocks that may mount it."""

    store: str
    path: str
    mount: str
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs of a machine: `model` as the fleet file or EC2 calls it."""

    model: str
    count: int


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A machine of the fleet; `name` is how operators call it, `titan-01.cellar`.

    `address` is None for a machine of a pool, whose address AWS decides. `hosts` holds every machine of a fixed
    address by its full name. `region` is its own, or the home region for a machine of a site.
    """

    fleet: str
    domain: str
    owner: str
    name: str
    ground: Ground
    duties: frozenset[Duty]
    region: str
    address: IPv4Address | None
    accounts: Accounts
    hosts: Mapping[str, IPv4Address]
    doors: tuple[Rule, ...]
    mounts: tuple[Mount, ...] = ()
    shares: tuple[Share, ...] = ()
    buckets: tuple[BucketPlan, ...] = ()
    gpus: Hardware | None = None
    scratch: tuple[str, ...] = ()
    """The disks that /scratch is made of, where the file names some; a machine of the cloud finds its own."""
    expires: str | None = None
    laptops: LaptopGateway | None = None
    """The gateway of laptops that it is, where it is one."""
    elsewhere: tuple[IPv4Network, ...] = ()
    """The blocks that it leads to by tunnels, where it is a gateway of a site or to other regions."""

    @property
    def host(self) -> str:
        """Its host name, one label."""
        return self.name.partition(".")[0]

    @property
    def place(self) -> str:
        """The region or site that it stands in."""
        return self.name.partition(".")[2]

    @property
    def is_named_by_ec2(self) -> bool:
        """Whether its host name is the one that EC2 gave it: a cloud's worker is known to Kubernetes by no other."""
        return self.ground is Ground.CLOUD and Duty.WORKER in self.duties

    @property
    def full_name(self) -> str:
        """Its name with the fleet's domain."""
        return f"{self.name}.{self.domain}"


_USERS = frozenset({Duty.WORKBENCH, Duty.WORKER})


def mounts(plan: FleetPlan, label: str, place: str, ground: Ground, duties: frozenset[Duty]) -> tuple[Mount, ...]:
    """Return what a machine mounts: nothing where nobody works on it and it serves alone."""
    if not duties & _USERS:
        return ()
    if ground is Ground.CLOUD:
        return tuple(
            Mount(
                each.store,
                MountKind.EFS,
                f"{each.store}.files.{each.region}.{plan.domain}",
                "/",
                each.mount,
                each.region,
            )
            for each in plan.files
        )
    return tuple(
        Mount(each.store, MountKind.NFS, f"{each.machine}.{place}.{plan.domain}", each.export, each.mount)
        for each in plan.exports
        if each.site == place and each.machine != label
    )


def shares(plan: FleetPlan, label: str, place: str) -> tuple[Share, ...]:
    """Return what a machine of a site exports, and to which addresses."""
    return tuple(
        Share(each.store, each.export, each.mount, tuple(_address(block) for _, block in clients(plan, each)))
        for each in exports_of(plan, label, place)
    )


def exports_of(plan: FleetPlan, label: str, place: str) -> tuple[ExportPlan, ...]:
    """Return the exports of a site's machine."""
    return tuple(each for each in plan.exports if (each.site, each.machine) == (place, label))


def clients(plan: FleetPlan, export: ExportPlan) -> tuple[tuple[str, IPv4Network], ...]:
    """Return who may mount an export, each with a name: the other machines that mount it, or the whole LAN."""
    site = next(site for site in plan.sites if site.name == export.site)
    if export.clients is Clients.LAN:
        return ((site.name, site.lan),)
    server = f"{export.machine}.{site.name}"
    return tuple((name, block) for name, block in site.used_for(*Use) if name != server)


def _address(block: IPv4Network) -> str:
    return str(block).removesuffix("/32")


def buckets(plan: FleetPlan, region: str, duties: frozenset[Duty]) -> tuple[BucketPlan, ...]:
    """Return the bucket of each store that a machine reads: its own region's, or the store's first."""
    if not duties & _USERS:
        return ()
    found: dict[str, BucketPlan] = {}
    for bucket in plan.buckets:
        if bucket.store not in found or bucket.region == region:
            found[bucket.store] = bucket
    return tuple(found.values())


EXPORTER_PORT = 9100
# Where OpenVPN listens, as protocol and port.
OPENVPN = tuple((str(each), each.port) for each in Transport)
# IKE, and ESP within UDP where an address is translated. Source: RFC 7296 section 2, RFC 3948.
IKE = (500, 4500)
# Source: RFC 4271 section 8.2.1.
BGP = 179
# The names of the doors of pods.
_PODS = ("all-from-pods", "api-from-pods")


def doors(plan: FleetPlan, label: str, place: str, duties: frozenset[Duty]) -> tuple[Rule, ...]:
    """Return who may open a connection to a machine of these duties in a region or on a site."""
    return (
        *_people(plan),
        *_watchers(plan, place),
        *_fellows(plan, place, duties),
        *_control(plan, duties),
        *_pods(plan, duties),
        *_mounting(plan, label, place),
        *_gateways(duties),
        *_neighbours(plan, place, duties),
    )


def pods_of(rules: Iterable[Rule]) -> IPv4Network | None:
    """Return the block of pods that a machine's doors name; None where it carries none."""
    return next((rule.block for rule in rules if rule.name in _PODS), None)


def blocks_of(plan: FleetPlan, place: str) -> tuple[tuple[str, IPv4Network], ...]:
    """Return the blocks of nodes of a region, or the LAN of a site, each with a name."""
    for site in plan.sites:
        if site.name == place:
            return ((place, site.lan),)
    return tuple((f"{place}-{block.prefixlen}", block) for block in nodes_space(plan.region(place).block))


def _machines(plan: FleetPlan, place: str, *uses: Use) -> tuple[tuple[str, IPv4Network], ...]:
    """Return the blocks of a region's nodes, or the addresses of a site's machines of these uses, each with a name."""
    for site in plan.sites:
        if site.name == place:
            return site.used_for(*uses)
    return blocks_of(plan, place)


def _places(plan: FleetPlan, place: str) -> Iterator[str]:
    """Yield the machine's own place and every other that the network leads to."""
    yield place
    yield from (each for each in places(plan) if each != place and is_led(plan, place, each))


def _people(plan: FleetPlan) -> Iterator[Rule]:
    """Yield the doors of whoever logs in: laptops, sites, and the fleet's own nodes."""
    for pool in plan.laptops:
        yield Rule(f"ssh-from-laptops-{pool.place}", f"SSH from the laptops of {pool.place}", pool.block, TCP, SSH)
    for place in places(plan):
        for name, block in blocks_of(plan, place):
            yield Rule(f"ssh-from-{name}", f"SSH from {place}", block, TCP, SSH)


def _watchers(plan: FleetPlan, place: str) -> Iterator[Rule]:
    for each in _places(plan, place):
        for name, block in blocks_of(plan, each):
            yield Rule(f"metrics-from-{name}", f"Metrics for {each}", block, TCP, EXPORTER_PORT)


def _fellows(plan: FleetPlan, place: str, duties: frozenset[Duty]) -> Iterator[Rule]:
    """Yield the rules among machines that compute together: everything, but nothing for other hosts of a LAN."""
    if not duties & {Duty.WORKBENCH, Duty.WORKER}:
        return
    for each in _places(plan, place):
        for name, block in _machines(plan, each, *Use):
            yield Rule(f"all-from-{name}", f"All from nodes of {each}", block)


def _control(plan: FleetPlan, duties: frozenset[Duty]) -> Iterator[Rule]:
    if Duty.CONTROL not in duties:
        return
    for member in plan.control_plane.members if plan.control_plane else ():
        yield Rule(f"all-from-{member.name}", f"All from {member.name}", IPv4Network(member.address))
    for place in places(plan):
        for name, block in blocks_of(plan, place):
            yield Rule(f"api-from-{name}", f"Kubernetes API for {place}", block, TCP, API_PORT)
    for place in (each for each in places(plan) if has_workers(plan, each)):
        for name, block in _machines(plan, place, Use.KUBERNETES):
            for what, protocol, port in WORKER_PORTS:
                yield Rule(f"{what.lower()}-from-{name}", f"{what} from workers of {place}", block, protocol, port)
    for pool in plan.laptops:
        yield Rule(
            f"api-from-laptops-{pool.place}", f"Kubernetes API for laptops of {pool.place}", pool.block, TCP, API_PORT
        )


def _pods(plan: FleetPlan, duties: frozenset[Duty]) -> Iterator[Rule]:
    """Yield the doors of the pods that run on the machine itself; those of other nodes come under their node's address.

    They may what their neighbours may: everything on a worker, the API where it is served.
    """
    if plan.pods and Duty.WORKER in duties:
        yield Rule(_PODS[0], "All from pods", plan.pods)
    elif plan.pods and Duty.CONTROL in duties:
        yield Rule(_PODS[1], "Kubernetes API for pods", plan.pods, TCP, API_PORT)


def _mounting(plan: FleetPlan, label: str, place: str) -> Iterator[Rule]:
    """Yield the rules for the clients of a machine's exports, each client once."""
    found = dict(client for export in exports_of(plan, label, place) for client in clients(plan, export))
    for name, block in found.items():
        yield Rule(f"nfs-from-{name}", f"NFS for {name}", block, TCP, NFS)


def _gateways(duties: frozenset[Duty]) -> Iterator[Rule]:
    if Duty.LAPTOPS in duties:
        for protocol, port in OPENVPN:
            yield Rule(f"openvpn-{protocol}", f"OpenVPN over {protocol}", ANYWHERE.block, protocol, port)
    if duties & {Duty.TUNNELS, Duty.JOINT}:
        for port in IKE:
            yield Rule(f"ike-{port}", "IKE from the far ends of tunnels", ANYWHERE.block, "udp", port)
    # Gateways of regions stand behind an elastic address, which is translation: theirs is within UDP.
    if Duty.TUNNELS in duties:
        yield Rule("esp", "ESP from the far ends of tunnels", ANYWHERE.block, "esp")


def _neighbours(plan: FleetPlan, place: str, duties: frozenset[Duty]) -> Iterator[Rule]:
    """Yield the doors of BGP to sites that are joined: of two gateways with this filter, one has to let the other in.

    AWS's end needs none: it lets the site's gateway in.
    """
    for direct in plan.directs_of(place) if Duty.TUNNELS in duties else ():
        other = direct.other(place)
        yield Rule(f"bgp-from-{other}", f"BGP from the gateway of {other}", direct.inside, TCP, BGP)


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
        yield from (
            (f"{machine.label}.{site.name}", partial(_of_site, plan, site, machine))
            for machine in site.machines.values()
        )
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


def _of_site(plan: FleetPlan, site: SitePlan, machine: MachinePlan) -> NodePlan:
    duties = _site_duties(plan, site, machine)
    node = _node(plan, f"{machine.label}.{site.name}", Ground.METAL, duties, machine.address)
    gpus = machine.spec.gpus
    return replace(node, gpus=Hardware(gpus.model, gpus.count) if gpus else None, scratch=machine.spec.scratch)


def _gateway_duties(plan: FleetPlan, name: str) -> frozenset[Duty]:
    is_joined = name.partition(".")[2] in joined_regions(plan)
    return frozenset({Duty.LAPTOPS, Duty.JOINT} if is_joined else {Duty.LAPTOPS})


def _site_duties(plan: FleetPlan, site: SitePlan, machine: MachinePlan) -> frozenset[Duty]:
    label, use = machine.label, machine.spec.use
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


MARK = "# Written by bedplate: keys of administrators"
"""The first line of such a file: whoever reads it knows who writes it anew."""


def admin_keys(accounts: Accounts) -> tuple[str, ...]:
    """Return the keys of those who are administrators now, in the order of the file."""
    return tuple(key for person in accounts.people if person.admin for key in person.keys)


def first_keys(accounts: Accounts) -> str:
    """Return the text of the file."""
    return "".join(f"{line}\n" for line in (MARK, *admin_keys(accounts)))
