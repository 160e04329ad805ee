"""The plan of the Kubernetes cluster, one for all regions and sites, and how machines join it.

Members have what the approver must know in their node document, so that it needs no fleet file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

from bedplate.catalog import Catalog
from bedplate.catalog.keys import KeyFacts
from bedplate.plan.faults import NAME_IN_CLUSTER, PlanFaults
from bedplate.plan.firewall import has_workers
from bedplate.plan.fleet import Accounts, ControlPlaneMember, FleetPlan, MachinePlan, SitePlan, cached_on_plan
from bedplate.plan.links import API_PORT, api_name, place_names
from bedplate.plan.pools import PoolPlan
from bedplate.plan.registration import (
    INSTANCE_TYPE,
    ZONE,
    Registration,
    machine_registration,
    place_labels,
    pool_registration,
    registration,
)
from bedplate.rules import fault
from bedplate.spec.fleet import Fleet
from bedplate.spec.network import Interconnect
from bedplate.tunnels import TUNNEL_MTU

# The largest packet in a VPC, and between VPCs over transit gateways or peering connections.
# Source: Amazon EC2 user guide, "Network maximum transmission unit"; AWS Transit Gateway quotas; read 2026-11.
_VPC_MTU, _BETWEEN_VPCS_MTU = 9001, 8500
# The link-local address of NodeLocal DNSCache on every node. Source: Kubernetes documentation, NodeLocal DNSCache.
NODE_DNS = IPv4Address("169.254.20.10")
# kubeadm gives cluster DNS the tenth address of the services.
_DNS_NUMBER = 10
PODS_DOMAIN = "pods"
"""The subdomain of the fleet's domain with the services of the cluster, as laptops and sites name them."""
_ETCD_PEER_PORT = 2380
ETCD_QUOTA = 8 * 1024**3
"""The largest size that etcd suggests; the volume of 32 GiB also holds snapshots. Source: etcd.io, "System limits"."""
KEY_SET = "openid/v1/jwks"
"""The object with the public keys of tokens, below the address of the issuer."""
# Each node gets a /24 of the block for pods.
NODE_PODS = 24


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The cluster: `version` and `kubelet` are the versions of the control plane and of workers, such as 1.36.3.

    `containerd` is the version of every machine's package, which contains runc.

    `api` is the DNS name of the API. `authority` is the certificate of the cluster's authority in PEM, empty before
    `bedplate kube init`. `etcd` is the id of the etcd cluster, empty before it has started. `mtu` is the largest packet
    on every path between nodes; packets of pods are 50 bytes smaller. `mirrors` are the addresses that are asked before
    a registry. `issuer` is the address of the keys of service account tokens.
    """

    fleet: str
    domain: str
    version: str
    kubelet: str
    containerd: str
    api: str
    pods: IPv4Network
    services: IPv4Network
    members: tuple[ControlPlaneMember, ...]
    mtu: int
    authority: str = ""
    etcd: str = ""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    issuer: str = ""
    keys: Mapping[str, KeyFacts] = field(default_factory=dict)
    """The keys of the apt repositories with the packages of every machine."""

    @property
    def endpoint(self) -> str:
        """The name and port of the API."""
        return f"{self.api}:{API_PORT}"

    @property
    def key_set(self) -> str:
        """The address of the public keys of service account tokens."""
        return f"{self.issuer}/{KEY_SET}"

    @property
    def dns(self) -> IPv4Address:
        """The address of the service of cluster DNS."""
        return self.services[_DNS_NUMBER]

    @property
    def initial_cluster(self) -> str:
        """All members of etcd, as its flag wants them."""
        return initial_cluster(self.members)

    @property
    def short_domain(self) -> str:
        """The domain of services for laptops and sites: `<service>.<namespace>.pods.<domain>`."""
        return f"{PODS_DOMAIN}.{self.domain}"

    @property
    def api_names(self) -> tuple[str, ...]:
        """Every name and address of the API servers, for their certificates."""
        names = (f"{member.name}.{self.domain}" for member in self.members)
        return (self.api, *names, *(str(member.address) for member in self.members))


def peer_url(member: ControlPlaneMember) -> str:
    """Return the address of a member's etcd for the other members."""
    return f"https://{member.address}:{_ETCD_PEER_PORT}"


def initial_cluster(members: Iterable[ControlPlaneMember]) -> str:
    """Return these members of etcd, as its flag wants them: `control-1.us-west-2=https://10.64.32.16:2380,...`."""
    return ",".join(f"{member.name}={peer_url(member)}" for member in members)


@cached_on_plan
def cluster_plan(plan: FleetPlan) -> ClusterPlan | None:
    """Return the plan of the cluster; None for a fleet without one."""
    control = plan.control_plane
    if control is None or plan.pods is None or plan.services is None:
        return None
    return ClusterPlan(
        fleet=plan.name,
        domain=plan.domain,
        version=control.version,
        kubelet=plan.image.kubernetes or control.version,
        containerd=control.containerd,
        api=api_name(plan),
        pods=plan.pods,
        services=plan.services,
        members=control.members,
        mtu=overlay_mtu(plan),
        authority=plan.record.authority,
        etcd=plan.record.etcd,
        mirrors=control.mirrors,
        issuer=f"https://{plan.issuer_bucket.host}",
        keys=plan.catalog.keys,
    )


