"""The mixed instances policy of a pool: which types it takes, in which order, bought how."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pulumi
from pulumi_aws.autoscaling._enums import Metric
from pulumi_aws.autoscaling._inputs import (
    GroupInitialLifecycleHookArgs,
    GroupInstanceRefreshArgs,
    GroupInstanceRefreshPreferencesArgs,
    GroupLaunchTemplateArgs,
    GroupMixedInstancesPolicyArgs,
    GroupMixedInstancesPolicyInstancesDistributionArgs,
    GroupMixedInstancesPolicyLaunchTemplateArgs,
    GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsAcceleratorCountArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsMemoryMibArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsVcpuCountArgs,
    GroupTagArgs,
)
from pulumi_aws.autoscaling.group import Group, GroupArgs
from pulumi_aws.autoscaling.lifecycle_hook import LifecycleHook, LifecycleHookArgs
from pulumi_aws.autoscaling.schedule import Schedule, ScheduleArgs
from pulumi_aws.ec2.launch_template import LaunchTemplate
from pulumi_aws.ec2.placement_group import PlacementGroup, PlacementGroupArgs

from bedplate.catalog import Catalog
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import Action, Likeness, Offer, PoolPlan, likeness, timetable
from bedplate.plan.registration import from_zero_tags, pool_registration
from bedplate.spec.groups import Fabric, Market
from bedplate.spec.network import Egress
from bedplate.spec.sites import Use
from stacks.alarms.alarms import watch_launches
from stacks.compute.template import NodeBase, Start, template_args
from stacks.options import inside, named, node_tags, scaling_group


def is_mixed(pool: PoolPlan) -> bool:
    """Tell whether a pool needs a policy: for several types, or for spot's strategy; a block is of one type."""
    if pool.market is Market.CAPACITY_BLOCK:
        return False
    return pool.market is Market.SPOT or len(pool.types) > 1 or pool.offer.similar


def mixture(
    pool: PoolPlan,
    template: GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs,
    catalog: Catalog,
) -> GroupMixedInstancesPolicyArgs:
    """Return the policy of a pool whose machines start from a launch template."""
    alike = likeness(pool, catalog)
    return GroupMixedInstancesPolicyArgs(
        launch_template=GroupMixedInstancesPolicyLaunchTemplateArgs(
            launch_template_specification=template, overrides=_overrides(pool, alike)
        ),
        instances_distribution=_distribution(pool.offer, alike),
    )


def _overrides(pool: PoolPlan, alike: Likeness | None) -> list[GroupMixedInstancesPolicyLaunchTemplateOverrideArgs]:
    if alike is not None:
        return [GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(instance_requirements=_requirements(alike))]
    return [GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(instance_type=name) for name in pool.types]


def _requirements(alike: Likeness) -> GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsArgs:
    """Ask for today's CPU types of that size; burstable ones are left out by AWS unless asked for."""
    vcpus, memory = alike.vcpus, alike.memory_mib
    return GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsArgs(
        vcpu_count=GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsVcpuCountArgs(
            min=vcpus[0], max=vcpus[1]
        ),
        memory_mib=GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsMemoryMibArgs(
            min=memory[0], max=memory[1]
        ),
        accelerator_count=GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsAcceleratorCountArgs(
            max=0
        ),
        bare_metal="excluded",
        cpu_manufacturers=list(alike.makers),
        instance_generations=["current"],
    )


def _distribution(offer: Offer, alike: Likeness | None) -> GroupMixedInstancesPolicyInstancesDistributionArgs:
    """Buy all on spot, or all on demand: in the order of the file, or the cheapest where types have no names."""
    if offer.market is Market.SPOT:
        return GroupMixedInstancesPolicyInstancesDistributionArgs(
            on_demand_base_capacity=0,
            on_demand_percentage_above_base_capacity=0,
            spot_allocation_strategy="price-capacity-optimized",
            spot_max_price=None if offer.max_price is None else _dollars(offer.max_price),
        )
    return GroupMixedInstancesPolicyInstancesDistributionArgs(
        on_demand_allocation_strategy="lowest-price" if alike else "prioritized",
        on_demand_base_capacity=0,
        on_demand_percentage_above_base_capacity=100,
    )


def _dollars(price: float) -> str:
    return f"{price:.4f}".rstrip("0").rstrip(".")


# The provider's word for a size that stays as it is; what is left out becomes 0.
_KEEP = -1
# The state holds the next run of an action that recurs as its start time. The provider sends that time with an update,
# and AWS refuses it once it is past. AWS knows an action by its name, so the old one must be deleted first.
# This is issue 2473 of pulumi/pulumi-aws.
_RENEWED = pulumi.ResourceOptions(replace_on_changes=["*"], delete_before_replace=True)


