"""The plan of each machine that roles configure: its roles, firewall rules, storage and GPUs.

Sites' machines, the control plane, the hub and laptop gateways are permanent. Machines of SSH pools are numbered.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Address, IPv4Network

from bedplate.catalog.catalog import Catalog
from bedplate.catalog.software import SoftwareSet
from bedplate.catalog.tables import InstanceFacts
from bedplate.errors import InputError, edits, nearest
from bedplate.plan.capacity import CapacityPlan, ends_itself, worker_capacity
from bedplate.plan.cluster import ClusterNode, JoiningPlan, as_node, cluster_plan, joining_plan, pool_node_kinds
from bedplate.plan.firewall import (
    ANYWHERE,
    BGP,
    DNS,
    DNS_PROTOCOLS,
    EXPORTER_PORT,
    GPU_EXPORTER_PORT,
    HTTPS,
    IKE,
    KUBELET,
    NFS,
    OVERLAY,
    POD_RULES,
    TCP,
    UDP,
    WORKER_PORTS,
    FirewallRule,
    has_workers,
    metrics_rules,
    pod_rules,
    service_filter_rules,
    ssh_filter_rules,
)
from bedplate.plan.fleet import (
    Access,
    Account,
    Accounts,
    FleetPlan,
    MachinePlan,
    SitePlan,
    cached_on_plan,
)
from bedplate.plan.hub import HubPlan
from bedplate.plan.laptops import LaptopGatewayPlan, Transport, laptop_gateway_at, resolver_region
from bedplate.plan.links import (
    API_PORT,
    connected_places,
    connected_regions,
    fixed_hosts,
    forwards_dns,
    highest_number,
    machine_blocks,
    place_names,
    pods_router,
    region_peers,
    remote_networks,
    ssh_pools,
)
from bedplate.plan.mounts import (
    Mount,
    Share,
    buckets_near,
    clients_of,
    cloud_mounts,
    exports_of,
    shares_of,
    site_mounts,
)
from bedplate.plan.pools import PoolPlan
from bedplate.plan.published import fleet_document
from bedplate.plan.stores import BucketPlan
from bedplate.spec.sites import Use
from bedplate.spec.text import seconds_of


class Platform(StrEnum):
    """The platform of a machine: EC2, or the bare metal of a site."""

    CLOUD = "cloud"
    METAL = "metal"


class NodeRole(StrEnum):
    """The role of a machine in the fleet; a machine may have several roles, or none."""

    WORKBENCH = "workbench"
    WORKER = "worker"
    CONTROL = "control plane"
    ROUTER = "pods router"
    LAPTOPS = "gateway of laptops"
    TUNNELS = "gateway of the site"
    PEERED = "gateway to other regions"
    FILES = "file server"
    HUB = "hub"


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs of a machine; `model` is the name in the fleet file or in EC2."""

    model: str
    count: int


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A machine of the fleet; `name` is its host name and its place, such as `titan-01.cellar`.

    `address` is None where AWS assigns it. `hosts` holds the fixed addresses of each full name in the fleet, and of the
    Kubernetes API. `region` is the machine's region; for a machine of a site it is the home region. `resolvers` are the
    name servers for the fleet's domain; empty until the record holds them, and in the cloud, where the VPC has its own.
    `fabric`: it has EFA interfaces.
    """

    fleet: str
    domain: str
    owner: str
    name: str
    platform: Platform
    roles: frozenset[NodeRole]
    region: str
    address: IPv4Address | None
    accounts: Accounts
    hosts: Mapping[str, tuple[IPv4Address, ...]]
    firewall_rules: tuple[FirewallRule, ...]
    """The inbound rules of its packet filter."""
    pod_rules: tuple[FirewallRule, ...] = ()
    """What it forwards to pods from outside of the cluster."""
    mounts: tuple[Mount, ...] = ()
    shares: tuple[Share, ...] = ()
    buckets: tuple[BucketPlan, ...] = ()
    resolvers: tuple[IPv4Address, ...] = ()
    gpus: Hardware | None = None
    driver: str | None = None
    """The branch of its NVIDIA driver, for a machine with GPUs."""
    software: SoftwareSet = field(default_factory=lambda: SoftwareSet("", {}))
    """The set with the versions and checksums of its software for GPUs and EFA."""
    nvidia_key: str = ""
    """The key of NVIDIA's repository, on a machine with GPUs; empty until a refresh has read it."""
    mig: bool = False
    """Whether its GPUs may be split into instances."""
    frameworks: bool | None = None
    """Whether it has PyTorch, if the file says so."""
    jobs: bool = True
    """Whether people may run jobs on it, if they log in to it."""
    types: tuple[str, ...] = ()
    """The EC2 types of its group; empty for a machine that is no member of one."""
    facts: Mapping[str, InstanceFacts] = field(default_factory=dict)
    """What the catalog says about these types."""
    fabric: bool = False
    scratch: tuple[str, ...] = ()
    """The disks of /scratch, where the file names them; an EC2 instance uses its instance store."""
    expires: str | None = None
    idle: float | None = None
    """The seconds without use after which it ends itself; None if it never does."""
    laptops: LaptopGatewayPlan | None = None
    """The laptop gateway that runs on it."""
    remote_blocks: tuple[IPv4Network, ...] = ()
    """The remote networks behind its tunnels, for a gateway of a site or of a connected region."""
    cluster: ClusterNode | None = None
    """Its part in the Kubernetes cluster; None for a machine outside of it."""
    capacity: CapacityPlan | None = None
    """The plan of the capacity controller, on a member of the control plane."""
    joining: JoiningPlan | None = None
    """The plan of the approver of nodes, on a member of the control plane."""
    hub: HubPlan | None = None
    """The hub, on its machine."""
    images: tuple[str, ...] = ()
    """The container images that the machine pulls before it becomes a machine image."""

    @property
    def host(self) -> str:
        """Its host name, one label."""
        return self.name.partition(".")[0]

    @property
    def place(self) -> str:
        """Its region or site."""
        return self.name.partition(".")[2]

    @property
    def is_observed(self) -> bool:
        """Whether the hub of its fleet reads its metrics."""
        return any(rule.port == EXPORTER_PORT for rule in self.firewall_rules)

    @property
    def full_name(self) -> str:
        """Its name with the fleet's domain."""
        return f"{self.name}.{self.domain}"


