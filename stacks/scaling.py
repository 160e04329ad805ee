"""The Auto Scaling group of a pool: how many machines there are, in which subnets, and what may end them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws.autoscaling._enums import Metric
from pulumi_aws.autoscaling._inputs import (
    GroupInstanceRefreshArgs,
    GroupInstanceRefreshPreferencesArgs,
    GroupLaunchTemplateArgs,
    GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs,
    GroupTagArgs,
)
from pulumi_aws.autoscaling.group import GroupArgs

from bedplate.catalog import Catalog
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.from_zero import from_zero_tags
from bedplate.plan.pool import PoolPlan
from bedplate.plan.registration import pool_registration
from bedplate.plan.timetable import timetable
from bedplate.spec.group import Fabric, Market
from bedplate.spec.site import Use
from stacks.hooks import first_hooks, pool_hooks
from stacks.mixture import is_mixed, mixture
from stacks.tags import node_tags

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