def overlay_mtu(plan: FleetPlan) -> int:
    """Return the largest packet on every path between nodes: to the home region, to workers of regions and of sites.

    AWS's gateways drop a larger packet of the overlay without an answer that its sender acts on.
    """
    places = [place for place in place_names(plan) if has_workers(plan, place) and place != plan.home.name]
    if not places:
        return _VPC_MTU
    has_tunnel = plan.interconnect is Interconnect.NONE or any(place in plan.sites_by_name for place in places)
    return TUNNEL_MTU if has_tunnel else _BETWEEN_VPCS_MTU


@dataclass(frozen=True, slots=True)
class NodeKind:
    """The resources that kubelet registers on one EC2 type, and the millicores that it reserves."""

    registration: Registration
    reserved_cpu: int


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A machine as a node of the cluster.

    `name` is its node name; of a pool's machines it is the pattern `GROUP-*.REGION`, in which the machine puts the end
    of its instance id. `kinds` are by EC2 type, under "" for any other machine. `grace` is how many seconds its pods
    have to end before the machine stops.
    """

    cluster: ClusterPlan
    name: str
    kinds: Mapping[str, NodeKind]
    grace: int
    address: IPv4Address | None = None
    member: ControlPlaneMember | None = None

    @property
    def is_instance(self) -> bool:
        """Whether it is an EC2 instance."""
        return self.member is not None or self.address is None

    @property
    def provider(self) -> str:
        """The provider id of a machine of a site; an EC2 instance reads its own from the metadata service."""
        host, _, place = self.name.partition(".")
        return f"bedplate://{place}/{host}"

    @property
    def drain(self) -> int:
        """How many seconds its pods have to leave before those that remain get `grace`."""
        return self.grace if self.grace == _SPOT_GRACE else _DRAIN


# kubelet registers it, and the cluster removes it after the machine has passed its health gate.
GATE_TAINT = "bedplate/gate=pending:NoSchedule"
_CONTROL_TAINT = "node-role.kubernetes.io/control-plane=:NoSchedule"
# AWS stops a spot instance two minutes after its notice, of which draining takes the first.
_SPOT_GRACE, _GRACE = 60, 240
# The lifecycle hook of other workers waits 900 s.
_DRAIN = 600
# Of a machine whose number of cores the plan does not know.
_RESERVED_CPU = 250


def member_node(plan: FleetPlan, cluster: ClusterPlan, member: ControlPlaneMember) -> ClusterNode:
    """Return a control-plane machine as a node."""
    labels = place_labels(plan.home.name, member.zone)
    kind = NodeKind(Registration(labels, (_CONTROL_TAINT,), {}), _RESERVED_CPU)
    return ClusterNode(cluster, member.name, MappingProxyType({"": kind}), _GRACE, member.address, member)


def site_node(cluster: ClusterPlan, site: SitePlan, machine: MachinePlan) -> ClusterNode:
    """Return a worker of a site as a node."""
    kind = NodeKind(_gated(machine_registration(site, machine)), _RESERVED_CPU)
    name = f"{machine.label}.{site.name}"
    return ClusterNode(cluster, name, MappingProxyType({"": kind}), _GRACE, machine.address)


def pool_node_kinds(cluster: ClusterPlan, pool: PoolPlan, catalog: Catalog) -> ClusterNode:
    """Return the machines of a pool as nodes, without the labels of type and zone, which each machine adds."""
    kinds = dict(_kinds(pool, catalog))
    grace = _SPOT_GRACE if pool.market.is_spot else _GRACE
    return ClusterNode(cluster, f"{pool.group}-*.{pool.region}", MappingProxyType(kinds), grace)


def as_node(plan: FleetPlan, name: str) -> ClusterNode | None:
    """Return a permanent machine of the cluster as a node, by its name; None for any other machine."""
    cluster = cluster_plan(plan)
    if cluster is None:
        return None
    for member in cluster.members:
        if member.name == name:
            return member_node(plan, cluster, member)
    host, _, place = name.partition(".")
    site = plan.sites_by_name.get(place)
    machine = site.machines.get(host) if site else None
    return site_node(cluster, site, machine) if site and machine and machine.spec.is_worker else None


def _kinds(pool: PoolPlan, catalog: Catalog) -> Iterator[tuple[str, NodeKind]]:
    for name in pool.types:
        facts = catalog.types.get(name)
        reserved = _reserved_cpu(facts.vcpus) if facts else _RESERVED_CPU
        yield name, NodeKind(_gated(_without_own(registration(pool, name, "", catalog))), reserved)
    if pool.group_spec.similar:
        yield "", NodeKind(_gated(_without_own(pool_registration(pool, catalog))), _RESERVED_CPU)


def _gated(common: Registration) -> Registration:
    return replace(common, taints=(*common.taints, GATE_TAINT))


def _without_own(common: Registration) -> Registration:
    """Return the registration without what a machine reads from the metadata service."""
    labels = {key: value for key, value in common.labels.items() if key not in {INSTANCE_TYPE, ZONE}}
    return replace(common, labels=labels)


# Millicores that GKE and EKS keep for kubelet and containerd: of the first core, the second, the next two, and of each
# further one. Source: GKE documentation, "Plan node sizes"; bootstrap.sh of Amazon's EKS images; read 2026-11.
_FIRST_CORE, _SECOND_CORE, _NEXT_CORES, _FURTHER_CORES = 60, 10, 5, 2.5


def _reserved_cpu(cores: int) -> int:
    shares = [_FIRST_CORE, _SECOND_CORE, _NEXT_CORES, _NEXT_CORES] + [_FURTHER_CORES] * cores
    return round(sum(shares[:cores]))


PEOPLE = "people"
"""The namespace of people's accounts, and the label of what they have."""