def access_on(roles: frozenset[NodeRole]) -> Access:
    """Return what people who are no administrators may do on a machine: they log in to workbenches only.

    The other machines have rights in AWS or on the network that people must not use.
    """
    if NodeRole.WORKBENCH in roles:
        return Access.LOGIN
    return Access.TOKENS if roles & {NodeRole.CONTROL, NodeRole.HUB} else Access.NONE


@cached_on_plan
def _accounts_by_access(plan: FleetPlan) -> Mapping[Access, Accounts]:
    """Return all accounts, for machines on which people without administration have this access."""
    return {
        access: replace(plan.accounts, people=tuple(_limited(person, access) for person in plan.accounts.people))
        for access in Access
    }


def _limited(person: Account, access: Access) -> Account:
    if person.admin or access is Access.LOGIN:
        return person
    return replace(person, access=access, keys=() if access is Access.NONE else person.keys)


_USER_ROLES = frozenset({NodeRole.WORKBENCH, NodeRole.WORKER})


def _mounts(plan: FleetPlan, name: str, platform: Platform, roles: frozenset[NodeRole]) -> tuple[Mount, ...]:
    """Return the mounts of a machine: none without users or workloads, and for the hub of a site that of its backup."""
    backup = plan.hub.backup if plan.hub and NodeRole.HUB in roles else None
    if not roles & _USER_ROLES and backup is None:
        return ()
    label, _, place = name.partition(".")
    return cloud_mounts(plan) if platform is Platform.CLOUD else site_mounts(plan, label, place, backup)


# The listening sockets of OpenVPN, as protocol and port.
OPENVPN = tuple((str(transport), transport.port) for transport in Transport)


def _inbound_rules(plan: FleetPlan, label: str, place: str, roles: frozenset[NodeRole]) -> tuple[FirewallRule, ...]:
    """Return the inbound rules of a machine's packet filter."""
    return (
        *ssh_filter_rules(plan),
        *_compute_rules(plan, place, roles),
        *_control_plane_rules(plan, roles),
        *(service_filter_rules(plan, "hub", "Hub", HTTPS) if NodeRole.HUB in roles else ()),
        *_pod_rules(plan, roles),
        *_overlay_rules(plan, place, roles),
        *_nfs_rules(plan, label, place),
        *_vpn_rules(roles),
        *_dns_rules(plan, roles),
        *_bgp_rules(plan, place, roles),
        *metrics_rules(plan, place, *_metrics_ports(roles)),
    )


