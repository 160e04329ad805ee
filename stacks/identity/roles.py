"""How far a permission of the fleet's roles goes: its regions, its groups, what bears its tag."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import pulumi
from pulumi_aws.iam.instance_profile import InstanceProfile, InstanceProfileArgs
from pulumi_aws.iam.role import Role, RoleArgs
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.registration import ENABLED
from bedplate.spec.sites import Use
from stacks.identity.policy import Conditions, Statement, alias_name, arn, bucket_arn, policy
from stacks.options import FLEET, MEMBER, inside, named, output_of


def regions_of(plan: FleetPlan) -> tuple[str, ...]:
    """Return the names of the fleet's regions, sorted."""
    return tuple(sorted(region.name for region in plan.regions))


def groups_of(plan: FleetPlan) -> tuple[str, ...]:
    """Return the ARNs of whatever Auto Scaling groups the fleet has, made before or after the policy."""
    named = f"autoScalingGroup:*:autoScalingGroupName/{plan.name}-*"
    return tuple(arn(plan, "autoscaling", region, named) for region in regions_of(plan))


def of_fleet(plan: FleetPlan) -> Conditions:
    """Return the condition that a resource bears the fleet's tag."""
    return {"StringEquals": {f"aws:ResourceTag/{FLEET}": (plan.name,)}}


def anywhere_in(plan: FleetPlan, sid: str, actions: tuple[str, ...]) -> Statement:
    """Allow actions that know no resources, within the fleet's regions."""
    return Statement(
        sid=sid,
        actions=actions,
        resources=("*",),
        conditions={"StringEquals": {"aws:RequestedRegion": regions_of(plan)}},
    )


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


# What Session Manager and Run Command need; AWS's AmazonSSMManagedInstanceCore also lets a node read every
# parameter of the account. Source:
# https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonSSMManagedInstanceCore.html
_SESSION = (
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
GATEWAY = "gateway"
CONTROL = "control-plane"
KINDS = (*(use.value for use in Use), CONTROL, GATEWAY)


def kinds(plan: FleetPlan) -> tuple[str, ...]:
    """Return the kinds of node that a fleet has roles for."""
    return tuple(kind for kind in KINDS if kind != CONTROL or plan.control_plane)


def permissions(plan: FleetPlan, kind: str) -> tuple[Statement, ...]:
    """Return the statements of the policy of a kind of node."""
    return (*_OF_KIND[kind](plan), *_parameters(plan), *_own_life(plan), *_sessions(plan))


def _people(plan: FleetPlan) -> Iterator[Statement]:
    """Yield what a machine that people log in to may do: it sees who runs, to tell whose name is free."""
    yield from _objects(plan)
    yield anywhere_in(plan, "SeeMachines", ("ec2:DescribeInstances",))


def data_kinds(plan: FleetPlan) -> tuple[str, ...]:
    """Return the kinds of nodes whose policy lets them at objects of buckets."""
    return tuple(kind for kind in KINDS if any(one.sid == "UseObjects" for one in permissions(plan, kind)))


def _objects(plan: FleetPlan) -> Iterator[Statement]:
    if not plan.buckets:
        return
    buckets = tuple(sorted(bucket_arn(bucket.name) for bucket in plan.buckets))
    regions = sorted({bucket.region for bucket in plan.buckets})
    yield Statement(
        sid="ListBuckets",
        actions=("s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"),
        resources=buckets,
    )
    yield Statement(
        sid="UseObjects",
        actions=(
            "s3:AbortMultipartUpload",
            "s3:DeleteObject",
            "s3:GetObject",
            "s3:ListMultipartUploadParts",
            "s3:PutObject",
        ),
        resources=tuple(f"{bucket}/*" for bucket in buckets),
    )
    yield through_key(plan, "s3", tuple(regions), "data", ("kms:Decrypt", "kms:GenerateDataKey"))


def _parameters(plan: FleetPlan) -> Iterator[Statement]:
    home = plan.home.name
    yield Statement(
        sid="ReadParameters",
        actions=("ssm:GetParameter", "ssm:GetParameters", "ssm:GetParametersByPath"),
        resources=(
            arn(plan, "ssm", home, f"parameter/{plan.name}"),
            arn(plan, "ssm", home, f"parameter/{plan.name}/*"),
        ),
    )
    yield through_key(plan, "ssm", (home,), "parameters", ("kms:Decrypt",))


def _own_life(plan: FleetPlan) -> Iterator[Statement]:
    yield Statement(
        sid="AnswerLifecycleHooks",
        actions=("autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"),
        resources=groups_of(plan),
        conditions=of_fleet(plan),
    )


def _sessions(plan: FleetPlan) -> Iterator[Statement]:
    yield Statement(
        sid="ReportToSystemsManager",
        actions=("ssm:ListInstanceAssociations", "ssm:UpdateInstanceInformation"),
        resources=tuple(arn(plan, "ec2", region, "instance/*") for region in regions_of(plan)),
    )
    # These four know no resources: a channel is its caller's own.
    yield anywhere_in(plan, "HoldSessions", _SESSION)


def _nothing(plan: FleetPlan) -> Iterator[Statement]:  # noqa: ARG001  # the form of the table
    yield from ()


# What one kind may do and no other; a gateway and the control plane have no business with anybody's data.
_OF_KIND: Mapping[str, Callable[[FleetPlan], Iterator[Statement]]] = MappingProxyType(
    {Use.SSH.value: _people, Use.KUBERNETES.value: _objects, CONTROL: control_permissions, GATEWAY: _nothing}
)


def through_key(
    plan: FleetPlan, service: str, regions: tuple[str, ...], key: str, actions: tuple[str, ...]
) -> Statement:
    """Allow a key of the fleet, known by its alias, and only when the service asks on the node's behalf."""
    return Statement(
        sid=f"Use{key.capitalize()}Key",
        actions=actions,
        resources=tuple(arn(plan, "kms", region, "key/*") for region in regions),
        conditions={
            "StringEquals": {"kms:ViaService": tuple(f"{service}.{region}.amazonaws.com" for region in regions)},
            "ForAnyValue:StringEquals": {"kms:ResourceAliases": (alias_name(plan, key),)},
        },
    )


_TRUST = Statement(sid="BeAnInstance", principals={"Service": ("ec2.amazonaws.com",)}, actions=("sts:AssumeRole",))


def profile_of(shared: pulumi.StackReference, kind: str) -> pulumi.Output[str]:
    """Return the ARN of the profile of a kind of node (ssh, kubernetes, gateway), which `shared` makes."""
    return output_of(shared, "profile_arns").apply(lambda profiles: str(profiles[kind]))


class NodeRole(pulumi.ComponentResource):
    """A role that only EC2 may hand out, with what one kind of node may do and no more."""

    role_arn: pulumi.Output[str]
    profile_arn: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, kind: str, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-{kind}"
        super().__init__("bedplate:stacks:NodeRole", name, None, opts)
        role = Role(
            name,
            RoleArgs(
                name=name,
                description=f"{kind} nodes of the fleet {plan.name}",
                assume_role_policy=policy(_TRUST),
                permissions_boundary=plan.boundary,
                tags=named(name),
            ),
            inside(self),
        )
        RolePolicy(
            name,
            RolePolicyArgs(name=name, role=role.name, policy=policy(*permissions(plan, kind))),
            inside(self),
        )
        profile = InstanceProfile(name, InstanceProfileArgs(name=name, role=role.name, tags=named(name)), inside(self))
        self.role_arn, self.profile_arn = role.arn, profile.arn
        self.register_outputs({"role_arn": self.role_arn, "profile_arn": self.profile_arn})
