"""The Auto Scaling group of a pool: instance types and market, scheduled actions, lifecycle hooks.

A rung of a group's ladder has one pool in its region; with EFA, one in each zone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pulumi
from pulumi_aws.autoscaling._enums import Metric
from pulumi_aws.autoscaling._inputs import (
    GroupInitialLifecycleHookArgs,
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
from bedplate.plan.pools import (
    InstanceRequirements,
    PoolPlan,
    ScheduledAction,
    instance_requirements,
    scheduled_actions,
)
from bedplate.plan.registration import from_zero_tags, pool_registration
from bedplate.spec.groups import Fabric, Rung
from bedplate.spec.network import Egress
from bedplate.spec.sites import Use
from stacks.alarms import alarm_on_failed_gates, alarm_on_missing_instances
from stacks.compute.template import NodeBase, Start, template_args
from stacks.options import child_options, name_tag, node_tags, scaling_group_options


def is_mixed(pool: PoolPlan) -> bool:
    """Return whether a pool needs a mixed instances policy: for several types, `similar` or spot."""
    if pool.market.is_block:
        return False
    return pool.market.is_spot or len(pool.types) > 1 or pool.group_spec.similar


def mixed_instances_policy(
    pool: PoolPlan,
    template: "Template",
    catalog: Catalog,
) -> GroupMixedInstancesPolicyArgs:
    """Return the mixed instances policy of a pool."""
    requirements = instance_requirements(pool, catalog)
    specification = GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
        launch_template_id=template.id, version=template.version
    )
    return GroupMixedInstancesPolicyArgs(
        launch_template=GroupMixedInstancesPolicyLaunchTemplateArgs(
            launch_template_specification=specification, overrides=_overrides(pool, requirements)
        ),
        instances_distribution=_distribution(pool.rung_spec, requirements),
    )


def _overrides(
    pool: PoolPlan, requirements: InstanceRequirements | None
) -> list[GroupMixedInstancesPolicyLaunchTemplateOverrideArgs]:
    if requirements is not None:
        return [GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(instance_requirements=_requirements(requirements))]
    return [GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(instance_type=name) for name in pool.types]


def _requirements(
    requirements: InstanceRequirements,
) -> GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsArgs:
    """Require current CPU types of that size; AWS excludes burstable types by default."""
    vcpus, memory = requirements.vcpus, requirements.memory_mib
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
        cpu_manufacturers=list(requirements.makers),
        instance_generations=["current"],
    )


def _distribution(
    rung: Rung, requirements: InstanceRequirements | None
) -> GroupMixedInstancesPolicyInstancesDistributionArgs:
    """Use spot only, or on-demand only: types in the file's order, or by instance requirements the cheapest."""
    if rung.market.is_spot:
        return GroupMixedInstancesPolicyInstancesDistributionArgs(
            on_demand_base_capacity=0,
            on_demand_percentage_above_base_capacity=0,
            spot_allocation_strategy="price-capacity-optimized",
            spot_max_price=None if rung.max_price is None else _dollars(rung.max_price),
        )
    return GroupMixedInstancesPolicyInstancesDistributionArgs(
        on_demand_allocation_strategy="lowest-price" if requirements else "prioritized",
        on_demand_base_capacity=0,
        on_demand_percentage_above_base_capacity=100,
    )


def _dollars(price: float) -> str:
    return f"{price:.4f}".rstrip("0").rstrip(".")


# The provider leaves a size of -1 unchanged; a missing size becomes 0.
_UNCHANGED = -1
# The state has the next run of a recurring action as its start time. The provider sends this time in an update, and AWS
# refuses it when it is in the past. The name of an action is unique, so the old one is deleted first.
# See issue 2473 of pulumi/pulumi-aws.
_REPLACE_ON_CHANGE = pulumi.ResourceOptions(replace_on_changes=["*"], delete_before_replace=True)


def declare_schedules(
    name: str, group: pulumi.Output[str], actions: tuple[ScheduledAction, ...], parent: pulumi.Resource
) -> None:
    """Declare the scheduled actions of a group."""
    for action in actions:
        schedule_name = f"{name}-{action.name}"
        options = child_options(parent)
        if action.cron:
            options = pulumi.ResourceOptions.merge(options, _REPLACE_ON_CHANGE)
        Schedule(schedule_name, _schedule_args(schedule_name, group, action), options)


