"""The mixed instances policy of a pool: which types it takes, in which order, bought how."""

from pulumi_aws.autoscaling._inputs import (
    GroupMixedInstancesPolicyArgs,
    GroupMixedInstancesPolicyInstancesDistributionArgs,
    GroupMixedInstancesPolicyLaunchTemplateArgs,
    GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsAcceleratorCountArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsMemoryMibArgs,
    GroupMixedInstancesPolicyLaunchTemplateOverrideInstanceRequirementsVcpuCountArgs,
)

from bedplate.catalog import Catalog
from bedplate.plan.likeness import Likeness, likeness
from bedplate.plan.pool import Offer, PoolPlan
from bedplate.spec.group import Market


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
