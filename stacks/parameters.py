"""Facts of the fleet that a node asks for, as SSM parameters under `/<fleet>/` in the home region."""

import pulumi
from pulumi_aws.ssm.parameter import Parameter, ParameterArgs

from bedplate.errors import InputError
from bedplate.plan.accounts import Accounts
from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.tags import named

# Characters of a standard parameter. Source: Systems Manager user guide, "Managing parameter tiers".
_LARGEST = 4096
_NOBODY = "-"


def facts(plan: FleetPlan) -> dict[str, str]:
    """Return the value of each parameter by its path."""
    blocks = {f"regions/{region.name}/block": str(region.block) for region in plan.regions}
    once = {
        "admins": administrators(plan.accounts),
        "domain": plan.domain,
        "home": plan.home.name,
        "supernet": str(plan.supernet),
    }
    return {f"/{plan.name}/{path}": value for path, value in (once | blocks).items()}


def administrators(accounts: Accounts) -> str:
    """Return who may log in to a machine that has just started: `ada 20000 ssh-ed25519 AAAA...`, a comma between keys.

    `-` where there is nobody. Raises InputError for more than a parameter takes.
    """
    lines = (
        f"{person.name} {person.uid} {' '.join(key.split()[:2])}"
        for person in accounts.people
        if person.admin
        for key in person.keys
    )
    told = ",".join(lines) or _NOBODY
    if len(told) > _LARGEST:
        raise InputError(
            f"the administrators' keys take {len(told):,} characters, and a parameter takes {_LARGEST:,}",
            fix="let them have Ed25519 keys, which are short",
        )
    return told


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
