"""The stack of one region: network, security groups, storage, pools, and in the home region the control plane."""

from dataclasses import dataclass

import pulumi

from bedplate.catalog import load_catalog
from bedplate.plan.cost import bill
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.links import has_inbound_resolver, has_outbound_resolver, has_transit, pods_router
from bedplate.plan.planner import baked_image
from bedplate.plan.pools import PoolPlan, pool_interfaces
from bedplate.plan.stacks import PRICE, SHARED
from stacks.alarms.alarms import AlarmTopic
from stacks.compute.machines import ControlInputs, ControlMachines, LaptopGateway, gateway_inputs
from stacks.compute.pool import Pool, PoolInputs
from stacks.compute.template import NodeBase, Start, first_boot, image_of
from stacks.dns.resolver import InboundResolver, OutboundResolver
from stacks.dns.zone import Addresses, FleetRecords, NodeNameRegistration, PrivateZone, home_records
from stacks.identity.policy import FleetKey, launch_statements
from stacks.identity.roles import CONTROL, GATEWAY, profile_arn_of
from stacks.network.firewall import ControlFirewall, NodeFirewall, PodsFirewall, StorageFirewall
from stacks.network.transit import Transit
from stacks.network.vpc import NatEgress, Network, ServiceEndpoints
from stacks.options import output_of, region_options, stack_reference
from stacks.storage.buckets import StoreBucket
from stacks.storage.files import FileSystemInputs, SharedFileSystem
from stacks.storage.nodes import NodesBucket


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
    pulumi.export(PRICE, bill(plan, load_catalog()).regions[region.name].min)
    context = RegionContext(plan, region, network, egress, firewall, alarms.arn, shared, options)
    zone = _declare_home(context) if region.home else None
    gateway = _declare_laptops(context)
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
        profile = profile_arn_of(context.shared, CONTROL)
        pods = PodsFirewall(plan, network.vpc_id, options).group_id if pods_router(plan) else None
        tables = network.table_ids
        inputs = ControlInputs(
            network.node_subnet_ids, tables, firewall, pods, context.egress, profile, context.topic_arn
        )
        machines = ControlMachines(plan, plan.control_plane, inputs, options)
        pulumi.export("control_plane", machines.group_names)
    return zone


def _declare_laptops(context: RegionContext) -> LaptopGateway | None:
    """Declare the VPN gateway for laptops if the region has a laptop pool."""
    plan, region = context.plan, context.region
    pool = next((pool for pool in plan.laptops if pool.place == region.name), None)
    if pool is None:
        return None
    inputs = gateway_inputs(region, context.network, profile_arn_of(context.shared, GATEWAY), context.topic_arn)
    gateway = LaptopGateway(plan, pool, inputs, context.options)
    pulumi.export("laptop_gateway", gateway.outputs)
    return gateway


def _declare_storage(context: RegionContext) -> dict[str, SharedFileSystem]:
    """Declare the data key, file systems and buckets of the region; return the file systems."""
    plan, options = context.plan, context.options
    key = FleetKey(plan, "data", options, users=launch_statements(plan, context.region.name))
    files = _declare_files(context, key)
    buckets = {
        bucket.store: StoreBucket(plan, bucket, key.arn, options)
        for bucket in plan.buckets
        if bucket.region == context.region.name
    }
    NodesBucket(plan, plan.nodes_bucket(context.region.name), key.arn, options)
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
    catalog = load_catalog()
    baked = baked_image(context.plan, pool, catalog)
    image = baked or image_of(context.plan, pool.region, pool.types, catalog)
    start = Start(image, pool_interfaces(pool, catalog), first_boot(context.plan, pool))
    return PoolInputs(start, base, context.network.node_subnet_ids, context.egress, context.topic_arn, catalog)
