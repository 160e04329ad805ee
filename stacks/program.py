"""The stacks of a fleet: `shared`, one for each region, and `links`; and the choice by the name of a stack.

`shared` declares roles, keys and SSM parameters; the stack of a region its network, security groups, storage and pools,
and in the home region the control plane; `links` declares private DNS, peerings, VPN connections and replication, which
need resources of several regions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pulumi
from pulumi_aws.ssm.parameter import Parameter, ParameterArgs

from bedplate.catalog import Catalog
from bedplate.errors import InputError
from bedplate.load import load_fleet
from bedplate.lock import check_recorded, lock_path, read_lock
from bedplate.permissions import GATEWAY, HUB, member_kind, node_kinds, replicated_stores
from bedplate.plan.cost import bill
from bedplate.plan.fleet import Accounts, FleetPlan, RegionPlan
from bedplate.plan.issuer import has_pod_roles, issuer_documents
from bedplate.plan.links import connected_regions, has_inbound_resolver, has_outbound_resolver, has_transit, pods_router
from bedplate.plan.planner import baked_image, gateway_zone, required_images
from bedplate.plan.pools import PoolPlan, pool_interfaces
from bedplate.plan.stacks import LINKS, PRICE, SHARED, chosen_parts
from bedplate.spec.network import Interconnect
from stacks.alarms import AccountBudget, AlarmTopic
from stacks.compute.machines import ControlInputs, ControlMachines, HubMachine, LaptopGateway, MachineInputs
from stacks.compute.pool import Pool, PoolInputs
from stacks.compute.template import NodeBase, Start, first_boot, image_of
from stacks.dns import (
    Addresses,
    FleetRecords,
    InboundResolver,
    NodeNameRegistration,
    OutboundResolver,
    PrivateZone,
    ReverseZone,
    ZoneAssociations,
    home_records,
    remote_records,
    reverse_names,
)
from stacks.identity.pods import PodRoles, TokenIssuer
from stacks.identity.policy import FleetKey, NodeRole, launch_statements, profile_arn_of
from stacks.network.firewall import ControlFirewall, NodeFirewall, PodsFirewall, StorageFirewall
from stacks.network.transit import (
    RegionStack,
    Transit,
    TransitPeering,
    VpcPeering,
    declare_transit_routes,
    pairs,
    region_stacks,
)
from stacks.network.vpc import FlowRole, NatEgress, Network, ServiceEndpoints
from stacks.options import (
    child_options,
    name_tag,
    output_of,
    part_of,
    region_options,
    stack_reference,
    tag_with_resource_name,
)
from stacks.storage.buckets import HubBucket, NodesBucket, ReplicationRole, StoreBucket, StoreReplication
from stacks.storage.files import FileSystemInputs, SharedFileSystem
from stacks.storage.repositories import ImageRepositories
from stacks.vpn import GatewayPeering, PeeredGateway, declare_sites


def declare_region(plan: FleetPlan, region: RegionPlan) -> None:
    """Declare all resources of one region."""
    shared = stack_reference(plan, SHARED)
    # Roles permit calls in named regions: instances of another one cannot report ready, and are replaced without end.
    output_of(shared, "regions", region.name)
    options = region_options(plan, region.name, region.name)
    network = Network(plan, region, options)
    alarms = AlarmTopic(plan, region.name, options)
    pulumi.export("alarm_topic_arn", alarms.arn)
    egress = NatEgress(plan, region, network, alarms.arn, options)
    firewall = NodeFirewall(plan, region, network.vpc_id, options)
    _export_network(network, egress, firewall)
    if has_transit(plan):
        transit = Transit(plan, region, network, options)
        pulumi.export("transit_gateway_id", transit.gateway_id)
        pulumi.export("transit_table_id", transit.table_id)
    if has_inbound_resolver(plan, region):
        pulumi.export("resolver_addresses", InboundResolver(plan, region, network, options).addresses)
    if plan.endpoints:
        ServiceEndpoints(plan, region, network, options)
    if has_outbound_resolver(plan, region):
        OutboundResolver(plan, region, network, options)
    pulumi.export(PRICE, bill(plan, plan.catalog).regions[region.name].min)
    context = RegionContext(plan, region, network, egress, firewall, alarms.arn, shared, options)
    zone = _declare_home(context) if region.home else None
    gateway = _declare_laptops(context)
    _declare_hub(context)
    files = _declare_storage(context)
    _declare_pools(context)
    if zone:
        addresses: dict[str, Addresses] = {store: [*system.addresses] for store, system in files.items()}
        names = home_records(plan, gateway.private_ip if gateway else None, addresses)
        FleetRecords(plan, zone.zone_id, names, options)


@dataclass(frozen=True, slots=True)
class RegionContext:
    """The resources of a region that its storage and machines depend on."""

    plan: FleetPlan
    region: RegionPlan
    network: Network
    egress: NatEgress
    firewall: NodeFirewall
    topic_arn: pulumi.Output[str]
    shared: pulumi.StackReference
    options: pulumi.ResourceOptions

    def machine(self, kind: str, zone: str, egress: pulumi.Resource) -> MachineInputs:
        """Return the resources that a permanent machine of a kind depends on."""
        return MachineInputs(zone, self.network, egress, profile_arn_of(self.shared, kind), self.topic_arn)


def _export_network(network: Network, egress: NatEgress, firewall: NodeFirewall) -> None:
    zones = sorted(network.zones)
    pulumi.export("vpc_id", network.vpc_id)
    pulumi.export("edge_table_id", network.edge_table_id)
    pulumi.export("edge_subnet_ids", {zone: network.zones[zone].edge_id for zone in zones})
    pulumi.export("node_subnet_ids", network.node_subnet_ids)
    pulumi.export("node_table_ids", {zone: network.zones[zone].nodes_table_id for zone in zones})
    pulumi.export("node_group_id", firewall.group_id)
    pulumi.export("nat_addresses", egress.addresses)


def _declare_home(context: RegionContext) -> PrivateZone:
    """Declare the resources of the home region only: the private zone and the control plane."""
    plan, network, options = context.plan, context.network, context.options
    zone = PrivateZone(plan, network.vpc_id, options)
    pulumi.export("zone_id", zone.zone_id)
    NodeNameRegistration(plan, zone.zone_id, context.shared, options)
    if plan.control_plane:
        firewall = ControlFirewall(plan, network.vpc_id, context.firewall, options)
        members = plan.control_plane.members
        inputs = {member.name: context.machine(member_kind(member), member.zone, context.egress) for member in members}
        pods = PodsFirewall(plan, network.vpc_id, options).group_id if pods_router(plan) else None
        machines = ControlMachines(plan, plan.control_plane, ControlInputs(inputs, firewall, pods), options)
        pulumi.export("control_plane", machines.group_names)
    return zone


def _declare_laptops(context: RegionContext) -> LaptopGateway | None:
    """Declare the VPN gateway for laptops if the region has a laptop pool."""
    plan, region = context.plan, context.region
    pool = next((pool for pool in plan.laptops if pool.place == region.name), None)
    if pool is None:
        return None
    inputs = context.machine(GATEWAY, gateway_zone(region, plan.catalog), context.network.internet_gateway)
    gateway = LaptopGateway(plan, pool, inputs, context.options)
    pulumi.export("laptop_gateway", gateway.outputs)
    return gateway


def _declare_hub(context: RegionContext) -> None:
    """Declare the hub if the region has it."""
    plan = context.plan
    if plan.hub and plan.hub.region == context.region.name:
        inputs = context.machine(HUB, plan.hub.zone, context.egress)
        machine = HubMachine(plan, plan.hub, inputs, context.firewall.group, context.options)
        pulumi.export("hub", machine.group_name)


def _declare_storage(context: RegionContext) -> dict[str, SharedFileSystem]:
    """Declare the data key, file systems and buckets of the region; return the file systems."""
    plan, options = context.plan, context.options
    key = FleetKey(plan, "data", options, users=launch_statements(plan, context.region.name))
    files = _declare_files(context, key)
    _, _, planned_buckets = plan.stores
    buckets = {
        bucket.store: StoreBucket(plan, bucket, key.arn, options)
        for bucket in planned_buckets
        if bucket.region == context.region.name
    }
    NodesBucket(plan, plan.nodes_bucket(context.region.name), key.arn, options)
    if plan.hub and plan.hub.bucket and plan.hub.region == context.region.name:
        HubBucket(plan, plan.hub.bucket, key.arn, options)
    if plan.jobs.ecr:
        ImageRepositories(plan, context.region, options)
    if not context.region.home:
        FleetParameters(plan.name, boot_parameters(plan), key.arn, options)
    pulumi.export("data_key_arn", key.arn)
    pulumi.export("files", {store: system.outputs for store, system in sorted(files.items())})
    pulumi.export("buckets", {store: bucket.name for store, bucket in sorted(buckets.items())})
    return files


def _declare_files(context: RegionContext, key: FleetKey) -> dict[str, SharedFileSystem]:
    """Declare the file systems of the region with their security group."""
    plan, network, options = context.plan, context.network, context.options
    systems = [files for files in plan.files if files.region == context.region.name]
    if not systems:
        return {}
    firewall = StorageFirewall(plan, context.region, network.vpc_id, context.firewall, options)
    inputs = FileSystemInputs(key.arn, firewall.group_id, network.node_subnet_ids)
    return {files.store: SharedFileSystem(plan, files, inputs, options) for files in systems}


def _declare_pools(context: RegionContext) -> None:
    plan = context.plan
    pools = {
        pool.name: Pool(plan, pool, _pool_inputs(context, pool), context.options)
        for pool in plan.pools
        if pool.region == context.region.name
    }
    pulumi.export("pools", {name: pool.group_name for name, pool in sorted(pools.items())})


def _pool_inputs(context: RegionContext, pool: PoolPlan) -> PoolInputs:
    base = NodeBase(profile_arn_of(context.shared, pool.use.value), context.firewall.group_id)
    catalog = context.plan.catalog
    baked = baked_image(context.plan, pool, catalog)
    image = baked or image_of(context.plan, pool.region, pool.types, catalog)
    start = Start(image, pool_interfaces(pool, catalog), first_boot(context.plan, pool))
    return PoolInputs(start, base, context.network.node_subnet_ids, context.egress, context.topic_arn, catalog)


_INTERCONNECTS: Mapping[Interconnect, Callable[[FleetPlan, RegionStack, RegionStack], object]] = MappingProxyType(
    {Interconnect.TRANSIT: TransitPeering, Interconnect.PEERING: VpcPeering}
)


def declare_links(plan: FleetPlan) -> None:
    """Declare the resources between regions: DNS, peerings, VPN connections and replication."""
    stacks = region_stacks(plan)
    _declare_dns(plan, stacks)
    if has_transit(plan):
        for stack in stacks.values():
            declare_transit_routes(plan, stack)
    interconnect = _INTERCONNECTS.get(plan.interconnect)
    if interconnect is not None:
        for requester, accepter in pairs(stacks):
            interconnect(plan, requester, accepter)
    _declare_gateway_peerings(plan, stacks)
    declare_sites(plan, stacks)
    for buckets in replicated_stores(plan).values():
        StoreReplication(plan, buckets, stacks)
    pulumi.export("regions", sorted(stacks))


def _declare_gateway_peerings(plan: FleetPlan, stacks: Mapping[str, RegionStack]) -> None:
    """Declare the peering of regions whose VPN gateways connect them with tunnels."""
    joined = {name: PeeredGateway(plan, stacks[name]) for name in sorted(connected_regions(plan))}
    for first, second in pairs(joined):
        GatewayPeering(plan, first, second)


def _declare_dns(plan: FleetPlan, stacks: Mapping[str, RegionStack]) -> None:
    """Declare the private DNS of the fleet; Route 53 is global, so the provider of the home region is used."""
    home = stacks[plan.home.name]
    at_home = pulumi.ResourceOptions(providers=[home.provider])
    ZoneAssociations(plan, stacks, at_home)
    for name, stack in stacks.items():
        # Machines name themselves in the zone, also while the home region does not answer.
        if not stack.region.home:
            copy = {f"/{plan.name}/zone": home.output("zone_id")}
            opts = pulumi.ResourceOptions(providers=[stack.provider])
            FleetParameters(f"{plan.name}-{name}", copy, f"alias/{plan.name}-data", opts)
    FleetRecords(plan, home.output("zone_id"), remote_records(plan, stacks), at_home)
    for zone, names in reverse_names(plan).items():
        ReverseZone(plan, zone, names, stacks, at_home)


@dataclass(frozen=True, slots=True)
class StackRun:
    """One run of the program: the plan and the part to declare."""

    plan: FleetPlan
    part: str


def load_stack(fleet_file: Path, stack: str) -> StackRun:
    """Return the plan and the part that a stack name selects.

    Raises InputError for an invalid fleet file, a stack of another fleet, or a plan or image missing in the lock. A
    preview plans what is missing: `up` records the same.
    """
    # An expired group must not block the stacks of other regions.
    load_result = load_fleet(fleet_file, part=stack.partition(".")[2])
    plan = load_result.plan(read_lock(lock_path(fleet_file), load_result.fleet.name))
    if not pulumi.runtime.is_dry_run():
        require_recorded(plan, fleet_file)
        require_image_ids(plan, plan.catalog, fleet_file)
    return StackRun(plan, part_of(plan, stack))


def require_recorded(plan: FleetPlan, fleet_file: Path) -> None:
    """Raise InputError if the lock lacks a name of the plan: the next run could assign another block or id.

    Of the people only administrators matter: EC2 instances read their user ids from SSM.
    """
    admins = (person.name for person in plan.accounts.people if person.admin)
    check_recorded((*plan.new_blocks, *(name for name in admins if name in plan.new_people)), fleet_file)


def require_image_ids(plan: FleetPlan, catalog: Catalog, fleet_file: Path) -> None:
    """Raise InputError if a group with `similar` has no recorded image: Auto Scaling requires an image id for it."""
    if places := required_images(plan, catalog):
        raise InputError(
            f"`similar` requires recorded images in {lock_path(fleet_file).name}: {', '.join(places)}",
            where=str(fleet_file),
            fix=f"run `bedplate image record {fleet_file.name}` and commit the lock",
        )


# Characters of a standard parameter. Source: Systems Manager user guide, "Managing parameter tiers".
_MAX_PARAMETER_SIZE = 4096
_NO_ADMINS = "-"


def fleet_parameters(plan: FleetPlan) -> dict[str, str]:
    """Return the values of the SSM parameters by path."""
    region_blocks = {f"regions/{region.name}/block": str(region.block) for region in plan.regions}
    settings = {
        "domain": plan.domain,
        "home": plan.home.name,
        "supernet": str(plan.supernet),
    }
    own = {f"/{plan.name}/{path}": value for path, value in (settings | region_blocks).items()}
    return own | boot_parameters(plan)


def boot_parameters(plan: FleetPlan) -> dict[str, str]:
    """Return the values by path that each region has: the first boot of a machine needs no other region for them."""
    return {f"/{plan.name}/admins": administrators(plan.accounts)}


def administrators(accounts: Accounts) -> str:
    """Return the logins of new instances: `ada 20000 ssh-ed25519 AAAA...` for each key, joined by commas.

    Returns `-` without administrators. Raises InputError if the value exceeds the size of a parameter.
    """
    lines = (
        f"{person.name} {person.uid} {' '.join(key.split()[:2])}"
        for person in accounts.people
        if person.admin
        for key in person.keys
    )
    value = ",".join(lines) or _NO_ADMINS
    if len(value) > _MAX_PARAMETER_SIZE:
        raise InputError(
            f"the administrators' keys have {len(value):,} characters, at most {_MAX_PARAMETER_SIZE:,} are allowed",
            fix="use Ed25519 keys, which are shorter",
        )
    return value


class FleetParameters(pulumi.ComponentResource):
    """SSM parameters of one region that nodes read, encrypted with a KMS key of the fleet."""

    def __init__(
        self,
        name: str,
        values: Mapping[str, pulumi.Input[str]],
        key_id: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:FleetParameters", name, None, opts)
        for path, value in values.items():
            Parameter(
                f"{name}-{path.split('/', 2)[2].replace('/', '-')}",
                ParameterArgs(name=path, type="SecureString", key_id=key_id, value=value, tags=name_tag(path)),
                child_options(self),
            )
        self.register_outputs({})


def declare_shared(plan: FleetPlan) -> None:
    """Declare the resources that all regions use: IAM roles, SSM parameters, their key, and the budget."""
    options = region_options(plan, SHARED, plan.home.name)
    roles = {kind: NodeRole(plan, kind, options) for kind in node_kinds(plan)}
    FlowRole(plan, options)
    if plan.budget:
        AccountBudget(plan, plan.budget.monthly, plan.budget.email, options)
    if replicated_stores(plan):
        ReplicationRole(plan, options)
    if has_pod_roles(plan) and issuer_documents(plan):
        issuer = TokenIssuer(plan, options)
        if plan.buckets:
            PodRoles(plan, issuer, options)
    key = FleetKey(plan, "parameters", options)
    FleetParameters(plan.name, fleet_parameters(plan), key.arn, options)
    pulumi.export("regions", sorted(region.name for region in plan.regions))
    pulumi.export("role_arns", {kind: role.role_arn for kind, role in roles.items()})
    pulumi.export("profile_arns", {kind: role.profile_arn for kind, role in roles.items()})
    pulumi.export("parameter_key_arn", key.arn)
    pulumi.export("parameter_path", f"/{plan.name}/")


def declare(plan: FleetPlan, part: str) -> None:
    """Declare the resources of one part: `shared`, the name of a region, or `links`.

    Raises InputError if the fleet has no such part.
    """
    chosen_parts(plan, [part])
    pulumi.runtime.register_stack_transformation(tag_with_resource_name)
    if part == SHARED:
        declare_shared(plan)
    elif part == LINKS:
        declare_links(plan)
    else:
        declare_region(plan, plan.region(part))
