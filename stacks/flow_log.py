"""The record of what flows in a VPC, and the role by which AWS writes it."""

import pulumi
from pulumi_aws.cloudwatch.log_group import LogGroup, LogGroupArgs
from pulumi_aws.ec2.flow_log import FlowLog, FlowLogArgs

from bedplate.plan.fleet import FleetPlan
from stacks.arn import arn
from stacks.options import inside
from stacks.policy import Statement
from stacks.service_role import Errand, service_role
from stacks.tags import named

KEPT_DAYS = 30
_WRITE = ("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")


def group_name(plan: FleetPlan) -> str:
    """Return the log group of each region's flows."""
    return f"/{plan.name}/flows"


def role_name(plan: FleetPlan) -> str:
    """Return the name of the role that writes flows: known before `shared` makes it."""
    return f"{plan.name}-flows"


class FlowRole(pulumi.ComponentResource):
    """A role that the flow logs of this account take on, to write to the fleet's own groups."""

    def __init__(self, plan: FleetPlan, opts: pulumi.ResourceOptions) -> None:
        name = role_name(plan)
        super().__init__("bedplate:stacks:FlowRole", name, None, opts)
        errand = Errand(
            role=name,
            description=f"Flow logs of the fleet {plan.name}",
            service="vpc-flow-logs.amazonaws.com",
            sid="BeFlowLogs",
            permissions=(finding(plan), writing(plan)),
        )
        service_role(plan, errand, self)
        self.register_outputs({})


def finding(plan: FleetPlan) -> Statement:
    """Return how the role finds its group: AWS asks for the right to list them, which knows no single group."""
    groups = tuple(sorted(arn(plan, "logs", region.name, "log-group:*") for region in plan.regions))
    return Statement(sid="FindGroups", actions=("logs:DescribeLogGroups",), resources=groups)


def writing(plan: FleetPlan) -> Statement:
    """Return what the role may do: write to the group of flows, in each region of the fleet."""
    groups = (arn(plan, "logs", region.name, f"log-group:{group_name(plan)}") for region in plan.regions)
    resources = tuple(sorted(name for group in groups for name in (group, f"{group}:*")))
    return Statement(sid="WriteFlows", actions=_WRITE, resources=resources)


class FlowRecord(pulumi.ComponentResource):
    """Every flow of a VPC, refused ones too, in a log group that forgets."""

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-flows"
        super().__init__("bedplate:stacks:FlowRecord", name, None, opts)
        log = LogGroupArgs(name=group_name(plan), retention_in_days=KEPT_DAYS, tags=named(group_name(plan)))
        group = LogGroup(name, log, inside(self))
        args = FlowLogArgs(
            vpc_id=vpc_id,
            traffic_type="ALL",
            log_destination=group.arn,
            iam_role_arn=arn(plan, "iam", "", f"role/{role_name(plan)}"),
            tags=named(name),
        )
        FlowLog(name, args, inside(self))
        self.register_outputs({})
