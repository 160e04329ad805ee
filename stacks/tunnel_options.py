"""What AWS's end of a tunnel may agree to: the newest that both ends know, and nothing older.

Left alone, AWS takes the weakest of what it allows, whatever the far end prefers.
"""

from typing import Any

import pulumi
from pulumi_aws.ec2._inputs import (
    VpnConnectionTunnel1LogOptionsArgs,
    VpnConnectionTunnel1LogOptionsCloudwatchLogOptionsArgs,
    VpnConnectionTunnel2LogOptionsArgs,
    VpnConnectionTunnel2LogOptionsCloudwatchLogOptionsArgs,
)

from bedplate.plan.fleet import TunnelPlan
from bedplate.spec.site import Dials

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
