"""What AWS's end of a tunnel may agree to: the newest that both ends know, and nothing older.

Left alone, AWS takes the weakest of what it allows, whatever the far end prefers.
"""

import json
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_aws.cloudwatch.log_group import LogGroup, LogGroupArgs
from pulumi_aws.cloudwatch.metric_alarm import MetricAlarm, MetricAlarmArgs
from pulumi_aws.ec2._inputs import (
    VpnConnectionTunnel1LogOptionsArgs,
    VpnConnectionTunnel1LogOptionsCloudwatchLogOptionsArgs,
    VpnConnectionTunnel2LogOptionsArgs,
    VpnConnectionTunnel2LogOptionsCloudwatchLogOptionsArgs,
)
from pulumi_aws.ec2.customer_gateway import CustomerGateway, CustomerGatewayArgs
from pulumi_aws.ec2.vpn_connection import VpnConnection, VpnConnectionArgs
from pulumi_aws.secretsmanager.secret import Secret, SecretArgs
from pulumi_aws.secretsmanager.secret_version import SecretVersion, SecretVersionArgs

from bedplate.plan.fleet import FleetPlan, SitePlan, TunnelPlan
from bedplate.plan.pools import tunnel_secret
from bedplate.spec.sites import Dials
from stacks.network.transit import Side
from stacks.options import SHARED, inside, named, output_of, stack_of
from stacks.vpn.ends import VpnEnd, vpn_end

_ENCRYPTION = ("AES256-GCM-16",)
_INTEGRITY = ("SHA2-384", "SHA2-512")
_DH_GROUPS = (19, 20, 21)
# Only one end opens a tunnel; either end opens it again when the other falls silent.
_STARTUP = {Dials.SITE: "add", Dials.AWS: "start"}
_SILENCE_SECONDS = 30  # the shortest that AWS offers


def tunnel_options(tunnel: TunnelPlan, dials: Dials, log_group_arn: pulumi.Output[str]) -> dict[str, Any]:
    """Return the arguments of a VPN connection that are about one of its tunnels."""
    options: dict[str, Any] = {
        "inside_cidr": str(tunnel.inside),
        "ike_versions": ["ikev2"],
        "startup_action": _STARTUP[dials],
        "dpd_timeout_action": "restart",
        "dpd_timeout_seconds": _SILENCE_SECONDS,
        "log_options": _LOGS[tunnel.number](log_group_arn),
        **_phase("phase1"),
        **_phase("phase2"),
    }
    return {f"tunnel{tunnel.number}_{name}": value for name, value in options.items()}


def _phase(phase: str) -> dict[str, Any]:
    return {
        f"{phase}_encryption_algorithms": list(_ENCRYPTION),
        f"{phase}_integrity_algorithms": list(_INTEGRITY),
        f"{phase}_dh_group_numbers": list(_DH_GROUPS),
    }


def _first_logs(arn: pulumi.Output[str]) -> VpnConnectionTunnel1LogOptionsArgs:
    logs = VpnConnectionTunnel1LogOptionsCloudwatchLogOptionsArgs(
        log_enabled=True,
        log_group_arn=arn,
        log_output_format="json",
        bgp_log_enabled=True,
        bgp_log_group_arn=arn,
        bgp_log_output_format="json",
    )
    return VpnConnectionTunnel1LogOptionsArgs(cloudwatch_log_options=logs)


def _second_logs(arn: pulumi.Output[str]) -> VpnConnectionTunnel2LogOptionsArgs:
    logs = VpnConnectionTunnel2LogOptionsCloudwatchLogOptionsArgs(
        log_enabled=True,
        log_group_arn=arn,
        log_output_format="json",
        bgp_log_enabled=True,
        bgp_log_group_arn=arn,
        bgp_log_output_format="json",
    )
    return VpnConnectionTunnel2LogOptionsArgs(cloudwatch_log_options=logs)


# The SDK has a class of its own for each tunnel.
_LOGS = {1: _first_logs, 2: _second_logs}


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


# A connection and its keys are made and lost together: there is nothing to take back.
_RECOVERY_DAYS = 0


class SiteKeys(pulumi.ComponentResource):
    """Both keys of one connection as one secret, `<fleet>/tunnels/<site>/<region>`, in the home region."""

    def __init__(
        self, plan: FleetPlan, tunnels: SiteTunnels, key_arn: pulumi.Output[str], opts: pulumi.ResourceOptions
    ) -> None:
        name = f"{plan.name}-{tunnels.site}-{tunnels.region}"
        super().__init__("bedplate:stacks:SiteKeys", name, None, opts)
        path = tunnel_secret(plan.name, tunnels.site, tunnels.region)
        secret = Secret(
            name,
            SecretArgs(
                name=path,
                description=f"Keys of the tunnels between {tunnels.site} and {tunnels.region}",
                kms_key_id=key_arn,
                recovery_window_in_days=_RECOVERY_DAYS,
                tags=named(path),
            ),
            inside(self),
        )
        version = SecretVersionArgs(secret_id=secret.id, secret_string=_text(tunnels.connection))
        SecretVersion(name, version, inside(self))
        self.register_outputs({})


def _text(connection: VpnConnection) -> pulumi.Output[str]:
    """Return the keys as JSON, by the outside address of AWS's end, which is how a gateway knows its peer."""
    keys = pulumi.Output.all(
        connection.tunnel1_address,
        connection.tunnel1_preshared_key,
        connection.tunnel2_address,
        connection.tunnel2_preshared_key,
    )
    return pulumi.Output.secret(keys.apply(lambda told: json.dumps({told[0]: told[1], told[2]: told[3]})))


def declare_sites(plan: FleetPlan, every: Mapping[str, Side]) -> None:
    """Declare the tunnels between each site and each region, and keep their keys in the home region."""
    if not plan.sites:
        return
    ends = [vpn_end(plan, side) for side in every.values()]
    ways = [SiteTunnels(plan, site, end) for site in plan.sites for end in ends]
    key_arn = output_of(stack_of(plan, SHARED), "parameter_key_arn")
    at_home = pulumi.ResourceOptions(providers=[every[plan.home.name].provider])
    for way in ways:
        SiteKeys(plan, way, key_arn, at_home)
    pulumi.export("tunnels", {f"{way.site}/{way.region}": way.addresses for way in ways})
