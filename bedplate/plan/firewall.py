"""The rules of AWS security groups, derived from the plan: which blocks may open connections to which machines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.fleet import FleetPlan, LaptopPool, RegionPlan
from bedplate.plan.links import API_PORT, is_connected, node_blocks, place_names
from bedplate.plan.space import nodes_space

TCP, UDP = "tcp", "udp"
DNS, DNS_PROTOCOLS = 53, ("udp", "tcp")
SSH, HTTPS, NFS, API = 22, 443, 2049, API_PORT
# IKE, and ESP in UDP behind NAT. Source: RFC 7296 section 2, RFC 3948.
IKE = (500, 4500)
# Source: RFC 4271 section 8.2.1.
BGP = 179
# Ports of the control plane for workers besides the API, as name, protocol and port. Packets of pods arrive as VXLAN on
# Linux's default port; their source ports vary, so connection tracking matches no reply. metrics-server calls every
# kubelet.
OVERLAY = 8472
KUBELET = 10250
WORKER_PORTS = (("Overlay", UDP, OVERLAY), ("Kubelet", TCP, KUBELET))
# The exporters of a machine and of its GPUs, which only the hub may ask.
METRICS_PORTS = EXPORTER_PORT, GPU_EXPORTER_PORT = 9100, 9400


@dataclass(frozen=True, slots=True)
class FirewallRule:
    """Connections from or to a block, of one protocol and port; without both, all traffic.

    `name` identifies the rule and never changes; `about` is its description in the AWS console. `last` is the last port
    of a range.
    """

    name: str
    about: str
    block: IPv4Network
    protocol: str | None = None
    port: int | None = None
    last: int | None = None


ANYWHERE = FirewallRule("to-anywhere", "To anywhere", IPv4Network("0.0.0.0/0"))


def node_rules(plan: FleetPlan, region: RegionPlan) -> tuple[FirewallRule, ...]:
    """Return the rules of the security group of a region's nodes.

    SSH comes from laptops and sites, never from the internet. Nodes of connected regions are trusted like those of this
    region; their edge subnets are not. The quota of 60 rules a group is enough for 18 regions.
    """
    return (
        *_from_people(plan, "SSH", SSH),
        *_from_nodes(_connected_regions(plan, region)),
        *metrics_rules(plan, region.name, *METRICS_PORTS, *((KUBELET,) if has_workers(plan, region.name) else ())),
    )


def control_rules(plan: FleetPlan) -> tuple[FirewallRule, ...]:
    """Return the rules of the control plane's group, except the rules with the node group of its region as source.

    A region with workers needs nine rules: the quota of 60 rules a group is enough for 6 regions.
    """
    api = [*_from_people(plan, "API", API), *_from_nodes(_connected_regions(plan, plan.home), "API", TCP, API)]
    if plan.hub and plan.hub.region == plan.home.name:
        api.append(FirewallRule("api-from-hub", "API from the hub", IPv4Network(plan.hub.address), TCP, API))
    hub = metrics_rules(plan, plan.home.name, EXPORTER_PORT, KUBELET)
    return (*_from_people(plan, "SSH", SSH), *api, *_from_remote_workers(plan), *hub)


def hub_rules(plan: FleetPlan, region: RegionPlan) -> tuple[FirewallRule, ...]:
    """Return the rules of the hub's group, except the rule with the node group of its region as source.

    A region needs three rules: the quota of 60 rules a group is enough for 18 regions.
    """
    nodes = _from_nodes(_connected_regions(plan, region), "Hub", TCP, HTTPS)
    return (*_from_people(plan, "SSH", SSH), *_from_people(plan, "Hub", HTTPS), *nodes)


def metrics_rules(plan: FleetPlan, place: str, *ports: int) -> Iterator[FirewallRule]:
    """Yield the rules that admit the hub to exporters in a place, if a network path leads there from the hub."""
    hub = plan.hub
    if hub and (hub.place == place or is_connected(plan, hub.place, place)):
        for port in ports:
            yield FirewallRule(f"metrics-{port}-from-hub", "Metrics for the hub", IPv4Network(hub.address), TCP, port)


# TCP ports of pods and services for laptops and sites. None of them is a port of the control plane besides the API,
# because security groups cannot tell a pod from the router that forwards its packets.
POD_PORTS = (range(80, 81), range(HTTPS, HTTPS + 1), range(3000, 9100))


def pod_rules(plan: FleetPlan) -> tuple[FirewallRule, ...]:
    """Return the rules of the pods router: ports of pods for laptops and sites, cluster DNS for resolvers at home."""
    return (*_pages(plan), *_cluster_dns(plan))


# The names of a machine's rules for its own pods.
POD_RULES = ("all-from-pods", "api-from-pods")


def pods_of(rules: Iterable[FirewallRule]) -> IPv4Network | None:
    """Return the block of pods in a machine's rules; None for a machine without pods."""
    return next((rule.block for rule in rules if rule.name in POD_RULES), None)


def _pages(plan: FleetPlan) -> Iterator[FirewallRule]:
    laptops = ((f"laptops-{pool.place}", f"the laptops of {pool.place}", pool.block) for pool in plan.laptops)
    sites = ((f"site-{name}", f"the site {place}", block) for place, name, block in _site_networks(plan))
    for name, people, block in (*laptops, *sites):
        for ports in POD_PORTS:
            rule_name, about = f"pods-{ports.start}-from-{name}", f"Pods from {people}"
            yield FirewallRule(rule_name, about, block, TCP, ports.start, ports.stop - 1)