def _metrics_ports(roles: frozenset[NodeRole]) -> Iterator[int]:
    yield EXPORTER_PORT
    if roles & {NodeRole.WORKER, NodeRole.CONTROL}:
        yield KUBELET


def _compute_rules(plan: FleetPlan, place: str, roles: frozenset[NodeRole]) -> Iterator[FirewallRule]:
    """Yield the rules among workbenches and workers: all traffic, but none from other hosts of a LAN."""
    if not roles & _USER_ROLES:
        return
    for other in connected_places(plan, place):
        for name, block in machine_blocks(plan, other):
            yield FirewallRule(f"all-from-{name}", f"All from nodes of {other}", block)


def _control_plane_rules(plan: FleetPlan, roles: frozenset[NodeRole]) -> Iterator[FirewallRule]:
    if NodeRole.CONTROL not in roles:
        return
    for member in plan.control_plane.members if plan.control_plane else ():
        yield FirewallRule(f"all-from-{member.name}", f"All from {member.name}", IPv4Network(member.address))
    yield from service_filter_rules(plan, "api", "Kubernetes API", API_PORT)
    for place in (place for place in place_names(plan) if has_workers(plan, place)):
        for name, block in machine_blocks(plan, place, workers=True):
            for service, protocol, port in WORKER_PORTS:
                about = f"{service} from workers of {place}"
                yield FirewallRule(f"{service.lower()}-from-{name}", about, block, protocol, port)


def _pod_rules(plan: FleetPlan, roles: frozenset[NodeRole]) -> Iterator[FirewallRule]:
    """Yield the rules for pods on the same machine: all traffic to a worker, the API to the control plane.

    Packets of pods on other nodes arrive from the address of their node.
    """
    if plan.pods and NodeRole.WORKER in roles:
        yield FirewallRule(POD_RULES[0], "All from pods", plan.pods)
    elif plan.pods and NodeRole.CONTROL in roles:
        yield FirewallRule(POD_RULES[1], "Kubernetes API for pods", plan.pods, TCP, API_PORT)


def _overlay_rules(plan: FleetPlan, place: str, roles: frozenset[NodeRole]) -> Iterator[FirewallRule]:
    """Yield the rules for VXLAN from machines of the cluster: its packets have senders that nothing verifies.

    Those from workers to members are among the rules of the control plane.
    """
    if roles & {NodeRole.WORKER, NodeRole.CONTROL}:
        for member in plan.control_plane.members if plan.control_plane else ():
            block = IPv4Network(member.address)
            yield FirewallRule(f"overlay-from-{member.name}", f"Overlay from {member.name}", block, UDP, OVERLAY)
    if NodeRole.WORKER in roles:
        for other in connected_places(plan, place):
            for name, block in machine_blocks(plan, other, workers=True) if has_workers(plan, other) else ():
                yield FirewallRule(f"overlay-from-{name}", f"Overlay from workers of {other}", block, UDP, OVERLAY)


def _nfs_rules(plan: FleetPlan, label: str, place: str) -> Iterator[FirewallRule]:
    """Yield a rule for each client of a machine's exports."""
    clients = dict(client for export in exports_of(plan, label, place) for client in clients_of(plan, export))
    for name, block in clients.items():
        yield FirewallRule(f"nfs-from-{name}", f"NFS for {name}", block, TCP, NFS)


def _vpn_rules(roles: frozenset[NodeRole]) -> Iterator[FirewallRule]:
    if NodeRole.LAPTOPS in roles:
        for protocol, port in OPENVPN:
            yield FirewallRule(f"openvpn-{protocol}", f"OpenVPN over {protocol}", ANYWHERE.block, protocol, port)
    if roles & {NodeRole.TUNNELS, NodeRole.PEERED}:
        for port in IKE:
            yield FirewallRule(f"ike-{port}", "IKE from tunnel peers", ANYWHERE.block, "udp", port)
    # A gateway in a region has an elastic address, which is NAT: its ESP is in UDP.
    if NodeRole.TUNNELS in roles:
        yield FirewallRule("esp", "ESP from tunnel peers", ANYWHERE.block, "esp")


