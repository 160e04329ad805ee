"""The AWS provider of a stack: one region, one account, the stack's tags."""

import pulumi
from pulumi_aws._inputs import ProviderDefaultTagsArgs
from pulumi_aws.provider import Provider, ProviderArgs

from bedplate.plan.fleet import FleetPlan
from stacks.tags import stack_tags


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
