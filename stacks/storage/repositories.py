"""Repositories of the standard images in ECR, and their replication from the home region to all others."""

import pulumi
from pulumi_aws.ecr.replication_configuration import ReplicationConfiguration
from pulumi_aws.ecr.repository import Repository, RepositoryArgs

from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.registries import RECIPES
from stacks.options import child_options, name_tag, retained_options


class ImageRepositories(pulumi.ComponentResource):
    """The repositories of a region, which stay when the stack is destroyed; at home also their replication."""

    def __init__(self, plan: FleetPlan, region: RegionPlan, opts: pulumi.ResourceOptions) -> None:
        label = f"{plan.name}-images"
        super().__init__("bedplate:stacks:ImageRepositories", label, None, opts)
        for recipe in RECIPES:
            name = f"{plan.name}/{recipe}"
            # The tag of an image has its digest.
            args = RepositoryArgs(name=name, image_tag_mutability="IMMUTABLE", tags=name_tag(name))
            Repository(f"{plan.name}-{recipe}", args, retained_options(self))
        others = [{"region": other.name, "registry_id": plan.account} for other in plan.regions if not other.home]
        if region.home and others:
            filters = [{"filter": f"{plan.name}/", "filter_type": "PREFIX_MATCH"}]
            rules = [{"destinations": others, "repository_filters": filters}]
            ReplicationConfiguration(label, child_options(self), replication_configuration={"rules": rules})
        self.register_outputs({})