def _dns_rules(plan: FleetPlan, roles: frozenset[NodeRole]) -> Iterator[FirewallRule]:
    """Yield the rules for DNS from laptops to the gateway that forwards it."""
    if NodeRole.LAPTOPS in roles and forwards_dns(plan):
        for pool in plan.laptops:
            for protocol in DNS_PROTOCOLS:
                name, about = f"dns-{protocol}-from-laptops-{pool.place}", f"DNS from the laptops of {pool.place}"
                yield FirewallRule(name, about, pool.block, protocol, DNS)


def _bgp_rules(plan: FleetPlan, place: str, roles: frozenset[NodeRole]) -> Iterator[FirewallRule]:
    """Yield the rules for BGP from connected sites: both gateways have this filter, so one must admit the other.

    AWS's end of a tunnel needs no rule: it accepts the connection of the site's gateway.
    """
    for direct in plan.site_tunnels_of(place) if NodeRole.TUNNELS in roles else ():
        other = direct.other(place)
        yield FirewallRule(f"bgp-from-{other}", f"BGP from the gateway of {other}", direct.inside, TCP, BGP)


LAPTOP_GATEWAY_HOST = "laptops"
# The identity of a site's gateway at tunnels to other gateways of the fleet.
SITE_GATEWAY_HOST = "tunnels"


# The name of a machine, and a function that plans it: planning every machine of a large fleet is slow.
_NamedPlanner = tuple[str, Callable[[], NodePlan]]


def permanent_nodes(plan: FleetPlan) -> tuple[NodePlan, ...]:
    """Return the permanent machines: those of sites, of the control plane, the hub, and the laptop gateways."""
    return tuple(plan_node() for _, plan_node in _permanent(plan))


def pool_nodes(plan: FleetPlan, catalog: Catalog) -> Iterator[NodePlan]:
    """Yield the machines of SSH pools, up to the highest number of each group in each region."""
    yield from (plan_node() for _, plan_node in _numbered(plan, catalog))


def find_node(plan: FleetPlan, name: str, catalog: Catalog) -> NodePlan:
    """Return the machine of a name, with or without the domain; InputError, with the nearest name, for none."""
    short = name.removesuffix(f".{plan.domain}")
    planners = dict((*_permanent(plan), *_numbered(plan, catalog)))
    if short not in planners:
        raise InputError(f"no machine named {name} in the fleet {plan.name}", fix=_suggestion(plan, short, planners))
    return planners[short]()


