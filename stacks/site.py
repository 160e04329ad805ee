"""A site's way into one region: its gateway as AWS knows it, two tunnels, their log and their alarm."""

import pulumi
from pulumi_aws.cloudwatch.log_group import LogGroup, LogGroupArgs
from pulumi_aws.cloudwatch.metric_alarm import MetricAlarm, MetricAlarmArgs
from pulumi_aws.ec2.customer_gateway import CustomerGateway, CustomerGatewayArgs
from pulumi_aws.ec2.vpn_connection import VpnConnection, VpnConnectionArgs

from bedplate.plan.fleet import FleetPlan, SitePlan
from stacks.tags import named
from stacks.tunnel_options import tunnel_options
from stacks.vpn_end import VpnEnd

_LOG_DAYS = 90
_ALARM_SECONDS, _ALARM_PERIODS = 300, 2
# AS numbers from here on go by an argument of their own.
_FIRST_EXTENDED = 2**31


class SiteTunnels(pulumi.ComponentResource):
    """A VPN connection of two tunnels between a site and a region; AWS makes up the keys."""

    site: str
    region: str
    connection: VpnConnection

    def __init__(self, plan: FleetPlan, site: SitePlan, end: VpnEnd) -> None:
        self.site, self.region = site.name, end.side.name
        self._name = f"{plan.name}-{site.name}-{end.side.name}"
        super().__init__("bedplate:stacks:SiteTunnels", self._name)
        self._side = end.side
        gateway = CustomerGateway(self._name, _gateway(self._name, site), self._side.inside(self))
        self.connection = self._connect(plan, site, end, gateway.id)
        end.lead(plan, site.name, self.connection, self)
        self._watch(site)
        self.register_outputs({"connection_id": self.connection.id})

    @property
    def addresses(self) -> list[pulumi.Output[str]]:
        """The outside addresses of AWS's end, tunnel by tunnel."""
        return [self.connection.tunnel1_address, self.connection.tunnel2_address]

    def _connect(self, plan: FleetPlan, site: SitePlan, end: VpnEnd, gateway_id: pulumi.Output[str]) -> VpnConnection:
        log_arn = self._log(plan, site)
        tunnels = [each for each in plan.tunnels if (each.site, each.region) == (site.name, end.side.name)]
        options = {
            name: value for tunnel in tunnels for name, value in tunnel_options(tunnel, site.dials, log_arn).items()
        }
        args = VpnConnectionArgs(
            customer_gateway_id=gateway_id,
            type="ipsec.1",
            static_routes_only=False,
            tags=named(self._name),
            transit_gateway_id=end.gateways.transit,
            vpn_gateway_id=end.gateways.private,
            **options,
        )
        return VpnConnection(self._name, args, self._side.inside(self))

    def _log(self, plan: FleetPlan, site: SitePlan) -> pulumi.Output[str]:
        """Make the group under the prefix for which AWS's delivery of logs needs no growing policy."""
        args = LogGroupArgs(
            name=f"/aws/vendedlogs/{plan.name}/tunnels/{site.name}",
            retention_in_days=_LOG_DAYS,
            tags=named(self._name),
        )
        return LogGroup(self._name, args, self._side.inside(self)).arn

    def _watch(self, site: SitePlan) -> None:
        """Ring when either tunnel is down: the other still carries, but nothing stands behind it."""
        name, topic_arn = f"{self._name}-tunnel-down", self._side.output("alarm_topic_arn")
        args = MetricAlarmArgs(
            name=name,
            alarm_description=f"A tunnel of {site.name} to {self._side.name} is down",
            namespace="AWS/VPN",
            metric_name="TunnelState",
            dimensions={"VpnId": self.connection.id},
            statistic="Average",
            comparison_operator="LessThanThreshold",
            threshold=1,
            period=_ALARM_SECONDS,
            evaluation_periods=_ALARM_PERIODS,
            treat_missing_data="breaching",
            alarm_actions=[topic_arn],
            ok_actions=[topic_arn],
            tags=named(name),
        )
        MetricAlarm(name, args, self._side.inside(self))


def _gateway(name: str, site: SitePlan) -> CustomerGatewayArgs:
    extended = site.asn >= _FIRST_EXTENDED
    return CustomerGatewayArgs(
        type="ipsec.1",
        bgp_asn=None if extended else str(site.asn),
        bgp_asn_extended=str(site.asn) if extended else None,
        ip_address=str(site.public),
        device_name=f"{site.gateway}.{site.name}",
        tags=named(name),
    )
