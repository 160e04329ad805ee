"""VPN connections between sites and regions with their gateways of AWS, and the peering of regions by VPN gateways.

A VPN connection ends at the transit gateway of the region, or at a virtual private gateway if there is none.

Tunnel options allow only the newest algorithms: by default AWS also accepts the weakest that it supports.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_aws.cloudwatch.log_group import LogGroup, LogGroupArgs
from pulumi_aws.ec2._inputs import (
    VpnConnectionTunnel1LogOptionsArgs,
    VpnConnectionTunnel1LogOptionsCloudwatchLogOptionsArgs,
    VpnConnectionTunnel2LogOptionsArgs,
    VpnConnectionTunnel2LogOptionsCloudwatchLogOptionsArgs,
)
from pulumi_aws.ec2.customer_gateway import CustomerGateway, CustomerGatewayArgs
from pulumi_aws.ec2.vpn_connection import VpnConnection, VpnConnectionArgs
from pulumi_aws.ec2.vpn_gateway import VpnGateway, VpnGatewayArgs
from pulumi_aws.secretsmanager.secret import Secret, SecretArgs
from pulumi_aws.secretsmanager.secret_version import SecretVersion, SecretVersionArgs
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule, SecurityGroupIngressRuleArgs

from bedplate.plan.firewall import IKE, region_transit_rules
from bedplate.plan.fleet import FleetPlan, SitePlan, TunnelPlan
from bedplate.plan.links import has_transit, networks_of_place
from bedplate.plan.pools import tunnel_secret
from bedplate.plan.stacks import SHARED
from bedplate.spec.sites import Dials
from stacks.alarms import AlarmRule
from stacks.network.transit import Attachment, NextHop, RegionStack, RemoteRoutes
from stacks.options import child_options, name_tag, output_of, stack_reference


@dataclass(frozen=True, slots=True)
class TransitEnd:
    """A transit gateway as the end of VPN connections; `declare_transit_routes` routes the VPC to it."""

    stack: RegionStack

    @property
    def gateway_argument(self) -> dict[str, Any]:
        """The argument of a VPN connection that names the gateway."""
        return {"transit_gateway_id": self.stack.output("transit_gateway_id")}

    def declare_routes(self, plan: FleetPlan, site: str, connection: VpnConnection, parent: pulumi.Resource) -> None:
        """Associate the connection with the table of the gateway, and route the blocks of the site to it."""
        prefix, table_id = f"{plan.name}-{self.stack.name}", self.stack.output("transit_table_id")
        options = self.stack.child_options(parent)
        attachment = Attachment(plan, table_id, connection.transit_gateway_attachment_id, options)
        attachment.connect(f"{prefix}-from-site-{site}", prefix, site)


@dataclass(frozen=True, slots=True)
class PrivateEnd:
    """A virtual private gateway as the end of VPN connections, with routes in every table of the region."""

    stack: RegionStack
    gateway: VpnGateway

    @property
    def gateway_argument(self) -> dict[str, Any]:
        """The argument of a VPN connection that names the gateway."""
        return {"vpn_gateway_id": self.gateway.id}

    def declare_routes(self, plan: FleetPlan, site: str, connection: VpnConnection, _: pulumi.Resource) -> None:
        """Route the planned blocks of the site to the gateway; routes announced by BGP are not used."""
        hop = NextHop("gateway_id", self.gateway.id, after=(connection,))
        RemoteRoutes(plan, self.stack, networks_of_place(plan, site), hop)


VpnEnd = TransitEnd | PrivateEnd


class PrivateGateway(pulumi.ComponentResource):
    """A virtual private gateway, attached to a region's VPC."""

    gateway: VpnGateway

    def __init__(self, plan: FleetPlan, stack: RegionStack) -> None:
        name = f"{plan.name}-{stack.name}"
        super().__init__("bedplate:stacks:PrivateGateway", name)
        args = VpnGatewayArgs(vpc_id=stack.output("vpc_id"), tags=name_tag(name))
        self.gateway = VpnGateway(name, args, stack.child_options(self))
        self.register_outputs({"gateway_id": self.gateway.id})


def aws_end(plan: FleetPlan, stack: RegionStack) -> VpnEnd:
    """Return the end of VPN connections in a region; declare a virtual private gateway without transit gateways."""
    return TransitEnd(stack) if has_transit(plan) else PrivateEnd(stack, PrivateGateway(plan, stack).gateway)


_ALL_PROTOCOLS = "-1"  # every protocol, every port


class PeeredGateway(pulumi.ComponentResource):
    """The VPN gateway of a region that is peered with others; it accepts packets of nodes to forward them."""

    stack: RegionStack
    public_ip: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    group_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, stack: RegionStack) -> None:
        name = f"{plan.name}-{stack.name}-laptops"
        super().__init__("bedplate:stacks:PeeredGateway", name)
        outputs: pulumi.Output[dict[str, str]] = output_of(stack.reference, "laptop_gateway")
        self.stack = stack
        self.public_ip, self.interface_id, self.group_id = (
            outputs["public_ip"],
            outputs["interface_id"],
            outputs["group_id"],
        )
        for rule in region_transit_rules(stack.region):
            args = SecurityGroupIngressRuleArgs(
                security_group_id=self.group_id,
                ip_protocol=_ALL_PROTOCOLS,
                cidr_ipv4=str(rule.block),
                description=rule.about,
                tags=name_tag(f"{name}-{rule.name}"),
            )
            SecurityGroupIngressRule(f"{name}-{rule.name}", args, stack.child_options(self))
        self.register_outputs({})


