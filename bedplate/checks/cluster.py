"""The cluster and laptop gateways: workers, control plane, and the places of gateways."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations

from bedplate.catalog import Catalog
from bedplate.catalog.tables import read_kernel
from bedplate.checks.diagnostics import Context, one_of, repeated
from bedplate.checks.groups import check_known_type
from bedplate.checks.ladders import TYPE_NOT_OFFERED, check_declared_region
from bedplate.checks.storage import check_declared_site
from bedplate.plan import FleetPlan
from bedplate.plan.allocation import joined_sites, pods_size
from bedplate.plan.cluster import NODE_PODS
from bedplate.plan.registries import is_in_ecr
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.network import Interconnect

LEAST_VCPUS, LEAST_MEMORY_MIB = 2, 2048


def check_workers(context: Context) -> Iterator[Fault]:
    """Yield faults of workers in a fleet without a cluster."""
    if "kubernetes" in context.declared.raw:
        return
    fleet = context.fleet
    uses = [(f"groups.{name}.use", group.use) for name, group in fleet.groups.items()]
    for site_name, site in fleet.sites.items():
        machines = site.machines.items()
        uses += [(f"sites.{site_name}.machines.{name}.use", machine.use) for name, machine in machines if machine.use]
    for key, use in uses:
        if use.is_worker:
            yield fault(NO_CLUSTER, key, "the file has no kubernetes section for this worker", _cluster_fix(context))


def _cluster_fix(context: Context) -> str:
    newest = max(context.catalog.releases, key=read_kernel, default="VERSION")
    return f"add kubernetes: {{version: '{newest}', control_plane: {{type: m7i.large}}}}, or write use: ssh"


def check_job_images(context: Context) -> Iterator[Fault]:
    """Yield faults of images for the jobs of a group or site that has no workers, or does not exist."""
    workers = [name for name, group in context.fleet.groups.items() if group.use.is_worker]
    sites = context.fleet.sites.items()
    workers += [name for name, site in sites if any(machine.is_worker for machine in site.machines.values())]
    for name in context.fleet.jobs.images.keys() - workers:
        what = f"no group or site with workers is named {name}"
        yield fault(JOB_IMAGE_GROUP, f"jobs.images.{name}", what, one_of(workers))


def check_registries(context: Context) -> Iterator[Fault]:
    """Yield faults of registries that nothing uses or that have one name, and of images that a site cannot pull."""
    jobs = context.fleet.jobs
    names = ((f"jobs.registries.{index}", url.partition("://")[2]) for index, url in enumerate(jobs.registries))
    for key, name, first in repeated(names):
        yield fault(DUPLICATE_REGISTRY, key, f"{name} is also {first}")
    for name in ("ecr", "registries") if context.fleet.kubernetes is None else ():
        if getattr(jobs, name):
            yield fault(REGISTRY_UNUSED, f"jobs.{name}", "the file has no kubernetes section")
    for name in jobs.images.keys() & context.fleet.sites.keys():
        if is_in_ecr(jobs.images[name]):
            fix = f"write an image of {' or '.join(jobs.registries) or 'a registry at the site'}"
            what = f"machines of {name} have no role in AWS"
            yield fault(IMAGE_UNREACHABLE, f"jobs.images.{name}", what, fix)


def check_control_plane(context: Context) -> Iterator[Fault]:
    """Yield faults of the number and type of the control plane's machines."""
    if context.fleet.kubernetes is None:
        return
    plane, key = context.fleet.kubernetes.control_plane, "kubernetes.control_plane"
    if plane.count % 2 == 0:
        message = f"{plane.count} machines tolerate no more failures than {plane.count - 1}"
        yield fault(EVEN_CONTROL_PLANE, f"{key}.count", message, f"write {plane.count - 1} or {plane.count + 1}")
    yield from check_known_type(context.catalog, f"{key}.type", plane.type)
    facts = context.catalog.types.get(plane.type)
    if facts and (facts.vcpus < LEAST_VCPUS or facts.memory_mib < LEAST_MEMORY_MIB):
        message = f"{plane.type} has {facts.vcpus} vCPUs and {facts.memory_mib} MiB"
        yield fault(SMALL_CONTROL_PLANE, f"{key}.type", message)
    home = next((name for name, region in context.fleet.regions.items() if region.home), "")
    yield from check_offer(context, f"{key}.type", plane.type, home)


def check_laptop_gateways(context: Context) -> Iterator[Fault]:
    """Yield faults of laptop gateways without a place, or with a place that has one already."""
    laptops = context.fleet.vpn.laptops if context.fleet.vpn else None
    gateways = enumerate(laptops.gateways if laptops else ())
    keyed = tuple((f"vpn.laptops.gateways.{index}", gateway) for index, gateway in gateways)
    for key, gateway in keyed:
        if (gateway.region is None) == (gateway.site is None):
            message = "the gateway has no place" if gateway.region is None else "the gateway has a region and a site"
            yield fault(GATEWAY_PLACE, key, message)
        if gateway.region:
            yield from check_declared_region(context, f"{key}.region", gateway.region)
        if gateway.site:
            yield from check_declared_site(context, f"{key}.site", gateway.site)
    for key, gateway, _ in repeated(keyed):
        yield fault(DUPLICATE_GATEWAY, key, f"{gateway.region or gateway.site} already has a gateway")


def check_offer(context: Context, key: str, type_name: str, region: str) -> Iterator[Fault]:
    """Yield a fault if a region does not offer the type of permanent machines."""
    catalog = context.catalog
    if region in catalog.regions and type_name in catalog.types and not catalog.offered(type_name, region):
        yield fault(TYPE_NOT_OFFERED, key, f"{region} does not offer {type_name}")