def _schedule_args(schedule_name: str, group: pulumi.Output[str], action: ScheduledAction) -> ScheduleArgs:
    return ScheduleArgs(
        autoscaling_group_name=group,
        scheduled_action_name=schedule_name,
        min_size=_size(action.sizes.min),
        max_size=_size(action.sizes.max),
        desired_capacity=_size(action.sizes.desired),
        start_time=_timestamp(action.at),
        end_time=_timestamp(action.until),
        recurrence=action.cron,
        time_zone=action.zone,
    )


def _size(size: int | None) -> int:
    return _UNCHANGED if size is None else size


def _timestamp(time: datetime | None) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ") if time else None


READY, DRAINED = "ready", "drained"
# Seconds between the interruption notice of a spot instance and its end.
_SPOT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Hook:
    """A lifecycle hook: it waits at most `seconds` for a report of the instance, then acts on `result`."""

    name: str
    transition: str
    seconds: int
    result: str


def pool_hooks(plan: FleetPlan, pool: PoolPlan) -> tuple[Hook, ...]:
    """Return the hooks of a pool; none if its instances cannot reach AWS to report."""
    if plan.egress is Egress.NONE:
        return ()
    ready_seconds, drain_seconds = _hook_seconds(pool.use)
    return ready_hook(ready_seconds), drained_hook(_SPOT_SECONDS if pool.market.is_spot else drain_seconds)


def _hook_seconds(use: Use) -> tuple[int, int]:
    """Return how long instances may take to report ready and drained.

    The first is shorter than the 30 minutes after which missing instances trigger an alarm.
    """
    match use:
        case Use.SSH:
            return 1500, 300
        case Use.KUBERNETES:
            return 1200, 900


def permanent_hooks(plan: FleetPlan, *, has_public_address: bool = False) -> tuple[Hook, ...]:
    """Return the hooks of a permanent machine; none if it cannot reach AWS to report."""
    if plan.egress is Egress.NONE and not has_public_address:
        return ()
    return (ready_hook(_hook_seconds(Use.KUBERNETES)[0]),)


def ready_hook(seconds: int) -> Hook:
    """Return the hook of a new instance, which is terminated if it does not report."""
    return Hook(READY, "autoscaling:EC2_INSTANCE_LAUNCHING", seconds, "ABANDON")


def drained_hook(seconds: int) -> Hook:
    """Return the hook of a terminating instance, which is terminated even if it does not report."""
    return Hook(DRAINED, "autoscaling:EC2_INSTANCE_TERMINATING", seconds, "CONTINUE")


def initial_hooks(hooks: tuple[Hook, ...]) -> list[GroupInitialLifecycleHookArgs]:
    """Return hooks as initial hooks of a group, which apply to its first instances."""
    return [
        GroupInitialLifecycleHookArgs(
            name=hook.name,
            lifecycle_transition=hook.transition,
            heartbeat_timeout=hook.seconds,
            default_result=hook.result,
        )
        for hook in hooks
    ]


def declare_hooks(name: str, group: pulumi.Output[str], hooks: tuple[Hook, ...], parent: pulumi.Resource) -> None:
    """Declare the same hooks as resources, which can be updated: AWS replaces a hook of the same name."""
    for hook in hooks:
        args = LifecycleHookArgs(
            name=hook.name,
            autoscaling_group_name=group,
            lifecycle_transition=hook.transition,
            heartbeat_timeout=hook.seconds,
            default_result=hook.result,
        )
        LifecycleHook(f"{name}-{hook.name}", args, child_options(parent))


GROUP_METRICS = (
    Metric.GROUP_DESIRED_CAPACITY,
    Metric.GROUP_IN_SERVICE_INSTANCES,
    Metric.GROUP_MAX_SIZE,
    Metric.GROUP_MIN_SIZE,
    Metric.GROUP_PENDING_INSTANCES,
    Metric.GROUP_TERMINATING_INSTANCES,
)
# An instance is in service after it has reported ready, so one health check is enough.
_WARMUP_SECONDS = 60
_GRACE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Template:
    """A launch template and a version. A number, not `$Latest`: Pulumi then updates the group with each version."""

    id: pulumi.Output[str]
    version: pulumi.Output[str]


