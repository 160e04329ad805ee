"""How machines that people log in to come by their names: where the zone is told, and who may write into it.

The zone's id is known once the home region stands, and roles are made before it: so the grant is made here.
"""

import pulumi
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs
from pulumi_aws.ssm.parameter import Parameter, ParameterArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.hostnames import ssh_patterns, ssh_pools
from bedplate.spec.site import Use
from stacks.options import inside
from stacks.policy import Statement, policy
from stacks.tags import named

_KEY = "route53:ChangeResourceRecordSets"


class NameOffice(pulumi.ComponentResource):
    """The id of the zone as a parameter, and the right of ssh nodes to write their own names."""

    def __init__(
        self,
        plan: FleetPlan,
        zone_id: pulumi.Output[str],
        shared: pulumi.StackReference,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:NameOffice", plan.name, None, opts)
        path = zone_parameter(plan)
        told = ParameterArgs(
            name=path,
            type="SecureString",
            key_id=shared.require_output("parameter_key_arn"),
            value=zone_id,
            tags=named(path),
        )
        Parameter(path.removeprefix("/").replace("/", "-"), told, inside(self))
        if ssh_pools(plan):
            role = f"{plan.name}-{Use.SSH.value}"
            grant = zone_id.apply(lambda ident: policy(*names_grant(plan, ident)))
            RolePolicy(f"{role}-names", RolePolicyArgs(name=f"{role}-names", role=role, policy=grant), inside(self))
        self.register_outputs({})


def zone_parameter(plan: FleetPlan) -> str:
    """Return the path of the parameter that holds the id of the fleet's zone."""
    return f"/{plan.name}/zone"


def names_grant(plan: FleetPlan, zone_id: str) -> tuple[Statement, ...]:
    """Return what lets ssh nodes read the zone, and write addresses, host keys and owners of their own names."""
    zone = f"arn:aws:route53:::hostedzone/{zone_id}"
    names = tuple(sorted(pattern for pool in ssh_pools(plan) for pattern in ssh_patterns(plan, pool)))
    write = Statement(
        sid="WriteOwnNames",
        actions=("route53:ChangeResourceRecordSets",),
        resources=(zone,),
        conditions={
            "ForAllValues:StringLike": {f"{_KEY}NormalizedRecordNames": names},
            "ForAllValues:StringEquals": {
                f"{_KEY}RecordTypes": ("A", "SSHFP", "TXT"),
                f"{_KEY}Actions": ("CREATE", "DELETE"),
            },
        },
    )
    return (Statement(sid="ReadNames", actions=("route53:ListResourceRecordSets",), resources=(zone,)), write)
