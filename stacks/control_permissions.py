"""What the control plane's machines may do in AWS, beside what every node may."""

from collections.abc import Iterator

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.from_zero import ENABLED
from stacks.arn import arn
from stacks.extent import anywhere_in, groups_of, of_fleet
from stacks.policy import Statement
from stacks.tags import FLEET, MEMBER

# What the AWS cloud controller asks of nodes; load balancers, and routes to pods, are not for it to make.
# Source: https://cloud-provider-aws.sigs.k8s.io/prerequisites/, read 2026-11.
_CLOUD_CONTROLLER = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceTopology",
    "ec2:DescribeRegions",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumes",
    "ec2:DescribeVpcs",
)
# What cluster-autoscaler asks to know a group that has no machine yet.
# Source: https://github.com/kubernetes/autoscaler, cluster-autoscaler/cloudprovider/aws/README.md, read 2026-11.
_AUTOSCALER = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeScalingActivities",
    "autoscaling:DescribeTags",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)


def control_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the statements that the control plane's role has alone."""
    home = plan.home.name
    yield Statement(
        sid="HoldOwnVolume",
        actions=("ec2:AttachVolume", "ec2:DetachVolume"),
        resources=(arn(plan, "ec2", home, "instance/*"), arn(plan, "ec2", home, "volume/*")),
        conditions={
            "StringEquals": {f"aws:ResourceTag/{FLEET}": (plan.name,)},
            "StringLike": {f"aws:ResourceTag/{MEMBER}": ("control-*",)},
        },
    )
    yield Statement(
        sid="ScaleWorkers",
        actions=("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"),
        resources=groups_of(plan),
        conditions={**of_fleet(plan), "Null": {f"aws:ResourceTag/{ENABLED}": ("false",)}},
    )
    yield anywhere_in(plan, "SeeMachines", _CLOUD_CONTROLLER)
    yield anywhere_in(plan, "SeeGroups", _AUTOSCALER)