def person_name(name: str) -> str:
    """Return the name of a person in the cluster, where names have no underscore. `check` refuses two of one name."""
    return name.replace("_", "-").strip("-")


def check_departed(fleet: Fleet, accounts: Accounts) -> None:
    """Raise PlanFaults for people who would own the namespace of somebody who was removed."""
    departed = {person_name(name): name for name in accounts.departed}
    labels = ((name, person_name(name)) for name in (fleet.people if fleet.kubernetes else ()))
    faults = tuple(
        fault(
            NAME_IN_CLUSTER,
            f"people.{name}",
            f"{departed[label]} was removed; the cluster's namespace {label} may still hold their work",
            f"choose a name that differs from {departed[label]} in letters or digits",
        )
        for name, label in labels
        if label in departed
    )
    if faults:
        raise PlanFaults(faults)


def minor_version(version: str) -> int:
    """Return 36 of `1.36` or `v1.36.3`."""
    return int(version.split(".")[1])


def has_version(actual: str, planned: str) -> bool:
    """Return whether a version, such as `v1.36.3`, is the planned one; a planned minor version accepts any patch."""
    return f"{actual.removeprefix('v')}.".startswith(f"{planned}.")


# The groups of bootstrap tokens. The API server accepts a-z, 0-9, colons and hyphens after the prefix.
BOOTSTRAPPERS = "system:bootstrappers:bedplate"
"""Whoever has a token: may create requests for certificates, which only the approver approves."""
WORKERS = f"{BOOTSTRAPPERS}:workers"
"""The token of workers in the cloud, which prove by their key which instance they are."""
# Digits of the instance id at the end of a node name.
_DIGITS = 8
_POOL_NODE = re.compile(rf"(?P<group>[a-z0-9-]+)-[0-9a-f]{{{_DIGITS}}}\.(?P<region>[a-z0-9-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class JoiningPlan:
    """`buckets` holds the bucket with the status of nodes by region, `fixed` each permanent node's address by name.

    `etcd` is the id of the fleet's etcd cluster, empty before it has started.
    """

    fleet: str
    home: str
    buckets: Mapping[str, str]
    fixed: Mapping[str, IPv4Address]
    etcd: str = ""

    @property
    def parameter(self) -> str:
        """The SSM parameter with the token of workers in the cloud."""
        return join_parameter(self.fleet)


@cached_on_plan
def joining_plan(plan: FleetPlan) -> JoiningPlan:
    """Return what the approver of a fleet knows."""
    names = [member.name for member in plan.control_plane.members] if plan.control_plane else []
    names += [f"{label}.{site.name}" for site in plan.sites for label in site.machines]
    nodes = filter(None, (as_node(plan, name) for name in names))
    return JoiningPlan(
        fleet=plan.name,
        home=plan.home.name,
        buckets=MappingProxyType({region.name: plan.nodes_bucket(region.name).name for region in plan.regions}),
        fixed=MappingProxyType({node.name: node.address for node in nodes if node.address}),
        etcd=plan.record.etcd,
    )


def join_parameter(fleet: str) -> str:
    """Return the name of a fleet's parameter: every node may read `/FLEET/`, and no fleet has a dot in its name."""
    return f"/{fleet}.workers/join"


def pool_node_name(group: str, instance: str, region: str) -> str:
    """Return the node name of an instance, such as `train-9f3c21aa.us-west-2`."""
    return f"{group}-{instance[-_DIGITS:]}.{region}"


def region_of_node(name: str) -> str | None:
    """Return the region of a node of a pool; None for a name that no instance of a pool has."""
    match = _POOL_NODE.fullmatch(name)
    return match["region"] if match else None


def machine_group(name: str) -> str:
    """Return the group of the token of one machine of a site, which joins only that machine."""
    host, _, place = name.partition(".")
    return f"{BOOTSTRAPPERS}:machine:{place}:{host}"