def check_pods(context: Context) -> Iterator[Fault]:
    """Yield a fault if the block for pods has fewer parts than the cluster may have nodes."""
    fleet = context.fleet
    if fleet.kubernetes is None:
        return
    size, widest = pods_size(fleet, fleet.kubernetes), fleet.network.supernet.prefixlen + 1
    nodes = sum(count for _, count in _node_counts(context))
    # A block outside these limits has a fault of its own.
    if not widest <= size <= NODE_PODS or nodes <= 1 << (NODE_PODS - size):
        return
    most = ", ".join(f"{count} of {name}" for name, count in _node_counts(context) if count)
    message = f"a /{size} for pods holds {1 << (NODE_PODS - size)} nodes; the file allows {nodes}: {most}"
    wider = NODE_PODS - (nodes - 1).bit_length()
    fix = f"write pods: /{wider}, or lower the maximums" if wider >= widest else ""
    yield fault(PODS_BLOCK_TOO_SMALL, "kubernetes.pods", message, fix)


def _node_counts(context: Context) -> Iterator[tuple[str, int]]:
    """Yield the most nodes of each group, of each site and of the control plane."""
    fleet = context.fleet
    for name, group in fleet.groups.items():
        if group.use.is_worker:
            yield name, group.nodes.max
    for name, site in fleet.sites.items():
        yield name, sum(machine.is_worker for machine in site.machines.values())
    yield "the control plane", fleet.kubernetes.control_plane.count if fleet.kubernetes else 0


def check_worker_paths(context: Context) -> Iterator[Fault]:
    """Yield faults of sites with workers that have no path to the workers of another site."""
    fleet = context.fleet
    if fleet.network.interconnect is not Interconnect.NONE:
        return
    sites = [name for name, site in fleet.sites.items() if any(machine.is_worker for machine in site.machines.values())]
    joined = {frozenset(pair) for pair in joined_sites(fleet)}
    for first, second in combinations(sites, 2):
        if frozenset((first, second)) not in joined:
            fix = f"write joins: [{first}] in the gateway of {second}, or `interconnect: transit`"
            yield fault(
                WORKERS_NOT_CONNECTED,
                f"sites.{second}.gateway",
                f"workers of {second} have no path to those of {first}",
                fix,
            )


_MEMBER_FIX = (
    "write a type that these zones offer; or, before the first `bedplate up`, "
    "delete these machines from `addresses` in fleet.lock and run `bedplate plan --write`"
)


def check_members(plan: FleetPlan, catalog: Catalog) -> Iterator[Fault]:
    """Yield a fault if a zone of the control plane or the hub, which the lock keeps, does not offer its type."""
    for key, type_name, region, zones in _fixed_machines(plan):
        if type_name not in catalog.types or not catalog.has_letters_of(plan.account, region):
            continue
        offered = catalog.offered(type_name, region)
        if names := [f"{name} ({zone})" for name, zone in zones if zone not in offered]:
            message = f"{type_name} is not offered in the zones of {', '.join(names)}"
            yield fault(TYPE_NOT_OFFERED, key, message, _MEMBER_FIX)


def _fixed_machines(plan: FleetPlan) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Yield the key, the type and the region of machines with fixed addresses, and each name with its zone."""
    if plane := plan.control_plane:
        zones = [(member.name, member.zone) for member in plane.members]
        yield "kubernetes.control_plane.type", plane.type, plan.home.name, zones
    if (hub := plan.hub) and hub.region:
        yield "hub.type", hub.type, hub.region, [(hub.node, hub.zone)]


CHECKS = (
    check_workers,
    check_job_images,
    check_registries,
    check_control_plane,
    check_laptop_gateways,
    check_pods,
    check_worker_paths,
)
NO_CLUSTER = Rule("E602", "Workers need a cluster.", "add the kubernetes section, or write use: ssh")
JOB_IMAGE_GROUP = Rule("E647", "Only jobs on workers run in containers.", "delete it", section="jobs", at_key=True)
IMAGE_UNREACHABLE = Rule("E657", "Only a role in AWS can pull images of ECR.", "write another image", section="jobs")
DUPLICATE_REGISTRY = Rule("E659", "A registry has one address, with http or https.", "delete one", section="jobs")
REGISTRY_UNUSED = Rule("E658", "Only machines of the cluster pull images.", "delete it", section="jobs", at_key=True)
_cluster_rule = partial(Rule, section="kubernetes")
EVEN_CONTROL_PLANE = _cluster_rule(
    "E603", "etcd's quorum gains nothing from an even number of machines.", "write 1, 3, 5 or 7", "etcd FAQ"
)
SMALL_CONTROL_PLANE = _cluster_rule(
    "E604", "An API server and etcd need 2 vCPUs and 2 GiB.", "write a larger type, such as m7i.xlarge", "kubeadm"
)
PODS_BLOCK_TOO_SMALL = _cluster_rule(
    "E640",
    "Each node gets a /24 of the block for pods. A node without one runs no pod.",
    "write a wider supernet, or lower the maximums",
    at_key=True,
)
_site_rule = partial(Rule, section="sites")
WORKERS_NOT_CONNECTED = _site_rule(
    "E641",
    "Pods of every node must reach each other: services choose endpoints anywhere.",
    "join the gateways of the sites, or write `interconnect: transit`",
    allowable=True,
)
_vpn_rule = partial(Rule, section="vpn")
GATEWAY_PLACE = _vpn_rule("E608", "A gateway has one place.", "write either region or site")
DUPLICATE_GATEWAY = _vpn_rule("E609", "A place needs only one gateway.", "delete one of the two")
