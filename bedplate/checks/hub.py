"""The hub: its place, machine, memory and backups, who reaches it, and who hears of its alerts."""

from collections.abc import Iterator
from functools import partial

from bedplate.catalog.tables import InstanceFacts
from bedplate.checks.cluster import check_offer
from bedplate.checks.diagnostics import Context, one_of
from bedplate.checks.groups import check_known_type
from bedplate.checks.ladders import check_declared_region
from bedplate.checks.storage import check_declared_machine
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.reachability import EndpointKind, endpoints, find_endpoint, is_routed
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.fleet import Hub, Monitoring
from bedplate.spec.sites import NfsStore

LEAST_MEMORY_MIB = 4096
# MiB that metrics may have, series of a machine and of a GPU, and KiB of each in Prometheus: estimates, not measured.
_FREE_MIB, _NODE_SERIES, _GPU_SERIES, _SERIES_KIB = 1024, 900, 110, 2
_OF_REGIONS, _OF_SITES = ("type", "disk"), ("machine", "backup")


def check_hub(context: Context) -> Iterator[Fault]:
    """Yield faults of the hub's place and machine."""
    hub = context.fleet.hub
    yield from _check_monitoring(context)
    if hub is None:
        return
    if (hub.region is None) == (hub.site is None) or (hub.site and not hub.machine):
        message = "the hub has a region and a site" if hub.region else "the hub has no region, or site and machine"
        yield fault(HUB_PLACE, "hub", message)
        return
    place, others = ("region", _OF_SITES) if hub.region else ("site", _OF_REGIONS)
    for name in others:
        if context.declared.has("hub", name):
            message = f"a hub with a {place} has no `{name}`"
            yield fault(HUB_PLACE, f"hub.{name}", message, f"delete {name}")
    yield from _check_instance(context, hub, hub.region) if hub.region else _check_machine(context, hub, hub.site or "")


def _check_instance(context: Context, hub: Hub, region: str) -> Iterator[Fault]:
    yield from check_declared_region(context, "hub.region", region)
    yield from check_known_type(context.catalog, "hub.type", hub.type)
    yield from check_offer(context, "hub.type", hub.type, region)
    facts = context.catalog.types.get(hub.type)
    if facts and facts.memory_mib < LEAST_MEMORY_MIB:
        yield fault(SMALL_HUB, "hub.type", f"{hub.type} has {facts.memory_mib} MiB")
    elif facts and facts.memory_mib < (needed := LEAST_MEMORY_MIB - _FREE_MIB + _metrics_mib(context)):
        message = f"{hub.type} has {facts.memory_mib} MiB, and the metrics of the largest fleet need {needed} MiB"
        yield fault(SMALL_FOR_METRICS, "hub.type", message)


def _metrics_mib(context: Context) -> int:
    """Return the memory of Prometheus with all machines that the file allows."""
    fleet, types = context.fleet, context.catalog.types
    machines = [
        (group.nodes.max, max(map(_gpus, map(types.get, group.types)), default=0)) for group in fleet.groups.values()
    ]
    machines += [
        (1, machine.gpus.count if machine.gpus else 0)
        for site in fleet.sites.values()
        for machine in site.machines.values()
    ]
    return round(sum(count * (_NODE_SERIES + gpus * _GPU_SERIES) for count, gpus in machines) * _SERIES_KIB / 1024)


def _gpus(facts: InstanceFacts | None) -> int:
    return max(facts.gpu.count, 1) if facts and facts.gpu else 0


def _check_monitoring(context: Context) -> Iterator[Fault]:
    monitoring, people = context.fleet.monitoring, context.fleet.people
    if context.fleet.hub is None and monitoring != Monitoring():
        yield fault(MONITORING_WITHOUT_HUB, "monitoring", "the file has no hub")
    able = [name for name, person in people.items() if person.notify]
    for index, name in enumerate(monitoring.notify):
        if name not in able:
            message = f"{name} has no `notify`" if name in people else f"{name} is no person"
            fix = f"write notify: mail or webhook for {name}" if name in people else one_of(able)
            yield fault(NOBODY_NOTIFIED, f"monitoring.notify.{index}", message, fix)


