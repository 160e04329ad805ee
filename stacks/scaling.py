"""The Auto Scaling group of a pool: how many machines, of which types, bought how, in which subnets."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws.autoscaling._enums import Metric
from pulumi_aws.autoscaling._inputs import (
    GroupLaunchTemplateArgs,
    GroupMixedInstancesPolicyArgs,
    GroupMixedInstancesPolicyInstancesDistributionArgs,
    GroupMixedInstancesPolicyLaunchTemplateArgs,
    GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideArgs,
    GroupTagArgs,
)
from pulumi_aws.autoscaling.group import GroupArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan
from bedplate.spec.group import Fabric, Market
from stacks.tags import node_tags

GROUP_METRICS = (
    Metric.GROUP_DESIRED_CAPACITY,
    Metric.GROUP_IN_SERVICE_INSTANCES,
    Metric.GROUP_MAX_SIZE,
    Metric.GROUP_MIN_SIZE,
    Metric.GROUP_PENDING_INSTANCES,
    Metric.GROUP_TERMINATING_INSTANCES,
)


@dataclass(frozen=True, slots=True)
class Template:
    """A launch template at one version: a number, so that a new version is a change of the group."""

    id: pulumi.Output[str]
    version: pulumi.Output[str]


def group_args(
    plan: FleetPlan, pool: PoolPlan, template: Template, subnet_ids: Sequence[pulumi.Output[str]]
) -> GroupArgs:
    """Return the group of a pool, of which whoever scales it owns the desired capacity."""
    mixed = is_mixed(pool)
    return GroupArgs(
        name=f"{plan.name}-{pool.name}",
        min_size=pool.min,
        max_size=pool.max,
        vpc_zone_identifiers=list(subnet_ids),
        launch_template=None if mixed else GroupLaunchTemplateArgs(id=template.id, version=template.version),
        mixed_instances_policy=_mixed(pool, template) if mixed else None,
        capacity_rebalance=pool.market is Market.SPOT,
        health_check_type="EC2",
        protect_from_scale_in=pool.fabric is Fabric.EFA,
        suspended_processes=["AZRebalance"],
        termination_policies=["OldestLaunchTemplate", "Default"],
        wait_for_capacity_timeout="0",
        enabled_metrics=list(GROUP_METRICS),
        tags=_tags(plan, pool),
    )


def is_mixed(pool: PoolPlan) -> bool:
    """Tell whether a pool needs a mixed instances policy: for several types, or for spot's strategy."""
    return pool.market is Market.SPOT or len(pool.types) > 1


def _mixed(pool: PoolPlan, template: Template) -> GroupMixedInstancesPolicyArgs:
    specification = GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
        launch_template_id=template.id, version=template.version
    )
    overrides = [GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(instance_type=name) for name in pool.types]
    return GroupMixedInstancesPolicyArgs(
        launch_template=GroupMixedInstancesPolicyLaunchTemplateArgs(
            launch_template_specification=specification, overrides=overrides
        ),
        instances_distribution=_distribution(pool.market),
    )


def _distribution(market: Market) -> GroupMixedInstancesPolicyInstancesDistributionArgs:
    """Buy all on spot, or all on demand in the order of the file."""
    if market is Market.SPOT:
        return GroupMixedInstancesPolicyInstancesDistributionArgs(
            on_demand_base_capacity=0,
            on_demand_percentage_above_base_capacity=0,
            spot_allocation_strategy="price-capacity-optimized",
        )
    return GroupMixedInstancesPolicyInstancesDistributionArgs(
        on_demand_allocation_strategy="prioritized",
        on_demand_base_capacity=0,
        on_demand_percentage_above_base_capacity=100,
    )


def _tags(plan: FleetPlan, pool: PoolPlan) -> list[GroupTagArgs]:
    tags = node_tags(plan, pool)
    return [GroupTagArgs(key=key, value=tags[key], propagate_at_launch=True) for key in sorted(tags)]