def _cluster_dns(plan: FleetPlan) -> Iterator[FirewallRule]:
    for protocol in DNS_PROTOCOLS:
        yield FirewallRule(f"dns-{protocol}", "Names of services", plan.home.block, protocol, DNS)


def storage_rules(plan: FleetPlan, region: RegionPlan) -> tuple[FirewallRule, ...]:
    """Return the rules of a region's storage group, except the one with the node group as source.

    Nodes of other regions may mount; edge subnets may not. The quota of 60 rules a group is enough for 20 regions.
    """
    return tuple(_from_nodes(_connected_regions(plan, region), "NFS", TCP, NFS))


def has_workers(plan: FleetPlan, place: str) -> bool:
    """Return whether a region or a site has Kubernetes workers."""
    if any(pool.region == place and pool.use.is_worker for pool in plan.pools):
        return True
    site = plan.sites_by_name.get(place)
    return site is not None and any(machine.spec.is_worker for machine in site.machines.values())


def ssh_filter_rules(plan: FleetPlan) -> Iterator[FirewallRule]:
    """Yield the rules of a machine's packet filter for SSH from laptops, sites and nodes."""
    for pool in plan.laptops:
        yield FirewallRule(
            f"ssh-from-laptops-{pool.place}", f"SSH from the laptops of {pool.place}", pool.block, TCP, SSH
        )
    for place in place_names(plan):
        for name, block in node_blocks(plan, place):
            yield FirewallRule(f"ssh-from-{name}", f"SSH from {place}", block, TCP, SSH)


def service_filter_rules(plan: FleetPlan, name: str, service: str, port: int) -> Iterator[FirewallRule]:
    """Yield the rules of a packet filter for a service of all nodes, sites and laptops; pods have a node's address."""
    for place in place_names(plan):
        for source, block in node_blocks(plan, place):
            yield FirewallRule(f"{name}-from-{source}", f"{service} for {place}", block, TCP, port)
    for pool in plan.laptops:
        about = f"{service} for laptops of {pool.place}"
        yield FirewallRule(f"{name}-from-laptops-{pool.place}", about, pool.block, TCP, port)


def region_transit_rules(region: RegionPlan) -> tuple[FirewallRule, ...]:
    """Return the rules for traffic from the nodes of a region to its gateway, on the way to other regions."""
    return tuple(
        FirewallRule(f"all-from-nodes-{block.prefixlen}", f"All from nodes of {region.name}", block)
        for block in nodes_space(region.block)
    )


def laptop_peer_rules(places: Iterable[LaptopPool]) -> tuple[FirewallRule, ...]:
    """Return the rules for traffic from laptops of other gateways to the laptops of a gateway."""
    return tuple(
        FirewallRule(f"all-from-laptops-{pool.place}", f"All from the laptops of {pool.place}", pool.block)
        for pool in places
    )


def _from_people(plan: FleetPlan, service: str, port: int) -> Iterator[FirewallRule]:
    """Yield the rules from laptops and sites to one port."""
    name = service.lower()
    for pool in plan.laptops:
        about = f"{service} from the laptops of {pool.place}"
        yield FirewallRule(f"{name}-from-laptops-{pool.place}", about, pool.block, TCP, port)
    for place, network, block in _site_networks(plan):
        yield FirewallRule(f"{name}-from-site-{network}", f"{service} from the site {place}", block, TCP, port)


def _site_networks(plan: FleetPlan) -> Iterator[tuple[str, str, IPv4Network]]:
    """Yield the site, the name and the block of each network of a site."""
    yield from ((site.name, name, block) for site in plan.sites for name, block in site.networks.items())


def _from_remote_workers(plan: FleetPlan) -> Iterator[FirewallRule]:
    """Yield the rules from workers of other regions and of sites to the control plane.

    A site has one rule a port for each of its networks: rules for each machine could exceed the quota of 60. The packet
    filter of each control-plane machine admits only the site's workers.
    """
    regions = [region for region in _connected_regions(plan, plan.home) if has_workers(plan, region.name)]
    sites = [network for network in _site_networks(plan) if has_workers(plan, network[0])]
    for service, protocol, port in WORKER_PORTS:
        for place, network, block in sites:
            name, about = f"{service.lower()}-from-site-{network}", f"{service} from the site {place}"
            yield FirewallRule(name, about, block, protocol, port)
        yield from _from_nodes(regions, service, protocol, port)


def _connected_regions(plan: FleetPlan, region: RegionPlan) -> tuple[RegionPlan, ...]:
    """Return the other regions that a network path connects to a region."""
    others = (other for other in plan.regions if other.name != region.name)
    return tuple(other for other in others if is_connected(plan, region.name, other.name))


def _from_nodes(
    regions: Iterable[RegionPlan], service: str = "All", protocol: str | None = None, port: int | None = None
) -> Iterator[FirewallRule]:
    """Yield the rules from the nodes of regions: three blocks a region, the same whatever its zones."""
    for region in regions:
        about = f"{service} from nodes of {region.name}"
        for block in nodes_space(region.block):
            yield FirewallRule(
                f"{service.lower()}-from-nodes-{region.name}-{block.prefixlen}", about, block, protocol, port
            )