def _suggestion(plan: FleetPlan, name: str, names: Iterable[str]) -> str:
    """Return the fix for an unknown name; for a machine of a known group it never names another group."""
    group, _, number = name.partition(".")[0].rpartition("-")
    region = name.partition(".")[2]
    pools = [pool for pool in plan.pools if pool.group == group and number.isdecimal()]
    here = [pool for pool in pools if pool in ssh_pools(plan) and pool.region == region]
    if here:
        most = max(highest_number(plan, pool) for pool in here)
        return f"write {group}-N.{region}, with N from 1 to {most}"
    if pools and pools[0].use.is_worker:
        return f"machines of {group} are named after their instances: use --group {group}"
    if pools:
        regions = sorted({pool.region for pool in pools})
        return f"{group} has machines in {', '.join(regions)}, with names such as {group}-1.{regions[0]}"
    if name in {pool.group for pool in plan.pools}:
        return f"{name} is a group: name a machine that `bedplate node list --live` shows"
    near, host = nearest(name, names) or "", name.partition(".")[0]
    is_clear = near and edits(host, near.partition(".")[0]) <= max(2, len(host) // 2)
    return f"write {near}" if is_clear else "`bedplate node list` shows all machines"


def _permanent(plan: FleetPlan) -> Iterator[_NamedPlanner]:
    for site in plan.sites:
        for machine in site.machines.values():
            yield f"{machine.label}.{site.name}", partial(_site_node, plan, site, machine)
    for member in plan.control_plane.members if plan.control_plane else ():
        roles = {NodeRole.CONTROL, NodeRole.ROUTER} if member == pods_router(plan) else {NodeRole.CONTROL}
        yield (
            member.name,
            partial(_node, plan, member.name, Platform.CLOUD, frozenset(roles), member.address),
        )
    if plan.hub and plan.hub.region:
        hub = frozenset({NodeRole.HUB})
        yield plan.hub.node, partial(_node, plan, plan.hub.node, Platform.CLOUD, hub, plan.hub.address)
    for pool in plan.laptops:
        if pool.place in plan.regions_by_name:
            name = f"{LAPTOP_GATEWAY_HOST}.{pool.place}"
            roles = {NodeRole.LAPTOPS} | ({NodeRole.PEERED} if pool.place in connected_regions(plan) else set())
            yield name, partial(_node, plan, name, Platform.CLOUD, frozenset(roles), None)


def _numbered(plan: FleetPlan, catalog: Catalog) -> Iterator[_NamedPlanner]:
    for pool in ssh_pools(plan):
        for number in range(1, highest_number(plan, pool) + 1):
            name = f"{pool.group}-{number}.{pool.region}"
            yield name, partial(pool_node, plan, pool, name, catalog)


def _site_node(plan: FleetPlan, site: SitePlan, machine: MachinePlan) -> NodePlan:
    roles = _site_roles(plan, site, machine)
    node = _node(plan, f"{machine.label}.{site.name}", Platform.METAL, roles, machine.address)
    gpus = machine.spec.gpus
    return replace(
        node,
        firewall_rules=(*node.firewall_rules, *(metrics_rules(plan, site.name, GPU_EXPORTER_PORT) if gpus else ())),
        resolvers=plan.record.resolvers.get(resolver_region(plan, site.name), ()),
        gpus=Hardware(gpus.model, gpus.count) if gpus else None,
        driver=(machine.spec.driver or plan.image.driver) if gpus else None,
        nvidia_key=plan.catalog.nvidia_key if gpus else "",
        mig=machine.spec.mig,
        frameworks=machine.spec.frameworks,
        jobs=machine.spec.jobs,
        scratch=machine.spec.scratch,
    )


def _role_of(use: Use) -> NodeRole:
    match use:
        case Use.SSH:
            return NodeRole.WORKBENCH
        case Use.KUBERNETES:
            return NodeRole.WORKER


def _site_roles(plan: FleetPlan, site: SitePlan, machine: MachinePlan) -> frozenset[NodeRole]:
    use = machine.spec.use
    roles = {_role_of(use)} if use else set()
    if machine.label == site.gateway:
        roles.add(NodeRole.TUNNELS)
        roles.update(NodeRole.LAPTOPS for pool in plan.laptops if pool.place == site.name)
    if exports_of(plan, machine.label, site.name):
        roles.add(NodeRole.FILES)
    if plan.hub and plan.hub.node == f"{machine.label}.{site.name}":
        roles.add(NodeRole.HUB)
    return frozenset(roles)


def pool_node(plan: FleetPlan, pool: PoolPlan, name: str, catalog: Catalog) -> NodePlan:
    """Return a machine of a pool under a name, with the GPUs of the pool's first type."""
    facts = catalog.types.get(pool.types[0])
    gpus = Hardware(facts.gpu.name, facts.gpu.count) if facts and facts.gpu else None
    node = _node(plan, name, Platform.CLOUD, frozenset({_role_of(pool.use)}), None)
    fabric = pool.fabric is not None
    driver, cluster = (pool.group_spec.driver or plan.image.driver) if gpus else None, cluster_plan(plan)
    return replace(
        node,
        firewall_rules=(*node.firewall_rules, *(metrics_rules(plan, pool.region, GPU_EXPORTER_PORT) if gpus else ())),
        gpus=gpus,
        driver=driver,
        nvidia_key=catalog.nvidia_key if gpus else "",
        types=pool.types,
        facts={name: catalog.types[name] for name in pool.types if name in catalog.types},
        fabric=fabric,
        mig=pool.group_spec.mig,
        frameworks=pool.group_spec.frameworks,
        jobs=pool.group_spec.jobs,
        owner=pool.owner,
        expires=pool.group_spec.expires,
        idle=seconds_of(pool.group_spec.idle) if pool.group_spec.idle and ends_itself(pool) else None,
        cluster=pool_node_kinds(cluster, pool, catalog) if cluster and pool.use.is_worker else None,
    )


def _node(
    plan: FleetPlan, name: str, platform: Platform, roles: frozenset[NodeRole], address: IPv4Address | None
) -> NodePlan:
    label, _, place = name.partition(".")
    region = place if platform is Platform.CLOUD else plan.home.name
    return NodePlan(
        fleet=plan.name,
        domain=plan.domain,
        owner=plan.owner,
        name=name,
        platform=platform,
        roles=roles,
        region=region,
        address=address,
        accounts=_accounts_by_access(plan)[access_on(roles)],
        hosts=fixed_hosts(plan),
        firewall_rules=_inbound_rules(plan, label, place, roles),
        # A gateway of a site that is a worker forwards what its LAN and laptops send to pods.
        pod_rules=pod_rules(plan) if NodeRole.ROUTER in roles or {NodeRole.WORKER, NodeRole.TUNNELS} <= roles else (),
        mounts=_mounts(plan, name, platform, roles),
        shares=shares_of(plan, label, place) if platform is Platform.METAL else (),
        buckets=buckets_near(plan, region) if roles & _USER_ROLES else (),
        software=plan.catalog.software_set(plan.software),
        laptops=laptop_gateway_at(plan, place) if NodeRole.LAPTOPS in roles else None,
        remote_blocks=tuple(_remote_blocks(plan, place, roles)),
        capacity=worker_capacity(plan) if NodeRole.CONTROL in roles else None,
        # No machine of a site is changed before the cluster exists.
        cluster=as_node(plan, name) if platform is Platform.CLOUD or plan.record.authority else None,
        joining=joining_plan(plan) if NodeRole.CONTROL in roles else None,
        hub=_hub(plan, plan.hub) if plan.hub and NodeRole.HUB in roles else None,
    )


def _hub(plan: FleetPlan, hub: HubPlan) -> HubPlan:
    """Return the hub with what its own machine knows of the fleet."""
    sites = [(site, machine) for site in plan.sites for machine in site.machines.values()]
    machines = {
        f"{machine.label}.{site.name}": _watched(site.name, machine.address, _site_roles(plan, site, machine))
        for site, machine in sites
    }
    for member in plan.control_plane.members if plan.control_plane else ():
        machines[member.name] = _watched(plan.home.name, member.address, frozenset({NodeRole.CONTROL}))
    if hub.region:
        machines[hub.node] = _watched(hub.region, hub.address, frozenset({NodeRole.HUB}))
    for pool in plan.laptops:
        if pool.place in plan.regions_by_name:
            name, roles = f"{LAPTOP_GATEWAY_HOST}.{pool.place}", frozenset({NodeRole.LAPTOPS})
            machines[name] = _watched(pool.place, None, roles)
    # The hours of others are those of AWS: a small group is no fault outside of them.
    always = (pool for pool in plan.pools if pool.min and not pool.group_spec.schedule)
    groups = [{"group": pool.group, "place": pool.region, "min": pool.min} for pool in always]
    return replace(hub, published=fleet_document(plan), watched={"machines": machines, "groups": groups})


# The word of monitoring for a role; of several, the first here.
_WORDS = {
    NodeRole.WORKBENCH: "workbench",
    NodeRole.WORKER: "worker",
    NodeRole.CONTROL: "control",
    NodeRole.HUB: "hub",
    NodeRole.TUNNELS: "gateway",
    NodeRole.LAPTOPS: "gateway",
    NodeRole.FILES: "files",
}


def _watched(place: str, address: IPv4Address | None, roles: frozenset[NodeRole]) -> Mapping[str, str | None]:
    role = next((word for role, word in _WORDS.items() if role in roles), "other")
    return {"place": place, "address": str(address) if address else None, "role": role}


def _remote_blocks(plan: FleetPlan, place: str, roles: frozenset[NodeRole]) -> Iterator[IPv4Network]:
    if NodeRole.TUNNELS in roles:
        yield from (network.block for network in remote_networks(plan, place))
    if NodeRole.PEERED in roles:
        yield from (block for peer in region_peers(plan, place) for block in peer.blocks)