class GatewayPeering(pulumi.ComponentResource):
    """The peering of two regions by their gateways: IKE from each other, and routes to each other."""

    def __init__(self, plan: FleetPlan, first: PeeredGateway, second: PeeredGateway) -> None:
        super().__init__("bedplate:stacks:GatewayPeering", f"{plan.name}-{first.stack.name}-{second.stack.name}")
        self._plan = plan
        for local, remote in ((first, second), (second, first)):
            # ESP is inside UDP because of NAT on both sides.
            ike = tuple(self._ike_rule(local, remote, port) for port in IKE)
            hop = NextHop("network_interface_id", local.interface_id, after=ike)
            RemoteRoutes(plan, local.stack, networks_of_place(plan, remote.stack.name), hop)
        self.register_outputs({})

    def _ike_rule(self, local: PeeredGateway, remote: PeeredGateway, port: int) -> SecurityGroupIngressRule:
        """Allow IKE from the address of the other gateway."""
        name = f"{self._plan.name}-{local.stack.name}-laptops-ike-{port}-from-{remote.stack.name}"
        args = SecurityGroupIngressRuleArgs(
            security_group_id=local.group_id,
            ip_protocol="udp",
            from_port=port,
            to_port=port,
            cidr_ipv4=remote.public_ip.apply(lambda address: f"{address}/32"),
            description=f"IKE from the gateway in {remote.stack.name}",
            tags=name_tag(name),
        )
        return SecurityGroupIngressRule(name, args, local.stack.child_options(self))


_ENCRYPTION = ("AES256-GCM-16",)
_INTEGRITY = ("SHA2-384", "SHA2-512")
_DH_GROUPS = (19, 20, 21)
# One end starts a tunnel; both ends restart it after a timeout.
_STARTUP = {Dials.SITE: "add", Dials.AWS: "start"}
_DPD_SECONDS = 30  # the minimum of AWS