def wind(name: str, group: pulumi.Output[str], actions: tuple[Action, ...], parent: pulumi.Resource) -> None:
    """Declare the scheduled actions of a group."""
    for action in actions:
        title = f"{name}-{action.name}"
        options = inside(parent)
        if action.cron:
            options = pulumi.ResourceOptions.merge(options, _RENEWED)
        Schedule(title, _args(title, group, action), options)


def _args(title: str, group: pulumi.Output[str], action: Action) -> ScheduleArgs:
    return ScheduleArgs(
        autoscaling_group_name=group,
        scheduled_action_name=title,
        min_size=_size(action.sizes.min),
        max_size=_size(action.sizes.max),
        desired_capacity=_size(action.sizes.desired),
        start_time=_moment(action.at),
        end_time=_moment(action.until),
        recurrence=action.cron,
        time_zone=action.zone,
    )


def _size(size: int | None) -> int:
    return _KEEP if size is None else size


def _moment(moment: datetime | None) -> str | None:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


READY, DRAINED = "ready", "drained"
# Below the half hour after which a group that stays short rings.
_READY_SECONDS = {Use.SSH: 1500, Use.KUBERNETES: 1200}
_DRAINED_SECONDS = {Use.SSH: 300, Use.KUBERNETES: 900}
# What EC2 leaves a spot instance between its warning and its end.
_SPOT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Hook:
    """A wait at one turn of a machine's life: `seconds` at most, and `result` when nobody has reported by then."""

    name: str
    transition: str
    seconds: int
    result: str


def pool_hooks(plan: FleetPlan, pool: PoolPlan) -> tuple[Hook, ...]:
    """Return the two waits of a pool's machines; none where they have no way to report."""
    if plan.egress is Egress.NONE:
        return ()
    left = _SPOT_SECONDS if pool.market is Market.SPOT else _DRAINED_SECONDS[pool.use]
    return ready_hook(_READY_SECONDS[pool.use]), drained_hook(left)


def member_hooks(plan: FleetPlan) -> tuple[Hook, ...]:
    """Return the wait of a machine of the control plane."""
    return () if plan.egress is Egress.NONE else (ready_hook(_READY_SECONDS[Use.KUBERNETES]),)


def ready_hook(seconds: int) -> Hook:
    """Return the wait of a new machine, which ends if it stays silent."""
    return Hook(READY, "autoscaling:EC2_INSTANCE_LAUNCHING", seconds, "ABANDON")


def drained_hook(seconds: int) -> Hook:
    """Return the wait of a leaving machine, which ends all the same if it stays silent."""
    return Hook(DRAINED, "autoscaling:EC2_INSTANCE_TERMINATING", seconds, "CONTINUE")


def first_hooks(hooks: tuple[Hook, ...]) -> list[GroupInitialLifecycleHookArgs]:
    """Return hooks as a group takes them before its first machine starts."""
    return [
        GroupInitialLifecycleHookArgs(
            name=hook.name,
            lifecycle_transition=hook.transition,
            heartbeat_timeout=hook.seconds,
            default_result=hook.result,
        )
        for hook in hooks
    ]


def keep_hooks(name: str, group: pulumi.Output[str], hooks: tuple[Hook, ...], parent: pulumi.Resource) -> None:
    """Declare the same hooks as resources, by which they change later: AWS puts a hook of the same name over it."""
    for hook in hooks:
        args = LifecycleHookArgs(
            name=hook.name,
            autoscaling_group_name=group,
            lifecycle_transition=hook.transition,
            heartbeat_timeout=hook.seconds,
            default_result=hook.result,
        )
        LifecycleHook(f"{name}-{hook.name}", args, inside(parent))


GROUP_METRICS = (
    Metric.GROUP_DESIRED_CAPACITY,
    Metric.GROUP_IN_SERVICE_INSTANCES,
    Metric.GROUP_MAX_SIZE,
    Metric.GROUP_MIN_SIZE,
    Metric.GROUP_PENDING_INSTANCES,
    Metric.GROUP_TERMINATING_INSTANCES,
)
# A machine is in service once it has reported ready: it needs no more than a first look at its health.
_WARM_SECONDS = 60
_GRACE_SECONDS = 300
# After the first tenth and the first half, time to see whether what was replaced works.
_CHECKPOINTS, _CHECKPOINT_SECONDS, _KEPT_PERCENT = (10, 50, 100), 600, 90


@dataclass(frozen=True, slots=True)
class Template:
    """A launch template at one version: a number, so that a new version is a change of the group."""

    id: pulumi.Output[str]
    version: pulumi.Output[str]


