"""Stack names, tags, providers and resource options that all components use."""

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_aws._inputs import ProviderDefaultTagsArgs, ProviderIgnoreTagsArgs
from pulumi_aws.provider import Provider, ProviderArgs

from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import FLEET, GROUP, PAUSED, REQUESTED_BY, UNTIL, USE, PoolPlan
from bedplate.plan.stacks import parts, stack_name

# GPU and bare-metal instances can take longer to terminate than the provider waits by default, 10 minutes.
_GROUP_TIMEOUTS = pulumi.CustomTimeouts(update="45m", delete="45m")


def child_options(
    parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = (), ignore: tuple[str, ...] = ()
) -> pulumi.ResourceOptions:
    """Return the options of a child of a component; Pulumi ignores later changes of the inputs in `ignore`."""
    return pulumi.ResourceOptions(parent=parent, depends_on=[*after], ignore_changes=[*ignore])


def scaling_group_options(
    parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...], ignore: tuple[str, ...]
) -> pulumi.ResourceOptions:
    """Return the options of an Auto Scaling group inside a component."""
    options = child_options(parent, after=after, ignore=ignore)
    return pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(custom_timeouts=_GROUP_TIMEOUTS))


def retained_options(parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = ()) -> pulumi.ResourceOptions:
    """Return the options of data and its protections: Pulumi never deletes them, not even with their stack."""
    return pulumi.ResourceOptions(parent=parent, depends_on=[*after], protect=True, retain_on_delete=True)


def part_of(plan: FleetPlan, stack: str) -> str:
    """Return the part in a stack of the fleet; raise InputError if the fleet has no such stack."""
    names = {stack_name(plan, part): part for part in parts(plan)}
    if stack not in names:
        raise InputError(
            f"the fleet {plan.name} has no stack {stack}",
            fix=f"select one of {', '.join(names)}",
        )
    return names[stack]


STACK = "bedplate:stack"
POOL = "bedplate:pool"
PUBLIC = "bedplate:public"
"""The ports of a security group that are open to the internet, such as `udp/1194 tcp/443`."""
RESOURCE = "bedplate:resource"
"""The name of a resource in its stack."""
OWNER = "owner"
EXPIRES = "expires"


def stack_tags(plan: FleetPlan, part: str) -> dict[str, str]:
    """Return the default tags of all resources in a stack: those of the file and of bedplate."""
    return {**plan.tags, FLEET: plan.name, STACK: stack_name(plan, part), OWNER: plan.owner}


def tag_with_resource_name(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """Add the name of a resource in its stack to its tags, if it has any; `bedplate recover` finds it by them.

    The tags of an Auto Scaling group are a list: its instances would inherit them.
    """
    tags = args.props.get("tags")
    if not isinstance(tags, Mapping):
        return None
    return pulumi.ResourceTransformationResult({**args.props, "tags": {**tags, RESOURCE: args.name}}, args.opts)


def name_tag(name: str) -> dict[str, str]:
    """Return the Name tag of a resource."""
    return {"Name": name}


def node_tags(plan: FleetPlan, pool: PoolPlan) -> dict[str, str]:
    """Return the tags of the instances of a pool and their volumes; default tags do not reach them."""
    pool_tags = {GROUP: pool.group, POOL: pool.name, USE: pool.use.value, OWNER: pool.owner}
    expiry = {EXPIRES: pool.group_spec.expires} if pool.group_spec.expires else {}
    return stack_tags(plan, pool.region) | name_tag(f"{plan.name}-{pool.name}") | pool_tags | expiry


def region_options(plan: FleetPlan, part: str, region: str) -> pulumi.ResourceOptions:
    """Return the options of components, and their children, in one region."""
    return pulumi.ResourceOptions(providers=[region_provider(plan, part, region)])


def region_provider(plan: FleetPlan, part: str, region: str) -> Provider:
    """Return the provider of a part for one region; it refuses accounts other than that of the fleet.

    It leaves the tags alone that `bedplate node start` writes.
    """
    args = ProviderArgs(
        region=region,
        allowed_account_ids=[plan.account],
        default_tags=ProviderDefaultTagsArgs(tags=stack_tags(plan, part)),
        ignore_tags=ProviderIgnoreTagsArgs(keys=[REQUESTED_BY, UNTIL, PAUSED]),
    )
    return Provider(region, args)


def stack_reference(plan: FleetPlan, part: str) -> pulumi.StackReference:
    """Return a reference to the stack of another part, in the same organization and project.

    Call this once for each part in a program: a reference is a resource, and its name must be unique.
    """
    return pulumi.StackReference(f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack_name(plan, part)}")


def output_of(stack: pulumi.StackReference, name: str, entry: str = "") -> pulumi.Output[Any]:
    """Return an output of a stack, still secret if it is secret there; raise InputError if it lacks it or the entry.

    A stack exports an output only after a complete deployment.
    """

    def check(values: list[Any]) -> object:
        path, value = values
        if value is None or (entry and entry not in value):
            stack = path.rpartition("/")[2]
            missing = f"output {name}" if value is None else f"{entry} in its output {name}"
            fix = f"run `bedplate up --stack {stack.partition('.')[2]}` first"
            raise InputError(f"the stack {stack} has no {missing} yet", where=path, fix=fix)
        return value

    return pulumi.Output.all(stack.name, stack.get_output(name)).apply(check)
