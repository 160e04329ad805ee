"""Facts of the fleet that a node asks for, as SSM parameters under `/<fleet>/` in the home region."""

import pulumi
from pulumi_aws.ssm.parameter import Parameter, ParameterArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.tags import named


def facts(plan: FleetPlan) -> dict[str, str]:
    """Return the value of each parameter by its path."""
    blocks = {f"regions/{region.name}/block": str(region.block) for region in plan.regions}
    once = {"domain": plan.domain, "home": plan.home.name, "supernet": str(plan.supernet)}
    return {f"/{plan.name}/{path}": value for path, value in (once | blocks).items()}


class FleetParameters(pulumi.ComponentResource):
    """The facts, each a parameter encrypted by the fleet's key, as the secrets beside them are."""

    def __init__(self, plan: FleetPlan, key_arn: pulumi.Input[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:FleetParameters", plan.name, None, opts)
        for path, value in facts(plan).items():
            Parameter(
                path.removeprefix("/").replace("/", "-"),
                ParameterArgs(name=path, type="SecureString", key_id=key_arn, value=value, tags=named(path)),
                inside(self),
            )
        self.register_outputs({})