def _check_machine(context: Context, hub: Hub, site: str) -> Iterator[Fault]:
    """Yield faults of the machine of a site, and of its backup."""
    label, fleet = hub.machine or "", context.fleet
    yield from check_declared_machine(context, "hub", site, label)
    if site not in fleet.sites or label not in fleet.sites[site].machines:
        return
    if use := fleet.sites[site].machines[label].use:
        yield fault(HUB_WITH_USE, "hub.machine", f"{label} has `use: {use}`")
    stores = {
        name: store for name, store in fleet.storage.items() if isinstance(store, NfsStore) and store.site == site
    }
    duties = [f"is the gateway of {site}"] if fleet.sites[site].gateway.machine == label else []
    duties += [f"exports {store.export}" for store in stores.values() if store.machine == label]
    if duties:
        yield fault(HUB_SHARES_MACHINE, "hub.machine", f"{label} {' and '.join(duties)}")
    others = [name for name, store in stores.items() if store.machine != label]
    if hub.backup not in others:
        missing = (
            f"{hub.backup} is no nfs store of another machine in {site}" if hub.backup else "the hub has no backup"
        )
        yield fault(HUB_BACKUP, "hub.backup", missing, one_of(others).replace("write ", "write backup: ", 1))
    if fleet.groups:
        yield fault(HUB_OUTSIDE_AWS, "hub.site", f"{label} has no role in AWS, and the file has cloud machines")


_MACHINES, _LAPTOPS = (EndpointKind.NODES, EndpointKind.LAN), EndpointKind.LAPTOPS


def check_hub_paths(plan: FleetPlan) -> Iterator[Fault]:
    """Yield a fault for places with machines, and for laptops, without a network path to the hub and back."""
    if plan.hub is None:
        return
    hub = find_endpoint(plan, plan.hub.node)
    used = {*(pool.region for pool in plan.pools), *(site.name for site in plan.sites if site.used_blocks())}
    clients = (end for end in endpoints(plan) if (end.kind in _MACHINES and end.place in used) or end.kind is _LAPTOPS)
    cut = (end for end in clients if not (is_routed(plan, end, hub) and is_routed(plan, hub, end)))
    if away := sorted({f"{end.kind} of {end.place}" for end in cut}):
        yield fault(HUB_NOT_REACHED, "hub", f"no path to the hub from {', '.join(away)}")
    if not plan.laptops and not plan.sites:
        fix = "add vpn: {laptops: {gateways: [{region: %s}]}}" % plan.home.name  # noqa: UP031  braces
        yield fault(HUB_NOT_REACHED, "hub", "no laptop reaches the hub: the file has no VPN and no site", fix)


CHECKS = (check_hub,)
_rule = partial(Rule, section="hub")
HUB_PLACE = _rule(
    "E650",
    "The hub is an instance in a region, or a machine of a site.",
    "write either {region: REGION} or {site: SITE, machine: MACHINE}",
    at_key=True,
)
SMALL_HUB = _rule("E651", "MLflow and PostgreSQL need 4 GiB.", "write a larger type, such as m7i.large")
SMALL_FOR_METRICS = _rule(
    "W662", "Prometheus holds the series of the last hours in memory.", "write a larger type, such as m7i.xlarge"
)
_monitoring_rule = partial(Rule, section="monitoring", at_key=True)
MONITORING_WITHOUT_HUB = _monitoring_rule(
    "E661", "The hub keeps metrics and sends alerts.", "add the key `hub`, or delete monitoring"
)
NOBODY_NOTIFIED = _monitoring_rule("E663", "Alerts reach people who get messages.", "write people with `notify`")
HUB_WITH_USE = _rule(
    "E652",
    "Whoever runs programs on the hub could read its keys and change all records.",
    "write a machine without `use`",
    at_key=True,
)
HUB_SHARES_MACHINE = _rule(
    "E653",
    "A fault of one service then stops the other, and the hub's disk fills up for both.",
    "write a machine that serves nothing else",
    allowable=True,
    at_key=True,
)
HUB_BACKUP = _rule(
    "E654",
    "Records need a copy on another machine of the hub's site.",
    "write an nfs store of another machine of the site",
    allowable=True,
    at_key=True,
)
HUB_NOT_REACHED = _rule(
    "E655",
    "Machines that run jobs and people's laptops need a path to the hub and back.",
    "move the hub, or connect the places: `interconnect: transit`",
    allowable=True,
    at_key=True,
    late=True,
)
HUB_OUTSIDE_AWS = _rule(
    "W656",
    "A hub at a site has no role in AWS: it does not know the machines of groups, and no alarm watches it.",
    "write {region: REGION}, or allow it with a reason",
    allowable=True,
    at_key=True,
)
