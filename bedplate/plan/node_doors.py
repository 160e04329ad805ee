"""Whom a machine's own packet filter lets in, from the plan: what no rule names is dropped."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network

from bedplate.plan.beyond import places
from bedplate.plan.door import ANYWHERE, NFS, SSH, TCP, WORKER_PORTS, Rule, has_workers
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.hostnames import API_PORT
from bedplate.plan.joint import is_led
from bedplate.plan.laptops import Transport
from bedplate.plan.node import Duty
from bedplate.plan.node_stores import clients, exports_of
from bedplate.plan.zones import nodes_space
from bedplate.spec.site import Use

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
