"""What each kind of node may do in AWS, derived from the plan.

Regions are made after this policy, so what they hold is known by its name, its tags or its alias.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from bedplate.plan.fleet import FleetPlan
from bedplate.spec.site import Use
from stacks.arn import arn, bucket_arn
from stacks.control_permissions import control_permissions
from stacks.extent import anywhere_in, groups_of, of_fleet, regions_of
from stacks.key import alias_name
from stacks.policy import Statement

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
