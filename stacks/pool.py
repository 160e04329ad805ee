"""A pool: a launch template and the Auto Scaling group that launches from it."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws.autoscaling.group import Group
from pulumi_aws.ec2.launch_template import LaunchTemplate

from bedplate.catalog import Catalog
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan
from bedplate.plan.timetable import timetable
from stacks.clock import wind
from stacks.hooks import keep_hooks, pool_hooks
from stacks.options import inside, scaling_group
from stacks.placement import placement_group
from stacks.scaling import Template, group_args, owned_elsewhere
from stacks.shortage import watch_launches
from stacks.template import NodeBase, Start, template_args


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
