"""Who may open a connection to whom, as rules derived from the plan."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.fleet import FleetPlan, LaptopPool, RegionPlan
from bedplate.plan.links import API_PORT, is_led
from bedplate.plan.space import nodes_space
from bedplate.spec.sites import Use

TCP, UDP = "tcp", "udp"
DNS, DNS_PROTOCOLS = 53, ("udp", "tcp")
SSH, HTTPS, NFS, API = 22, 443, 2049, API_PORT
# What workers send to the control plane beside the API, as name, protocol and port. Packets of pods arrive as VXLAN, at
# Linux's own port for it; their source ports vary, so connection tracking matches no answer. metrics-server calls every
# kubelet.
WORKER_PORTS = (("Overlay", UDP, 8472), ("Kubelet", TCP, 10250))


@dataclass(frozen=True, slots=True)
class Rule:
    """Connections from or to a block, of one protocol and to one port; of every kind where both are left out.

    `name` says from or to whom, and never changes; `about` says it to whoever reads the console.
    """

    name: str
    about: str
    block: IPv4Network
    protocol: str | None = None
    port: int | None = None


ANYWHERE = Rule("to-anywhere", "To anywhere", IPv4Network("0.0.0.0/0"))


def node_rules(plan: FleetPlan, region: RegionPlan) -> tuple[Rule, ...]:
    """Return the rules of a region's nodes' group.

    People log in from laptops and sites, never from the internet. Nodes of other regions are trusted like those of
    this one; what stands in another region's edge is not. At 60 rules a group, that is enough for 18 regions.
    """
    return (*_people(plan, "SSH", SSH), *_from_nodes(_led(plan, region)))


def control_rules(plan: FleetPlan) -> tuple[Rule, ...]:
    """Return the rules of the control plane's group, except those that name the nodes' group of its own region.

    A region with workers needs nine rules: at 60 rules a group, that is enough for 6 regions.
    """
    far = _from_nodes(_led(plan, plan.home), "API", TCP, API)
    return (*_people(plan, "SSH", SSH), *_people(plan, "API", API), *far, *_far_workers(plan))


def storage_rules(plan: FleetPlan, region: RegionPlan) -> tuple[Rule, ...]:
    """Return the rules of a region's storage group, except the one that names the nodes' group.

    Nodes of other regions mount; edge subnets must not. At 60 rules a group, that is enough for 20 regions.
    """
    return tuple(_from_nodes(_led(plan, region), "NFS", TCP, NFS))


def has_workers(plan: FleetPlan, place: str) -> bool:
    """Return whether a region or a site has Kubernetes workers."""
    if any(pool.region == place and pool.use is Use.KUBERNETES for pool in plan.pools):
        return True
    return any(site.name == place and site.used_for(Use.KUBERNETES) for site in plan.sites)


def joined_rules(region: RegionPlan) -> tuple[Rule, ...]:
    """Return the rules by which a gateway takes from its region's nodes what it is to carry to others."""
    return tuple(
        Rule(f"all-from-nodes-{block.prefixlen}", f"All from nodes of {region.name}", block)
        for block in nodes_space(region.block)
    )


def met_rules(places: Iterable[LaptopPool]) -> tuple[Rule, ...]:
    """Return the rules by which a gateway takes what laptops of other gateways send to its own."""
    return tuple(
        Rule(f"all-from-laptops-{pool.place}", f"All from the laptops of {pool.place}", pool.block) for pool in places
    )


def _people(plan: FleetPlan, what: str, port: int) -> Iterator[Rule]:
    """Yield the rules for whoever sits at a laptop or on a site, to one port."""
    name = what.lower()
    for pool in plan.laptops:
        yield Rule(
            f"{name}-from-laptops-{pool.place}", f"{what} from the laptops of {pool.place}", pool.block, TCP, port
        )
    for site in plan.sites:
        yield Rule(f"{name}-from-site-{site.name}", f"{what} from the site {site.name}", site.lan, TCP, port)


def _far_workers(plan: FleetPlan) -> Iterator[Rule]:
    """Yield the rules for workers of other regions and of sites, to the control plane.

    A site has one rule a port, for its LAN: a rule for each machine could exceed a group's 60. The packet filter of
    each member lets in the site's workers only.
    """
    regions = [region for region in _led(plan, plan.home) if has_workers(plan, region.name)]
    sites = [site for site in plan.sites if has_workers(plan, site.name)]
    for what, protocol, port in WORKER_PORTS:
        for site in sites:
            name, about = f"{what.lower()}-from-site-{site.name}", f"{what} from the site {site.name}"
            yield Rule(name, about, site.lan, protocol, port)
        yield from _from_nodes(regions, what, protocol, port)


def _led(plan: FleetPlan, region: RegionPlan) -> tuple[RegionPlan, ...]:
    """Return the other regions from which anything leads to a region."""
    return tuple(each for each in plan.regions if each.name != region.name and is_led(plan, region.name, each.name))


def _from_nodes(
    regions: Iterable[RegionPlan], what: str = "All", protocol: str | None = None, port: int | None = None
) -> Iterator[Rule]:
    """Yield the rules for the nodes of regions: three blocks a region, which no new zone changes."""
    for region in regions:
        about = f"{what} from nodes of {region.name}"
        for block in nodes_space(region.block):
            yield Rule(f"{what.lower()}-from-nodes-{region.name}-{block.prefixlen}", about, block, protocol, port)
