"""The reachability policy of a fleet: which connections between its endpoints the rules of the stacks must allow.

It follows from the plan alone. `bedplate.plan.reachability` says which endpoints the network connects.
"""

from bedplate.plan import FleetPlan
from bedplate.plan.firewall import DNS, DNS_PROTOCOLS, HTTPS, POD_PORTS, TCP, WORKER_PORTS, has_workers
from bedplate.plan.links import API_PORT, connected_regions, pods_router
from bedplate.plan.reachability import SSH, Endpoint, EndpointKind, Flow, endpoints, is_routed

API, HUB = Flow("tcp", API_PORT), Flow("tcp", HTTPS)
_PEOPLE = (EndpointKind.LAN, EndpointKind.LAPTOPS)


def is_reachable(plan: FleetPlan, source: Endpoint, target: Endpoint, flow: Flow = SSH) -> bool:
    """Return whether a connection from one endpoint to another must succeed.

    An edge subnet holds only gateways. A laptop in a region's pool accepts connections only from other laptops, if the
    file enables that. Where a security group admits a packet for a laptop, the gateway's packet filter must reject it:
    see `is_refused_by_gateway`. The two OpenVPN ports, open to all, are not covered. A site's LAN has its own policy.
    """
    if not is_routed(plan, source, target) or source.kind is EndpointKind.EDGE:
        return False
    if target.kind is EndpointKind.PODS:
        return _is_forwarded_to_pods(plan, source, flow) or is_reachable(plan, source, _member(plan), flow)
    if target.kind is EndpointKind.NODES:
        is_person = source.kind in _PEOPLE and flow == SSH
        # Nodes of another region are admitted by their blocks, in which the hub is, too.
        is_remote_hub = source.kind is EndpointKind.HUB and source.place != target.place
        return source.kind in (EndpointKind.NODES, EndpointKind.CONTROL) or is_person or is_remote_hub
    if target.kind is EndpointKind.HUB:
        is_remote = source.kind is EndpointKind.CONTROL and source.place != target.place
        flows = {EndpointKind.NODES: (HUB,), **dict.fromkeys(_PEOPLE, (HUB, SSH))}
        return flow in flows.get(source.kind, (HUB,) if is_remote else ())
    if target.kind is EndpointKind.CONTROL:
        allowed = {EndpointKind.NODES: (API,), EndpointKind.HUB: (API,), **dict.fromkeys(_PEOPLE, (API, SSH))}
        is_remote_hub = source.kind is EndpointKind.HUB and source.place != target.place
        is_worker = source.kind in (EndpointKind.NODES, EndpointKind.LAN) or is_remote_hub
        is_worker = is_worker and has_workers(plan, source.place)
        worker_flows = [Flow(protocol, port) for _, protocol, port in WORKER_PORTS] if is_worker else []
        return source.kind is EndpointKind.CONTROL or flow in (*allowed.get(source.kind, ()), *worker_flows)
    if target.kind is EndpointKind.LAPTOPS:
        return _are_laptops_connected(plan, source, target) or target.place not in plan.regions_by_name
    return target.kind in (EndpointKind.LAN, EndpointKind.INTERNET)


def _is_forwarded_to_pods(plan: FleetPlan, source: Endpoint, flow: Flow) -> bool:
    """Return whether the security group for pods accepts a packet."""
    is_page = source.kind in _PEOPLE and flow.protocol == TCP and any(flow.port in ports for ports in POD_PORTS)
    is_question = flow.port == DNS and flow.protocol in DNS_PROTOCOLS and source.place == plan.home.name
    return is_page or (is_question and source.kind in (EndpointKind.NODES, EndpointKind.CONTROL, EndpointKind.HUB))


def is_refused_by_gateway(plan: FleetPlan, source: Endpoint, target: Endpoint, flow: Flow = SSH) -> bool:
    """Return whether AWS delivers a packet to a gateway whose packet filter must reject it.

    The gateway of a connected region accepts all that its region's nodes send through it, and a security group cannot
    match the target. So packets for a laptop reach the gateway, and so do packets out of a tunnel. In the same way
    packets to ports of pods reach the pods router itself.
    """
    router = pods_router(plan)
    if router and target.name == router.name:
        is_admitted = is_routed(plan, source, target) and _is_forwarded_to_pods(plan, source, flow)
        return is_admitted and not is_reachable(plan, source, target, flow)
    is_via_gateway = target.kind is EndpointKind.LAPTOPS and target.place in connected_regions(plan)
    if _are_laptops_connected(plan, source, target):
        return False
    return is_via_gateway and source.kind is not EndpointKind.EDGE and is_routed(plan, source, target)


def _are_laptops_connected(plan: FleetPlan, source: Endpoint, target: Endpoint) -> bool:
    """Return whether both are laptops, and the file enables connections between laptops."""
    are_laptops = source.kind is EndpointKind.LAPTOPS and target.kind is EndpointKind.LAPTOPS
    return are_laptops and any(pool.between for pool in plan.laptops)


def _member(plan: FleetPlan) -> Endpoint:
    return next(endpoint for endpoint in endpoints(plan) if endpoint.kind is EndpointKind.CONTROL)
