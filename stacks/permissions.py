"""What each kind of node may do in AWS, derived from the plan.

Regions are made after this policy, so what they hold is known by its name, its tags or its alias.
"""

from collections.abc import Iterator

from bedplate.plan.fleet import FleetPlan
from bedplate.spec.site import Use
from stacks.arn import arn, bucket_arn
from stacks.key import alias_name
from stacks.policy import Conditions, Statement
from stacks.tags import FLEET

# What Session Manager and Run Command need; AWS's AmazonSSMManagedInstanceCore also lets a node read every
# parameter of the account. Source:
# https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonSSMManagedInstanceCore.html
_SESSION = (
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)


# A gateway carries packets; it has no business with anybody's data.
GATEWAY = "gateway"
KINDS = (*(use.value for use in Use), GATEWAY)


def permissions(plan: FleetPlan, kind: str) -> tuple[Statement, ...]:
    """Return the statements of the policy of a kind of node."""
    data = () if kind == GATEWAY else (*_objects(plan), *_files(plan))
    return (*data, *_parameters(plan), *_own_life(plan), *_sessions(plan))


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


def _files(plan: FleetPlan) -> Iterator[Statement]:
    if not plan.files:
        return
    regions = sorted({files.region for files in plan.files})
    yield Statement(
        sid="MountFiles",
        actions=(
            "elasticfilesystem:ClientMount",
            "elasticfilesystem:ClientRootAccess",
            "elasticfilesystem:ClientWrite",
        ),
        resources=tuple(arn(plan, "elasticfilesystem", region, "file-system/*") for region in regions),
        conditions=_of_fleet(plan),
    )


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
        resources=tuple(
            arn(plan, "autoscaling", region, f"autoScalingGroup:*:autoScalingGroupName/{plan.name}-*")
            for region in _regions(plan)
        ),
        conditions=_of_fleet(plan),
    )


def _sessions(plan: FleetPlan) -> Iterator[Statement]:
    yield Statement(
        sid="ReportToSystemsManager",
        actions=("ssm:ListInstanceAssociations", "ssm:UpdateInstanceInformation"),
        resources=tuple(arn(plan, "ec2", region, "instance/*") for region in _regions(plan)),
    )
    # These four know no resources: a channel is its caller's own.
    yield Statement(
        sid="HoldSessions",
        actions=_SESSION,
        resources=("*",),
        conditions={"StringEquals": {"aws:RequestedRegion": _regions(plan)}},
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


def _of_fleet(plan: FleetPlan) -> Conditions:
    return {"StringEquals": {f"aws:ResourceTag/{FLEET}": (plan.name,)}}


def _regions(plan: FleetPlan) -> tuple[str, ...]:
    return tuple(sorted(region.name for region in plan.regions))
