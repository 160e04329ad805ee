"""How nodes reach the internet: NAT gateways in edge subnets, and the nodes' routes to them."""

import pulumi
from pulumi_aws.cloudwatch.metric_alarm import MetricAlarm, MetricAlarmArgs
from pulumi_aws.ec2.eip import Eip, EipArgs
from pulumi_aws.ec2.nat_gateway import NatGateway, NatGatewayArgs
from pulumi_aws.ec2.route import Route, RouteArgs

from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.spec.network import Egress
from stacks.network import ANYWHERE, Network
from stacks.options import inside
from stacks.tags import named

_ALARM_SECONDS = 300


def gateway_zones(egress: Egress, region: RegionPlan) -> dict[str, str]:
    """Return, for each zone, the zone whose NAT gateway its nodes use; empty when nodes stay inside.

    A shared gateway stands in the zone of the lowest node block: that zone was allotted first, so listing
    zones in another order, or adding one, moves no gateway.
    """
    zones = [zone.name for zone in region.zones]
    match egress:
        case Egress.PER_ZONE:
            return {zone: zone for zone in zones}
        case Egress.SHARED:
            first = min(region.zones, key=lambda zone: zone.nodes)
            return dict.fromkeys(zones, first.name)
        case Egress.NONE:
            return {}


class NatEgress(pulumi.ComponentResource):
    """The gateways of a region, each at a fixed public address, and a default route for each zone's nodes."""

    addresses: dict[str, pulumi.Output[str]]

    def __init__(
        self,
        plan: FleetPlan,
        region: RegionPlan,
        network: Network,
        topic_arn: pulumi.Output[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:NatEgress", plan.name, None, opts)
        self._prefix, self._network, self._topic_arn = plan.name, network, topic_arn
        self.addresses = {}
        via = gateway_zones(plan.egress, region)
        gateways = {zone: self._gateway(zone) for zone in sorted(set(via.values()))}
        for zone, at in via.items():
            self._route(zone, gateways[at])
        self.register_outputs({"addresses": self.addresses})

    def _gateway(self, zone: str) -> pulumi.Output[str]:
        name = f"{self._prefix}-{zone}-nat"
        ready = inside(self, after=(self._network.internet_gateway,))
        address = Eip(name, EipArgs(domain="vpc", tags=named(name)), ready)
        self.addresses[zone] = address.public_ip
        args = NatGatewayArgs(allocation_id=address.id, subnet_id=self._network.zones[zone].edge_id, tags=named(name))
        gateway_id = NatGateway(name, args, ready).id
        self._watch(name, gateway_id)
        return gateway_id

    def _watch(self, gateway: str, gateway_id: pulumi.Output[str]) -> None:
        """Ring when the gateway has no port left for a connection: nodes then see the internet fail at random."""
        name = f"{gateway}-ports"
        args = MetricAlarmArgs(
            name=name,
            alarm_description=f"{gateway} has no port left for new connections",
            namespace="AWS/NATGateway",
            metric_name="ErrorPortAllocation",
            dimensions={"NatGatewayId": gateway_id},
            statistic="Sum",
            comparison_operator="GreaterThanThreshold",
            threshold=0,
            period=_ALARM_SECONDS,
            evaluation_periods=1,
            treat_missing_data="notBreaching",
            alarm_actions=[self._topic_arn],
            ok_actions=[self._topic_arn],
            tags=named(name),
        )
        MetricAlarm(name, args, inside(self))

    def _route(self, zone: str, gateway: pulumi.Output[str]) -> None:
        args = RouteArgs(
            route_table_id=self._network.zones[zone].nodes_table_id,
            destination_cidr_block=ANYWHERE,
            nat_gateway_id=gateway,
        )
        Route(f"{self._prefix}-{zone}-nodes-internet", args, inside(self))