def tunnel_options(tunnel: TunnelPlan, dials: Dials, log_group_arn: pulumi.Output[str]) -> dict[str, Any]:
    """Return the arguments of a VPN connection for one of its tunnels."""
    options: dict[str, Any] = {
        "inside_cidr": str(tunnel.inside),
        "ike_versions": ["ikev2"],
        "startup_action": _STARTUP[dials],
        "dpd_timeout_action": "restart",
        "dpd_timeout_seconds": _DPD_SECONDS,
        "log_options": _logs(tunnel.number, log_group_arn),
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


# The SDK has classes of its own for each tunnel.
_LOGS = {
    1: (VpnConnectionTunnel1LogOptionsArgs, VpnConnectionTunnel1LogOptionsCloudwatchLogOptionsArgs),
    2: (VpnConnectionTunnel2LogOptionsArgs, VpnConnectionTunnel2LogOptionsCloudwatchLogOptionsArgs),
}


def _logs(tunnel: int, arn: pulumi.Output[str]) -> object:
    options, destination = _LOGS[tunnel]
    logs = destination(
        log_enabled=True,
        log_group_arn=arn,
        log_output_format="json",
        bgp_log_enabled=True,
        bgp_log_group_arn=arn,
        bgp_log_output_format="json",
    )
    return options(cloudwatch_log_options=logs)


_LOG_DAYS = 90
_ALARM_PERIODS = 2
# Larger AS numbers use another argument.
_FIRST_EXTENDED_ASN = 2**31


# AWS could move a connection to another gateway, but then routes and associations of the old one would be left.
_REPLACED_WITH_GATEWAY = pulumi.ResourceOptions(replace_on_changes=["transit_gateway_id", "vpn_gateway_id"])


class SiteConnection(pulumi.ComponentResource):
    """A VPN connection between a site and a region with two tunnels; AWS generates the keys."""

    site: str
    region: str
    connection: VpnConnection

    def __init__(self, plan: FleetPlan, site: SitePlan, end: VpnEnd) -> None:
        self.site, self.region = site.name, end.stack.name
        self._name = f"{plan.name}-{site.name}-{end.stack.name}"
        super().__init__("bedplate:stacks:SiteConnection", self._name)
        self._stack = end.stack
        gateway = CustomerGateway(self._name, _gateway(plan, self._name, site), self._stack.child_options(self))
        self.connection = self._connect(plan, site, end, gateway.id)
        end.declare_routes(plan, site.name, self.connection, self)
        self._declare_alarm(site)
        self.register_outputs({"connection_id": self.connection.id})

    @property
    def addresses(self) -> list[pulumi.Output[str]]:
        """The outside addresses of AWS, one for each tunnel."""
        return [self.connection.tunnel1_address, self.connection.tunnel2_address]

    def _connect(self, plan: FleetPlan, site: SitePlan, end: VpnEnd, gateway_id: pulumi.Output[str]) -> VpnConnection:
        log_group_arn = self._log_group(plan, site)
        tunnels = [tunnel for tunnel in plan.tunnels if (tunnel.site, tunnel.region) == (site.name, end.stack.name)]
        options = {
            name: value
            for tunnel in tunnels
            for name, value in tunnel_options(tunnel, site.dials, log_group_arn).items()
        }
        args = VpnConnectionArgs(
            customer_gateway_id=gateway_id,
            type="ipsec.1",
            static_routes_only=False,
            tags=name_tag(self._name),
            **end.gateway_argument,
            **options,
        )
        return VpnConnection(
            self._name, args, pulumi.ResourceOptions.merge(self._stack.child_options(self), _REPLACED_WITH_GATEWAY)
        )

    def _log_group(self, plan: FleetPlan, site: SitePlan) -> pulumi.Output[str]:
        """Declare the log group; with this prefix, log delivery needs no entry in a resource policy."""
        args = LogGroupArgs(
            name=f"/aws/vendedlogs/{plan.name}/tunnels/{site.name}",
            retention_in_days=_LOG_DAYS,
            tags=name_tag(self._name),
        )
        return LogGroup(self._name, args, self._stack.child_options(self)).arn

    def _declare_alarm(self, site: SitePlan) -> None:
        """Declare an alarm for one tunnel down: traffic continues, but without redundancy."""
        rule = AlarmRule(
            "AWS/VPN:TunnelState",
            {"VpnId": self.connection.id},
            statistic="Average",
            comparison="LessThanThreshold",
            threshold=1,
            periods=_ALARM_PERIODS,
            missing_data="breaching",
        )
        about, topic_arn = (
            f"A tunnel of {site.name} to {self._stack.name} is down",
            self._stack.output("alarm_topic_arn"),
        )
        rule.declare(f"{self._name}-tunnel-down", about, topic_arn, self._stack.child_options(self))


def _gateway(plan: FleetPlan, name: str, site: SitePlan) -> CustomerGatewayArgs:
    extended = site.asn >= _FIRST_EXTENDED_ASN
    return CustomerGatewayArgs(
        type="ipsec.1",
        bgp_asn=None if extended else str(site.asn),
        bgp_asn_extended=str(site.asn) if extended else None,
        ip_address=str(site.public),
        # AWS returns an existing gateway for the same arguments, and another fleet may have the same site.
        device_name=f"{plan.name}.{site.gateway}.{site.name}",
        tags=name_tag(name),
    )


# The keys are useless without the connection, so no recovery window is needed.
_RECOVERY_DAYS = 0


class TunnelKeys(pulumi.ComponentResource):
    """The keys of one connection as a secret, `<fleet>/tunnels/<site>/<region>`, in the home region."""

    def __init__(
        self,
        plan: FleetPlan,
        site_connection: SiteConnection,
        key_arn: pulumi.Output[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        name = f"{plan.name}-{site_connection.site}-{site_connection.region}"
        super().__init__("bedplate:stacks:TunnelKeys", name, None, opts)
        path = tunnel_secret(plan.name, site_connection.site, site_connection.region)
        secret = Secret(
            name,
            SecretArgs(
                name=path,
                description=f"Keys of the tunnels between {site_connection.site} and {site_connection.region}",
                kms_key_id=key_arn,
                recovery_window_in_days=_RECOVERY_DAYS,
                tags=name_tag(path),
            ),
            child_options(self),
        )
        version = SecretVersionArgs(secret_id=secret.id, secret_string=_keys_json(site_connection.connection))
        SecretVersion(name, version, child_options(self))
        self.register_outputs({})


def _keys_json(connection: VpnConnection) -> pulumi.Output[str]:
    """Return the keys as JSON by outside address of AWS, which site gateways use as peer id."""
    keys = pulumi.Output.all(
        connection.tunnel1_address,
        connection.tunnel1_preshared_key,
        connection.tunnel2_address,
        connection.tunnel2_preshared_key,
    )
    return pulumi.Output.secret(keys.apply(lambda values: json.dumps({values[0]: values[1], values[2]: values[3]})))


def declare_sites(plan: FleetPlan, stacks: Mapping[str, RegionStack]) -> None:
    """Declare a VPN connection between each site and each region, and secrets with their keys."""
    if not plan.sites:
        return
    ends = [aws_end(plan, stack) for stack in stacks.values()]
    connections = [SiteConnection(plan, site, end) for site in plan.sites for end in ends]
    key_arn = output_of(stack_reference(plan, SHARED), "parameter_key_arn")
    at_home = pulumi.ResourceOptions(providers=[stacks[plan.home.name].provider])
    for connection in connections:
        TunnelKeys(plan, connection, key_arn, at_home)
    pulumi.export(
        "tunnels", {f"{connection.site}/{connection.region}": connection.addresses for connection in connections}
    )
