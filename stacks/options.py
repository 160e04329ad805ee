"""Options that the stacks give their resources."""

from typing import Any

import pulumi
from pulumi_aws._inputs import ProviderDefaultTagsArgs
from pulumi_aws.provider import Provider, ProviderArgs

from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan

# GPU and bare-metal instances can take longer to terminate than the provider waits by default, 10 minutes.
_GROUP_TIMEOUTS = pulumi.CustomTimeouts(update="45m", delete="45m")


def inside(
    parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = (), ignore: tuple[str, ...] = ()
) -> pulumi.ResourceOptions:
    """Return the options of a part of a component; inputs in `ignore` are somebody else's once it is made."""
    return pulumi.ResourceOptions(parent=parent, depends_on=[*after], ignore_changes=[*ignore])


def scaling_group(
    parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...], ignore: tuple[str, ...]
) -> pulumi.ResourceOptions:
    """Return the options of an Auto Scaling group inside a component."""
    options = inside(parent, after=after, ignore=ignore)
    return pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(custom_timeouts=_GROUP_TIMEOUTS))


def kept(parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = ()) -> pulumi.ResourceOptions:
    """Return the options of data and of what guards it: no engine deletes it, not even with its stack."""
    return pulumi.ResourceOptions(parent=parent, depends_on=[*after], protect=True, retain_on_delete=True)


SHARED = "shared"
LINKS = "links"


def parts(plan: FleetPlan) -> tuple[str, ...]:
    """Return the parts of a fleet in the order in which they are made."""
    return (SHARED, *(region.name for region in plan.regions), LINKS)


def stack_name(plan: FleetPlan, part: str) -> str:
    """Return the name of the stack that holds a part."""
    return f"{plan.name}.{part}"


def part_of(plan: FleetPlan, stack: str) -> str:
    """Return the part that a stack of the fleet holds; raises InputError when the fleet has no such stack."""
    names = {stack_name(plan, part): part for part in parts(plan)}
    if stack not in names:
        raise InputError(
            f"{stack} is no stack of the fleet {plan.name}",
            fix=f"select one of {', '.join(names)}",
        )
    return names[stack]


FLEET = "bedplate:fleet"
STACK = "bedplate:stack"
GROUP = "bedplate:group"
POOL = "bedplate:pool"
USE = "bedplate:use"
MEMBER = "bedplate:member"
OWNER = "owner"
EXPIRES = "expires"


def stack_tags(plan: FleetPlan, part: str) -> dict[str, str]:
    """Return the tags of everything in a stack, which its provider puts on."""
    return {FLEET: plan.name, STACK: stack_name(plan, part), OWNER: plan.owner}


def named(name: str) -> dict[str, str]:
    """Return the tag by which AWS's console calls a resource."""
    return {"Name": name}


def node_tags(plan: FleetPlan, pool: PoolPlan) -> dict[str, str]:
    """Return the tags of a pool's machines and of all they are made with: no provider reaches those."""
    own = {GROUP: pool.group, POOL: pool.name, USE: pool.use.value, OWNER: pool.tenure.owner}
    term = {EXPIRES: pool.tenure.expires} if pool.tenure.expires else {}
    return stack_tags(plan, pool.region) | named(f"{plan.name}-{pool.name}") | own | term


def in_region(plan: FleetPlan, part: str, region: str) -> pulumi.ResourceOptions:
    """Return the options by which a part's components, and all in them, are made in one region."""
    return pulumi.ResourceOptions(providers=[provider_of(plan, part, region)])


def provider_of(plan: FleetPlan, part: str, region: str) -> Provider:
    """Return the provider by which a part acts in one region; it refuses any account but the fleet's."""
    args = ProviderArgs(
        region=region,
        allowed_account_ids=[plan.account],
        default_tags=ProviderDefaultTagsArgs(tags=stack_tags(plan, part)),
    )
    return Provider(region, args)


def stack_of(plan: FleetPlan, part: str) -> pulumi.StackReference:
    """Return the stack of another part of the fleet, in the same organization and project.

    To be asked for once in a program: a reference is a resource, and there may be only one of a name.
    """
    return pulumi.StackReference(f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack_name(plan, part)}")


def output_of(stack: pulumi.StackReference, name: str) -> pulumi.Output[Any]:
    """Return what a stack exports under a name, as secret as it is there; InputError when it exports no such thing.

    A stack that was made in part only has not exported all yet.
    """

    def known(told: list[Any]) -> object:
        if told[1] is None:
            full, part = told[0], told[0].rpartition("/")[2]
            raise InputError(f"{part} does not export {name} yet", where=full, fix=f"make {part} whole first")
        return told[1]

    return pulumi.Output.all(stack.name, stack.get_output(name)).apply(known)
