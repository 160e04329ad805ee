"""The gateway that laptops dial in a region: one machine at a fixed address, replaced by itself when it dies.

The address, and the pool's routes, belong to a network interface that outlives the machines.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws.ec2.eip import Eip, EipArgs
from pulumi_aws.ec2.network_interface import NetworkInterface, NetworkInterfaceArgs
from pulumi_aws.ec2.route import Route, RouteArgs

from bedplate.catalog import load_catalog
from bedplate.plan.beyond import has_transit
from bedplate.plan.door import ANYWHERE, Rule, met_rules
from bedplate.plan.fleet import FleetPlan, LaptopPool, RegionPlan
from bedplate.plan.laptops import Transport, met_pools
from bedplate.plan.standing import GATEWAY_TYPE, GATEWAY_VOLUME
from stacks.image import image_of
from stacks.lone_machine import LoneMachine, launch_alone
from stacks.network import Network
from stacks.options import inside
from stacks.security_group import Doors
from stacks.shortage import watch_launches
from stacks.tags import named, stack_tags

_OPEN = (
    Rule("openvpn", "OpenVPN from anywhere", ANYWHERE.block, Transport.UDP.value, Transport.UDP.port),
    Rule("openvpn-tcp", "OpenVPN over TCP from anywhere", ANYWHERE.block, Transport.TCP.value, Transport.TCP.port),
)


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """What a gateway stands on; it starts no sooner than the way to the internet is there."""

    zone: str
    vpc_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    table_ids: Mapping[str, pulumi.Output[str]]
    internet: pulumi.Resource
    profile_arn: pulumi.Output[str]
    topic_arn: pulumi.Output[str]


def gateway_zone(region: RegionPlan, offering: Collection[str]) -> str:
    """Return the zone that a region's gateway stands in: of those that offer its type, the one allotted first."""
    fit = [zone for zone in region.zones if zone.name in offering]
    return min(fit or region.zones, key=lambda zone: zone.edge).name


def gateway_parts(
    region: RegionPlan, network: Network, profile_arn: pulumi.Output[str], topic_arn: pulumi.Output[str]
) -> GatewayParts:
    """Return the parts of a region's gateway: its place, its way out, and all route tables of the region."""
    zone = gateway_zone(region, load_catalog().offered(GATEWAY_TYPE, region.name))
    tables = {f"{zone}-nodes": network.zones[zone].nodes_table_id for zone in sorted(network.zones)}
    return GatewayParts(
        zone=zone,
        vpc_id=network.vpc_id,
        subnet_id=network.zones[zone].edge_id,
        table_ids={"edge": network.edge_table_id, **tables},
        internet=network.internet_gateway,
        profile_arn=profile_arn,
        topic_arn=topic_arn,
    )


class LaptopGateway(pulumi.ComponentResource):
    """A gateway open to the world on OpenVPN's ports alone, and the routes of its clients' pool to it.

    What it carries to other regions is declared by `links`.
    """

    public_ip: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    group_id: pulumi.Output[str]
    group_name: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, pool: LaptopPool, parts: GatewayParts, opts: pulumi.ResourceOptions) -> None:
        self._name = f"{plan.name}-laptops"
        super().__init__("bedplate:stacks:LaptopGateway", self._name, None, opts)
        self.group_id = self._firewall(plan, pool, parts.vpc_id)
        interface = self._interface(parts, self.group_id)
        self.interface_id, self.private_ip = interface.id, interface.private_ip
        self.public_ip = self._address(parts, interface)
        self._routes(pool, parts)
        self.group_name = self._machine(plan, pool, parts)
        watch_launches(self._name, self.group_name, parts.topic_arn, self)
        self.register_outputs({"public_ip": self.public_ip, "interface_id": self.interface_id})

    @property
    def told(self) -> dict[str, pulumi.Output[str]]:
        """What the region's stack says of it to `links` and to operators."""
        return {
            "public_ip": self.public_ip,
            "private_ip": self.private_ip,
            "interface_id": self.interface_id,
            "group_id": self.group_id,
        }

    def _firewall(self, plan: FleetPlan, pool: LaptopPool, vpc_id: pulumi.Output[str]) -> pulumi.Output[str]:
        doors = Doors(self._name, "Gateway of the laptops", vpc_id, self)
        # What comes by the gateways' own tunnels has passed the group when it comes out.
        others = met_pools(plan, pool)[1:] if has_transit(plan) else ()
        doors.let_in(*_OPEN, *met_rules(others))
        doors.let_out(ANYWHERE)
        return doors.group_id

    def _interface(self, parts: GatewayParts, group_id: pulumi.Output[str]) -> NetworkInterface:
        """Make the interface that takes packets for laptops, none of which is addressed to itself."""
        args = NetworkInterfaceArgs(
            subnet_id=parts.subnet_id,
            description="Gateway of the laptops",
            security_groups=[group_id],
            source_dest_check=False,
            tags=named(self._name),
        )
        return NetworkInterface(self._name, args, inside(self))

    def _address(self, parts: GatewayParts, interface: NetworkInterface) -> pulumi.Output[str]:
        args = EipArgs(domain="vpc", network_interface=interface.id, tags=named(self._name))
        return Eip(self._name, args, inside(self, after=(parts.internet,))).public_ip

    def _routes(self, pool: LaptopPool, parts: GatewayParts) -> None:
        for table, table_id in parts.table_ids.items():
            args = RouteArgs(
                route_table_id=table_id,
                destination_cidr_block=str(pool.block),
                network_interface_id=self.interface_id,
            )
            Route(f"{self._name}-from-{table}", args, inside(self))

    def _machine(self, plan: FleetPlan, pool: LaptopPool, parts: GatewayParts) -> pulumi.Output[str]:
        machine = LoneMachine(
            name=self._name,
            type=GATEWAY_TYPE,
            image=image_of(plan, pool.place, (GATEWAY_TYPE,), load_catalog()),
            zone=parts.zone,
            volume=GATEWAY_VOLUME,
            tags=stack_tags(plan, pool.place) | named(self._name),
            profile_arn=parts.profile_arn,
            interface_id=self.interface_id,
        )
        return launch_alone(machine, self, after=(parts.internet,))