def group_args(
    plan: FleetPlan,
    pool: PoolPlan,
    template: Template,
    subnet_ids: Sequence[pulumi.Output[str]],
    catalog: Catalog,
) -> GroupArgs:
    """Return the group of a pool, of which whoever scales it owns the desired capacity."""
    mixed = is_mixed(pool)
    return GroupArgs(
        name=f"{plan.name}-{pool.name}",
        min_size=pool.min,
        max_size=pool.max,
        vpc_zone_identifiers=list(subnet_ids),
        launch_template=None if mixed else GroupLaunchTemplateArgs(id=template.id, version=template.version),
        mixed_instances_policy=mixture(pool, _specification(template), catalog) if mixed else None,
        capacity_rebalance=pool.market is Market.SPOT,
        default_instance_warmup=_WARM_SECONDS,
        health_check_type="EC2",
        health_check_grace_period=_GRACE_SECONDS,
        initial_lifecycle_hooks=first_hooks(pool_hooks(plan, pool)),
        instance_refresh=_refresh() if is_renewed(pool) else None,
        protect_from_scale_in=is_protected(pool),
        suspended_processes=["AZRebalance"],
        termination_policies=["OldestLaunchTemplate", "Default"],
        wait_for_capacity_timeout="0",
        enabled_metrics=list(GROUP_METRICS),
        tags=_tags(plan, pool, catalog),
    )


def owned_elsewhere(pool: PoolPlan) -> tuple[str, ...]:
    """Return what of a group the program gives once: whoever scales it, its hooks and its hours own that later."""
    hours = ("min_size",) if pool.tenure.schedule else ()
    return ("desired_capacity", "initial_lifecycle_hooks", *hours)


def is_renewed(pool: PoolPlan) -> bool:
    """Tell whether a new template replaces machines that run: not where people work, nor under a job on the fabric."""
    return pool.use is Use.KUBERNETES and pool.fabric is None


def is_protected(pool: PoolPlan) -> bool:
    """Tell whether scaling in must leave a pool's machines alone: with a fabric, unless the clock is to end them."""
    return pool.fabric is Fabric.EFA and not timetable(pool)


def _specification(template: Template) -> GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs:
    return GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
        launch_template_id=template.id, version=template.version
    )


def _refresh() -> GroupInstanceRefreshArgs:
    preferences = GroupInstanceRefreshPreferencesArgs(
        min_healthy_percentage=_KEPT_PERCENT,
        checkpoint_percentages=list(_CHECKPOINTS),
        checkpoint_delay=str(_CHECKPOINT_SECONDS),
    )
    return GroupInstanceRefreshArgs(strategy="Rolling", preferences=preferences)


def _tags(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> list[GroupTagArgs]:
    """Return the tags that machines get too, and those of a cluster's groups that only their autoscaler reads."""
    own = node_tags(plan, pool)
    is_worker = pool.use is Use.KUBERNETES
    read = from_zero_tags(plan.name, pool_registration(pool, catalog)) if is_worker else {}
    return [
        GroupTagArgs(key=key, value=value, propagate_at_launch=key in own)
        for key, value in sorted((own | read).items())
    ]


_FREE = (Market.ON_DEMAND, Market.SPOT)


def placement_group(plan: FleetPlan, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str] | None:
    """Declare the group of a pool that may have one, and return its name."""
    if pool.fabric is not Fabric.EFA or pool.market not in _FREE:
        return None
    name = f"{plan.name}-{pool.name}"
    args = PlacementGroupArgs(name=name, strategy="cluster", tags=named(name))
    return PlacementGroup(name, args, inside(parent)).name


@dataclass(frozen=True, slots=True)
class PoolParts:
    """What a pool is made with; machines start only once their way to the internet, `egress`, is there."""

    start: Start
    base: NodeBase
    subnet_ids: Mapping[str, pulumi.Output[str]]
    egress: pulumi.Resource
    topic_arn: pulumi.Output[str]
    catalog: Catalog


class Pool(pulumi.ComponentResource):
    """The machines of one rung of a group's ladder."""

    group_name: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, pool: PoolPlan, parts: PoolParts, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-{pool.name}"
        super().__init__("bedplate:stacks:Pool", name, None, opts)
        near = placement_group(plan, pool, self)
        launch = LaunchTemplate(name, template_args(plan, pool, parts.base, parts.start, near), inside(self))
        template = Template(launch.id, launch.latest_version.apply(str))
        subnet_ids = [parts.subnet_ids[zone] for zone in sorted(pool.zones)]
        group = Group(
            name,
            group_args(plan, pool, template, subnet_ids, parts.catalog),
            scaling_group(self, after=(parts.egress,), ignore=owned_elsewhere(pool)),
        )
        self.group_name = group.name
        keep_hooks(name, group.name, pool_hooks(plan, pool), self)
        wind(name, group.name, timetable(pool), self)
        watch_launches(name, group.name, parts.topic_arn, self)
        self.register_outputs({"group_name": self.group_name})
