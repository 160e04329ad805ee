"""The keys of a site's tunnels, kept in Secrets Manager for the machine that needs them: the site's gateway."""

import json

import pulumi
from pulumi_aws.ec2.vpn_connection import VpnConnection
from pulumi_aws.secretsmanager.secret import Secret, SecretArgs
from pulumi_aws.secretsmanager.secret_version import SecretVersion, SecretVersionArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.names import tunnel_secret
from stacks.options import inside
from stacks.site import SiteTunnels
from stacks.tags import named

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
