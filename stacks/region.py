"""The program of a region's stack: its network, storage and pools."""

from dataclasses import dataclass

import pulumi

from bedplate.catalog import load_catalog
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.links import asks_here, has_transit
from bedplate.plan.pools import PoolPlan, pool_interfaces
from stacks.alarms.alarms import AlarmTopic
from stacks.compute.machines import ControlMachines, ControlParts, LaptopGateway, gateway_parts
from stacks.compute.pool import Pool, PoolParts
from stacks.compute.template import NodeBase, Start, first_boot, image_of
from stacks.dns.resolver import Forwarding, InboundResolver, forwarded
from stacks.dns.zone import NameOffice, PrivateZone
from stacks.identity.policy import FleetKey
from stacks.identity.roles import CONTROL, GATEWAY, profile_of
from stacks.network.firewall import ControlFirewall, NodeFirewall, StorageFirewall
from stacks.network.transit import Transit
from stacks.network.vpc import NatEgress, Network, ServiceEndpoints
from stacks.options import SHARED, in_region, stack_of
from stacks.storage.buckets import StoreBucket
from stacks.storage.files import FilesParts, SharedFiles


def declare_region(plan: FleetPlan, region: RegionPlan) -> None:
    """Declare all that stands in one region."""
    here = in_region(plan, region.name, region.name)
    network = Network(plan, region, here)
    alarms = AlarmTopic(plan, region.name, here)
    pulumi.export("alarm_topic_arn", alarms.arn)
    egress = NatEgress(plan, region, network, alarms.arn, here)
    firewall = NodeFirewall(plan, region, network.vpc_id, here)
    _export_network(network, egress, firewall)
    if has_transit(plan):
        transit = Transit(plan, region, network, here)
        pulumi.export("transit_gateway_id", transit.gateway_id)
        pulumi.export("transit_table_id", transit.table_id)
    if asks_here(plan, region):
        pulumi.export("resolver_addresses", InboundResolver(plan, region, network, here).addresses)
    if plan.endpoints:
        ServiceEndpoints(plan, region, network, here)
    if forwarded(plan):
        Forwarding(plan, region, network, here)
    ground = Ground(plan, region, network, egress, firewall, alarms.arn, stack_of(plan, SHARED), here)
    if region.home:
        _declare_home(ground)
    _declare_laptops(ground)
    _declare_storage(ground)
    _declare_pools(ground)


@dataclass(frozen=True, slots=True)
class Ground:
    """What storage and pools of a region stand on."""

    plan: FleetPlan
    region: RegionPlan
    network: Network
    egress: NatEgress
    firewall: NodeFirewall
    topic_arn: pulumi.Output[str]
    shared: pulumi.StackReference
    here: pulumi.ResourceOptions


def _export_network(network: Network, egress: NatEgress, firewall: NodeFirewall) -> None:
    zones = sorted(network.zones)
    pulumi.export("vpc_id", network.vpc_id)
    pulumi.export("edge_table_id", network.edge_table_id)
    pulumi.export("edge_subnet_ids", {zone: network.zones[zone].edge_id for zone in zones})
    pulumi.export("node_subnet_ids", network.node_subnet_ids)
    pulumi.export("node_table_ids", {zone: network.zones[zone].nodes_table_id for zone in zones})
    pulumi.export("node_group_id", firewall.group_id)
    pulumi.export("nat_addresses", egress.addresses)


def _declare_home(ground: Ground) -> None:
    """Declare what stands in the home region alone: the fleet's names, and the control plane."""
    plan, network, here = ground.plan, ground.network, ground.here
    zone = PrivateZone(plan, network.vpc_id, here)
    pulumi.export("zone_id", zone.zone_id)
    NameOffice(plan, zone.zone_id, ground.shared, here)
    if plan.control_plane:
        firewall = ControlFirewall(plan, network.vpc_id, ground.firewall, here)
        profile = profile_of(ground.shared, CONTROL)
        parts = ControlParts(network.node_subnet_ids, firewall, ground.egress, profile, ground.topic_arn)
        machines = ControlMachines(plan, plan.control_plane, parts, here)
        pulumi.export("control_plane", machines.group_names)


def _declare_laptops(ground: Ground) -> None:
    """Declare the gateway of the region's laptop pool, where it has one."""
    plan, region = ground.plan, ground.region
    for pool in (pool for pool in plan.laptops if pool.place == region.name):
        parts = gateway_parts(region, ground.network, profile_of(ground.shared, GATEWAY), ground.topic_arn)
        pulumi.export("laptop_gateway", LaptopGateway(plan, pool, parts, ground.here).told)


def _declare_storage(ground: Ground) -> None:
    plan, here = ground.plan, ground.here
    key = FleetKey(plan, "data", here)
    files = _declare_files(ground, key)
    buckets = {
        each.store: StoreBucket(plan, each, key.arn, here) for each in plan.buckets if each.region == ground.region.name
    }
    pulumi.export("data_key_arn", key.arn)
    pulumi.export("files", {store: each.told for store, each in sorted(files.items())})
    pulumi.export("buckets", {store: each.name for store, each in sorted(buckets.items())})


def _declare_files(ground: Ground, key: FleetKey) -> dict[str, SharedFiles]:
    """Declare the region's file systems, and a firewall for them where there is any."""
    plan, network, here = ground.plan, ground.network, ground.here
    held = [each for each in plan.files if each.region == ground.region.name]
    if not held:
        return {}
    firewall = StorageFirewall(plan, ground.region, network.vpc_id, ground.firewall, here)
    parts = FilesParts(key.arn, firewall.group_id, network.node_subnet_ids)
    return {each.store: SharedFiles(plan, each, parts, here) for each in held}


def _declare_pools(ground: Ground) -> None:
    plan = ground.plan
    pools = {
        pool.name: Pool(plan, pool, _parts(ground, pool), ground.here)
        for pool in plan.pools
        if pool.region == ground.region.name
    }
    pulumi.export("pools", {name: pool.group_name for name, pool in sorted(pools.items())})


def _parts(ground: Ground, pool: PoolPlan) -> PoolParts:
    base = NodeBase(profile_of(ground.shared, pool.use.value), ground.firewall.group_id)
    catalog = load_catalog()
    image = image_of(ground.plan, pool.region, pool.types, catalog)
    start = Start(image, pool_interfaces(pool, catalog), first_boot(ground.plan, pool))
    return PoolParts(start, base, ground.network.node_subnet_ids, ground.egress, ground.topic_arn, catalog)