def group_args(
    plan: FleetPlan,
    pool: PoolPlan,
    template: Template,
    subnet_ids: Sequence[pulumi.Output[str]],
    catalog: Catalog,
) -> GroupArgs:
    """Return the group of a pool; autoscalers and operators set its desired capacity."""
    mixed = is_mixed(pool)
    return GroupArgs(
        name=f"{plan.name}-{pool.name}",
        min_size=pool.min,
        max_size=pool.max,
        vpc_zone_identifiers=list(subnet_ids),
        launch_template=None if mixed else GroupLaunchTemplateArgs(id=template.id, version=template.version),
        mixed_instances_policy=mixed_instances_policy(pool, template, catalog) if mixed else None,
        capacity_rebalance=pool.market.is_spot,
        default_instance_warmup=_WARMUP_SECONDS,
        health_check_type="EC2",
        health_check_grace_period=_GRACE_SECONDS,
        initial_lifecycle_hooks=initial_hooks(pool_hooks(plan, pool)),
        protect_from_scale_in=is_protected(pool),
        suspended_processes=["AZRebalance"],
        termination_policies=["OldestLaunchTemplate", "Default"],
        wait_for_capacity_timeout="0",
        enabled_metrics=list(GROUP_METRICS),
        tags=_tags(plan, pool, catalog),
    )


def ignored_inputs(pool: PoolPlan) -> tuple[str, ...]:
    """Return the inputs that are set once: autoscalers, hook resources and schedules change them later."""
    scheduled = ("min_size",) if pool.group_spec.schedule else ()
    return ("desired_capacity", "initial_lifecycle_hooks", *scheduled)


def is_protected(pool: PoolPlan) -> bool:
    """Tell whether instances are protected from scale in: on a fabric, unless a schedule ends them."""
    return pool.fabric is Fabric.EFA and not scheduled_actions(pool)


def _tags(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> list[GroupTagArgs]:
    """Return the tags for instances, and for Kubernetes the tags that only the cluster autoscaler reads."""
    instance_tags = node_tags(plan, pool)
    autoscaler_tags = from_zero_tags(plan.name, pool_registration(pool, catalog)) if pool.use.is_worker else {}
    return [
        GroupTagArgs(key=key, value=value, propagate_at_launch=key in instance_tags)
        for key, value in sorted((instance_tags | autoscaler_tags).items())
    ]


def placement_group(plan: FleetPlan, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str] | None:
    """Declare the placement group of a pool with EFA; return its name, or None."""
    if pool.fabric is not Fabric.EFA or pool.market.is_reserved:
        return None
    name = f"{plan.name}-{pool.name}"
    args = PlacementGroupArgs(name=name, strategy="cluster", tags=name_tag(name))
    return PlacementGroup(name, args, child_options(parent)).name


@dataclass(frozen=True, slots=True)
class PoolInputs:
    """The resources that a pool depends on; instances start after `egress`, to reach the internet."""

    start: Start
    base: NodeBase
    subnet_ids: Mapping[str, pulumi.Output[str]]
    egress: pulumi.Resource
    topic_arn: pulumi.Output[str]
    catalog: Catalog


class Pool(pulumi.ComponentResource):
    """The launch template and Auto Scaling group of one pool."""

    group_name: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, pool: PoolPlan, inputs: PoolInputs, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-{pool.name}"
        super().__init__("bedplate:stacks:Pool", name, None, opts)
        placement = placement_group(plan, pool, self)
        launch_template = LaunchTemplate(
            name, template_args(plan, pool, inputs.base, inputs.start, placement), child_options(self)
        )
        version = Template(launch_template.id, launch_template.latest_version.apply(str))
        subnet_ids = [inputs.subnet_ids[zone] for zone in sorted(pool.zones)]
        group = Group(
            name,
            group_args(plan, pool, version, subnet_ids, inputs.catalog),
            scaling_group_options(self, after=(inputs.egress,), ignore=ignored_inputs(pool)),
        )
        self.group_name = group.name
        declare_hooks(name, group.name, pool_hooks(plan, pool), self)
        declare_schedules(name, group.name, scheduled_actions(pool), self)
        price = max((inputs.catalog.price(type_name) or 0.0 for type_name in pool.types), default=0.0)
        alarm_on_missing_instances(name, group.name, inputs.topic_arn, self, price)
        alarm_on_failed_gates(plan, (name, pool.region), inputs.topic_arn, self, price)
        self.register_outputs({"group_name": self.group_name})
