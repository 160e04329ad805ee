"""The permissions of a fleet's roles, as statements and JSON texts of IAM policies: of nodes, pods and replication.

Nodes have a role for each kind: ssh, kubernetes, gateway, hub, and each control plane member. Permissions are limited
to the regions of the fleet, to its resources by name, or to resources with its tag.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from bedplate.plan.capacity import ends_itself
from bedplate.plan.cluster import join_parameter, person_name
from bedplate.plan.fleet import ControlPlaneMember, FleetPlan
from bedplate.plan.hub import HUB_DUMPS, HUB_FILES, HUB_HOST, HubPlan
from bedplate.plan.issuer import has_pod_roles, pod_role_name
from bedplate.plan.links import ssh_patterns, ssh_pools
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST
from bedplate.plan.pools import FLEET, GROUP, MEMBER, PAUSED, USE, bucket_name
from bedplate.plan.registration import ENABLED
from bedplate.plan.registries import ACCOUNTS_OF_AWS
from bedplate.plan.stores import NODES_STORE, BucketPlan
from bedplate.spec.sites import Use

# Condition operator to key to values, as in {"Bool": {"aws:SecureTransport": ("false",)}}.
Conditions = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement; `principals` maps a type (AWS, Service) to names, and is empty in policies of a role."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ()
    effect: Literal["Allow", "Deny"] = "Allow"
    principals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Return the statement in JSON form."""
        parts: dict[str, object] = {
            "Sid": self.sid,
            "Effect": self.effect,
            "Principal": self.principals,
            "Action": self.actions,
            "Resource": self.resources,
            "Condition": self.conditions,
        }
        return {name: part for name, part in parts.items() if part}


def policy(*statements: Statement) -> str:
    """Return the JSON text of a policy."""
    document = {"Version": "2012-10-17", "Statement": [statement.document() for statement in statements]}
    return json.dumps(document, sort_keys=True)


def arn(plan: FleetPlan, service: str, region: str, resource: str) -> str:
    """Return the ARN of a resource in the fleet's account; `region` is empty for a global service."""
    return f"arn:aws:{service}:{region}:{plan.account}:{resource}"


def bucket_arn(bucket: str) -> str:
    """Return the ARN of a bucket."""
    return f"arn:aws:s3:::{bucket}"


def alias_name(plan: FleetPlan, use: str) -> str:
    """Return the alias of the key for a use (data, parameters), the same in every region."""
    return f"alias/{plan.name}-{use}"


def region_names(plan: FleetPlan) -> tuple[str, ...]:
    """Return the names of the regions, sorted."""
    return tuple(sorted(region.name for region in plan.regions))


def scaling_group_arns(plan: FleetPlan) -> tuple[str, ...]:
    """Return ARN patterns of all Auto Scaling groups of the fleet, current and future."""
    return (arn(plan, "autoscaling", "*", f"autoScalingGroup:*:autoScalingGroupName/{plan.name}-*"),)


def store_arns(plan: FleetPlan, buckets: Iterable[BucketPlan]) -> tuple[str, ...]:
    """Return the ARN of each store's bucket; of a store in several regions a pattern of all of them."""
    several = replicated_stores(plan)
    names = (
        bucket.name.removesuffix(bucket.region) + "*" if bucket.store in several else bucket.name for bucket in buckets
    )
    return tuple(sorted({bucket_arn(name) for name in names}))


def _nodes_buckets(plan: FleetPlan) -> str:
    """Return the ARN of the buckets of all regions' nodes, as a pattern."""
    return bucket_arn(bucket_name(plan.name, NODES_STORE, plan.account, "*"))


def fleet_tag_condition(plan: FleetPlan) -> Conditions:
    """Return the condition that a resource has the tag of the fleet."""
    return {"StringEquals": {f"aws:ResourceTag/{FLEET}": (plan.name,)}}


def _own_tags(plan: FleetPlan, tag: str, *values: str) -> Conditions:
    """Return the condition that a resource has the tag of the fleet, and another tag with one of these values."""
    return {"StringEquals": {**fleet_tag_condition(plan)["StringEquals"], f"aws:ResourceTag/{tag}": values}}


def allow_in_regions(plan: FleetPlan, sid: str, actions: tuple[str, ...], *others: str) -> Statement:
    """Return a statement for actions without resource-level permissions, in the fleet's regions and these others."""
    regions = tuple(sorted({*region_names(plan), *others}))
    conditions = {"StringEquals": {"aws:RequestedRegion": regions}}
    return Statement(sid=sid, actions=actions, resources=("*",), conditions=conditions)


# Actions of the capacity controller, and of cluster-autoscaler, which must know a group before it has an instance.
# Source: https://github.com/kubernetes/autoscaler, cluster-autoscaler/cloudprovider/aws/README.md, read 2026-11.
_AUTOSCALER_ACTIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeScalingActivities",
    "autoscaling:DescribeTags",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)


# Source: Service Authorization Reference, "Amazon EC2 Auto Scaling", read 2026-11.
_FIXED = tuple(
    f"autoscaling:{key}" for key in ("LaunchConfigurationName", "LaunchTemplateVersionSpecified", "MaxSize", "MinSize")
)


def _control_permissions(plan: FleetPlan, member: str) -> Iterator[Statement]:
    """Yield the permissions of one member of the control plane: its own volume and folder, and the workers."""
    home = plan.home.name
    yield _hold_volume(plan, member)
    yield Statement(
        sid="ScaleWorkers",
        actions=(
            "autoscaling:SetDesiredCapacity",
            "autoscaling:SetInstanceProtection",
            "autoscaling:TerminateInstanceInAutoScalingGroup",
        ),
        resources=scaling_group_arns(plan),
        conditions={**fleet_tag_condition(plan), "Null": {f"aws:ResourceTag/{ENABLED}": ("false",)}},
    )
    yield Statement(
        sid="LeaveZones",
        # Only the subnets: neither limits nor what is launched.
        actions=("autoscaling:UpdateAutoScalingGroup",),
        resources=scaling_group_arns(plan),
        conditions={
            **fleet_tag_condition(plan),
            "Null": {f"aws:ResourceTag/{ENABLED}": ("false",), **dict.fromkeys(_FIXED, ("true",))},
        },
    )
    yield Statement(
        sid="WriteSnapshots",
        # Neither read nor delete: the bucket keeps versions, so a stolen member destroys no snapshot.
        actions=("s3:PutObject",),
        resources=tuple(
            f"{bucket_arn(plan.nodes_bucket(home).name)}/{folder}/{member}/*" for folder in ("etcd", "audit")
        ),
    )
    yield from _approver_permissions(plan)
    # The approver compares nodes with instances; the zone of a group is that of its subnets.
    yield allow_in_regions(plan, "SeeMachines", ("ec2:DescribeInstances", "ec2:DescribeSubnets"))
    yield allow_in_regions(plan, "SeeGroups", _AUTOSCALER_ACTIONS)


def _hold_volume(plan: FleetPlan, *machines: str) -> Statement:
    """Return the statement to attach to permanent machines the volumes of their kept data."""
    region, *others = sorted({machine.partition(".")[2] for machine in machines})
    return Statement(
        sid="HoldOwnVolume",
        actions=("ec2:AttachVolume",),
        resources=tuple(arn(plan, "ec2", "*" if others else region, what) for what in ("instance/*", "volume/*")),
        conditions=_own_tags(plan, MEMBER, *machines),
    )


def _hub_permissions(plan: FleetPlan, hub: HubPlan) -> Iterator[Statement]:
    """Yield the permissions of the hub: its own volume, its own backups, the list and the reports of machines."""
    yield _hold_volume(plan, hub.node)
    if hub.bucket:
        bucket = bucket_arn(hub.bucket.name)
        own = tuple(f"{folder}/{hub.node}/*" for folder in (HUB_DUMPS, HUB_FILES))
        yield Statement(
            sid="ListBackups",
            actions=("s3:ListBucket",),
            resources=(bucket,),
            conditions={"StringLike": {"s3:prefix": own}},
        )
        yield Statement(
            sid="UseBackups",
            # No deletion: the bucket keeps versions, so a stolen hub destroys no backup.
            actions=("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"),
            resources=tuple(f"{bucket}/{prefix}" for prefix in own),
        )
        yield _use_bucket_key(plan, (hub.bucket.region,), bucket, "UseBackupKey")
    yield from _status_permissions(plan)
    yield allow_in_regions(plan, "SeeFleet", ("autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances"))
    yield Statement(
        sid="ReadHostKeys",
        actions=("ec2:GetConsoleOutput",),
        resources=(arn(plan, "ec2", "*", "instance/*"),),
        conditions=fleet_tag_condition(plan),
    )


def _use_bucket_key(plan: FleetPlan, regions: tuple[str, ...], bucket: str, sid: str) -> Statement:
    """Return the statement to use the data key for one bucket, or for the buckets of a pattern."""
    key_use = allow_key_use(plan, "s3", regions, "data", ("kms:Decrypt", "kms:GenerateDataKey"))
    # The bucket's key, not that of the object, so the context is the bucket.
    likes = {**key_use.conditions["StringLike"], "kms:EncryptionContext:aws:s3:arn": (bucket,)}
    return replace(key_use, sid=sid, conditions={**key_use.conditions, "StringLike": likes})


def _approver_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permissions to write the token of workers, and to read the keys that they publish in their status."""
    home = plan.home.name
    yield Statement(sid="WriteJoinToken", actions=("ssm:PutParameter",), resources=(_join_parameter(plan),))
    yield replace(allow_key_use(plan, "ssm", (home,), "parameters", ("kms:Encrypt",)), sid="EncryptJoinToken")
    yield from _status_permissions(plan)


def _status_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permissions to read what machines report."""
    buckets = _nodes_buckets(plan)
    yield Statement(
        sid="ListStatus",
        actions=("s3:ListBucket",),
        resources=(buckets,),
        conditions={"StringLike": {"s3:prefix": ("status/*",)}},
    )
    yield Statement(sid="ReadStatus", actions=("s3:GetObject",), resources=(f"{buckets}/status/*",))


def _worker_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permissions of Kubernetes workers: buckets, images, and a token that other kinds may not read."""
    yield from _bucket_permissions(plan)
    yield Statement(sid="ReadJoinToken", actions=("ssm:GetParameter",), resources=(_join_parameter(plan),))
    yield from _registry_permissions(plan)


# Of the EFA device plugin's image.
_IMAGES_REGION = "us-west-2"


def _registry_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permissions to pull images from ECR: those of this account and of AWS."""
    yield allow_in_regions(plan, "LogInToRegistry", ("ecr:GetAuthorizationToken",), _IMAGES_REGION)
    yield Statement(
        sid="PullImages",
        actions=("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
        resources=tuple(f"arn:aws:ecr:*:{account}:repository/*" for account in (plan.account, *ACCOUNTS_OF_AWS)),
    )


def _join_parameter(plan: FleetPlan) -> str:
    return arn(plan, "ssm", plan.home.name, f"parameter{join_parameter(plan.name)}")


# Actions of Session Manager and Run Command. The managed policy AmazonSSMManagedInstanceCore would also allow nodes to
# read every parameter of the account. Source:
# https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonSSMManagedInstanceCore.html
_SESSION_ACTIONS = (
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
GATEWAY, HUB = "gateway", HUB_HOST


def member_kind(member: ControlPlaneMember) -> str:
    """Return the kind of a control plane member: AWS can limit rights to one instance only by a role of its own."""
    return member.name.partition(".")[0]


def _permanent_machines(plan: FleetPlan) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the permanent machines of each kind: control plane members, the hub, laptop gateways."""
    members = plan.control_plane.members if plan.control_plane else ()
    places = {pool.place for pool in plan.laptops} & {*plan.regions_by_name}
    gateways = tuple(f"{LAPTOP_GATEWAY_HOST}.{place}" for place in sorted(places))
    hub = {HUB: (plan.hub.node,)} if plan.hub and plan.hub.region else {}
    return {**{member_kind(member): (member.name,) for member in members}, **hub, GATEWAY: gateways}


def node_kinds(plan: FleetPlan) -> tuple[str, ...]:
    """Return the kinds of nodes in a fleet."""
    return (*(use.value for use in Use), *_permanent_machines(plan))


def permissions(plan: FleetPlan, kind: str) -> tuple[Statement, ...]:
    """Return the permissions of a kind of node."""
    return (
        *_kind_permissions(plan, kind),
        *_parameter_permissions(plan),
        *_bundle_permissions(plan),
        *_lifecycle_permissions(plan, kind),
        *_metric_permissions(plan, kind),
        *_session_permissions(plan),
    )


def _kind_permissions(plan: FleetPlan, kind: str) -> Iterator[Statement]:
    """Return the permissions that no other kind has. Gateways, the hub and the control plane have no access to data."""
    machines = _permanent_machines(plan).get(kind, ())
    if kind == GATEWAY:
        return iter((_hold_volume(plan, *machines),) if machines else ())
    if kind == HUB and plan.hub:
        return _hub_permissions(plan, plan.hub)
    if machines:
        return _control_permissions(plan, *machines)
    match Use(kind):
        case Use.SSH:
            return _ssh_permissions(plan)
        case Use.KUBERNETES:
            return _worker_permissions(plan)


def _ssh_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permissions of SSH nodes: buckets, and the list of instances, to find unused names."""
    yield from _bucket_permissions(plan)
    yield allow_in_regions(plan, "SeeMachines", ("ec2:DescribeInstances",))
    yield from _end_permissions(plan)


def _end_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permission to leave the own group, for machines that end themselves when nobody uses them.

    AWS limits it to groups, and users of a machine have its rights. So it is not the right to end a machine: one that
    another detaches runs on, and still ends when it is unused. A paused group permits it to none.
    """
    groups = sorted({pool.group for pool in plan.pools if ends_itself(pool)})
    if not groups:
        return
    yield Statement(
        sid="LeaveOwnGroup",
        actions=("autoscaling:DetachInstances",),
        resources=scaling_group_arns(plan),
        conditions={**_own_tags(plan, GROUP, *groups), "Null": {f"aws:ResourceTag/{PAUSED}": ("true",)}},
    )
    actions = ("autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeAutoScalingInstances")
    yield allow_in_regions(plan, "SeeOwnGroup", actions)


def kinds_with_bucket_access(plan: FleetPlan) -> tuple[str, ...]:
    """Return the kinds of nodes that may use objects in buckets."""
    return tuple(
        kind for kind in node_kinds(plan) if any(statement.sid == "UseObjects" for statement in permissions(plan, kind))
    )


READ_OBJECTS = ("s3:GetObject",)
WRITE_OBJECTS = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:ListMultipartUploadParts", "s3:PutObject")


def _bucket_permissions(plan: FleetPlan) -> Iterator[Statement]:
    if not plan.buckets:
        return
    buckets = store_arns(plan, plan.buckets)
    yield list_buckets(buckets)
    yield Statement(
        sid="UseObjects",
        actions=tuple(sorted((*READ_OBJECTS, *WRITE_OBJECTS))),
        resources=tuple(f"{bucket}/*" for bucket in buckets),
    )
    yield use_data_key(plan)


def list_buckets(buckets: tuple[str, ...]) -> Statement:
    """Return the statement to list the objects and uploads of buckets."""
    actions = ("s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads")
    return Statement(sid="ListBuckets", actions=actions, resources=buckets)


def use_data_key(plan: FleetPlan) -> Statement:
    """Return the statement to use the keys of the fleet's buckets through S3."""
    regions = tuple(sorted({bucket.region for bucket in plan.buckets}))
    return allow_key_use(plan, "s3", regions, "data", ("kms:Decrypt", "kms:GenerateDataKey"))


def _parameter_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permissions to read all parameters at home, and those of a first boot in each region."""
    home = plan.home.name
    yield Statement(
        sid="ReadParameters",
        actions=("ssm:GetParameter", "ssm:GetParameters", "ssm:GetParametersByPath"),
        resources=(
            arn(plan, "ssm", home, f"parameter/{plan.name}"),
            arn(plan, "ssm", home, f"parameter/{plan.name}/*"),
        ),
    )
    yield allow_key_use(plan, "ssm", (home,), "parameters", ("kms:Decrypt",))
    if others := tuple(name for name in region_names(plan) if name != home):
        paths = tuple(f"parameter/{plan.name}/{name}" for name in ("admins", "zone"))
        own = tuple(arn(plan, "ssm", "*", path) for path in paths)
        yield Statement(sid="ReadBootParameters", actions=("ssm:GetParameter",), resources=own)
        yield replace(allow_key_use(plan, "ssm", others, "data", ("kms:Decrypt",)), sid="DecryptBootParameters")


def _bundle_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permissions to read bundles, and to write the status of the instance itself."""
    buckets = _nodes_buckets(plan)
    folders = ("blobs", "bundles", "nodes")
    yield Statement(
        sid="ReadRings",
        actions=("ssm:GetParameter",),
        resources=(arn(plan, "ssm", "*", f"parameter/{plan.name}/nodes/*"),),
    )
    yield Statement(
        sid="ReadBundles",
        actions=("s3:GetObject",),
        resources=tuple(f"{buckets}/{folder}/*" for folder in folders),
    )
    yield Statement(
        sid="WriteOwnStatus",
        actions=("s3:PutObject",),
        # AWS replaces this variable by the id of the role and of the instance that calls.
        resources=(f"{buckets}/status/${{aws:userid}}/*",),
    )
    yield _use_bucket_key(plan, region_names(plan), buckets, "UseBundleKey")


def _lifecycle_permissions(plan: FleetPlan, kind: str) -> Iterator[Statement]:
    """Yield the permission to answer the lifecycle hooks of groups of the same kind."""
    machines = _permanent_machines(plan).get(kind, ())
    if kind in {*Use} or machines:
        yield Statement(
            sid="AnswerLifecycleHooks",
            actions=("autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"),
            resources=scaling_group_arns(plan),
            conditions=_own_tags(plan, MEMBER, *machines) if machines else _own_tags(plan, USE, kind),
        )


def _metric_permissions(plan: FleetPlan, kind: str) -> Iterator[Statement]:
    """Yield the permission to count failed machines, and whether a gateway or the hub serves, for alarms."""
    if kind in {*Use, GATEWAY, HUB}:
        statement = allow_in_regions(plan, "CountGateFailures", ("cloudwatch:PutMetricData",))
        equals = {**statement.conditions["StringEquals"], "cloudwatch:namespace": (gate_namespace(plan),)}
        yield replace(statement, conditions={"StringEquals": equals})


def _session_permissions(plan: FleetPlan) -> Iterator[Statement]:
    actions = ("ssm:ListInstanceAssociations", "ssm:UpdateInstanceInformation")
    report = allow_in_regions(plan, "ReportToSystemsManager", actions)
    yield replace(report, resources=(arn(plan, "ec2", "*", "instance/*"),))
    # These four actions have no resource-level permissions.
    yield allow_in_regions(plan, "HoldSessions", _SESSION_ACTIONS)


def allow_key_use(
    plan: FleetPlan, service: str, regions: tuple[str, ...], key: str, actions: tuple[str, ...]
) -> Statement:
    """Return a statement that allows the use of a key, found by alias, only through an AWS service."""
    # The alias is that of the fleet. A list of regions would grow beyond what IAM allows.
    region = regions[0] if len(regions) == 1 else "*"
    return Statement(
        sid=f"Use{key.capitalize()}Key",
        actions=actions,
        resources=(arn(plan, "kms", region, "key/*"),),
        conditions={
            "StringLike": {"kms:ViaService": (f"{service}.{region}.amazonaws.com",)},
            "ForAnyValue:StringEquals": {"kms:ResourceAliases": (alias_name(plan, key),)},
        },
    )


def gate_namespace(plan: FleetPlan) -> str:
    """Return the namespace of the metrics that nodes write."""
    return f"{plan.name}/nodes"


def pod_permissions(plan: FleetPlan, person: str) -> Iterator[Statement]:
    """Yield the permissions of a person's pods: read the fleet's buckets, and write below the person's name."""
    buckets = store_arns(plan, plan.buckets)
    yield list_buckets(buckets)
    yield Statement(sid="ReadObjects", actions=READ_OBJECTS, resources=tuple(f"{bucket}/*" for bucket in buckets))
    own = tuple(f"{bucket}/{person}/*" for bucket in buckets)
    yield Statement(sid="WriteOwnObjects", actions=WRITE_OBJECTS, resources=own)
    yield use_data_key(plan)


_READ_ACTIONS = (
    "s3:GetObjectVersionAcl",
    "s3:GetObjectVersionForReplication",
    "s3:GetObjectVersionTagging",
    "s3:InitiateReplication",
)
_WRITE_ACTIONS = ("s3:ReplicateDelete", "s3:ReplicateObject", "s3:ReplicateTags")


def replicated_stores(plan: FleetPlan) -> dict[str, tuple[BucketPlan, ...]]:
    """Return the buckets of each store in several regions, by store: the source first."""
    stores = {bucket.store: [other for other in plan.buckets if other.store == bucket.store] for bucket in plan.buckets}
    return {store: tuple(buckets) for store, buckets in stores.items() if len(buckets) > 1}


def replication_role_name(plan: FleetPlan) -> str:
    """Return the name of the replication role: fixed, so `links` needs no output of `shared`."""
    return f"{plan.name}-replication"


def replication_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield the permissions of replication: buckets by name, keys by alias and only through S3."""
    stores = replicated_stores(plan).values()
    sources = tuple(sorted(bucket_arn(buckets[0].name) for buckets in stores))
    targets = tuple(f"{target}/*" for target in store_arns(plan, (bucket for buckets in stores for bucket in buckets)))
    source_regions = tuple(sorted({buckets[0].region for buckets in stores}))
    target_regions = tuple(sorted({bucket.region for buckets in stores for bucket in buckets[1:]}))
    yield Statement(
        sid="FindSources",
        # A batch job lists the objects by an inventory.
        actions=("s3:GetReplicationConfiguration", "s3:ListBucket", "s3:PutInventoryConfiguration"),
        resources=sources,
    )
    objects = tuple(f"{source}/*" for source in sources)
    yield Statement(sid="ReadSources", actions=_READ_ACTIONS, resources=objects)
    yield Statement(sid="WriteCopies", actions=_WRITE_ACTIONS, resources=targets)
    # The pattern of a store in several regions matches its source, too.
    yield Statement(sid="KeepSources", effect="Deny", actions=_WRITE_ACTIONS, resources=objects)
    yield replace(allow_key_use(plan, "s3", source_regions, "data", ("kms:Decrypt",)), sid="OpenSources")
    yield replace(
        allow_key_use(plan, "s3", target_regions, "data", ("kms:Encrypt", "kms:GenerateDataKey")), sid="SealCopies"
    )


_CONDITION = "route53:ChangeResourceRecordSets"


def registration_permissions(plan: FleetPlan, zone_id: str, kind: str = Use.SSH) -> tuple[Statement, ...]:
    """Return the permissions in the zone: SSH nodes write A, SSHFP and TXT records of their names, the hub reads."""
    zone = f"arn:aws:route53:::hostedzone/{zone_id}"
    names = tuple(sorted(pattern for pool in ssh_pools(plan) for pattern in ssh_patterns(plan, pool)))
    write = Statement(
        sid="WriteOwnNames",
        actions=("route53:ChangeResourceRecordSets",),
        resources=(zone,),
        conditions={
            "ForAllValues:StringLike": {f"{_CONDITION}NormalizedRecordNames": names},
            "ForAllValues:StringEquals": {
                f"{_CONDITION}RecordTypes": ("A", "SSHFP", "TXT"),
                f"{_CONDITION}Actions": ("CREATE", "DELETE"),
            },
        },
    )
    read = Statement(sid="ReadNames", actions=("route53:ListResourceRecordSets",), resources=(zone,))
    return (read,) if kind == HUB else (read, write)


LONGEST_INLINE = 10_240  # characters of all inline policies of a role, without white space (IAM and STS quotas)
_ZONE_ID = "Z" + "0" * 20  # as long as those of Route 53


def role_policies(plan: FleetPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each role whose policies grow with a fleet, and the texts of its inline policies."""
    for kind in node_kinds(plan):
        names = (registration_permissions(plan, _ZONE_ID),) if kind in {pool.use for pool in ssh_pools(plan)} else ()
        yield f"{plan.name}-{kind}", tuple(policy(*part) for part in (permissions(plan, kind), *names))
    if replicated_stores(plan):
        yield replication_role_name(plan), (policy(*replication_permissions(plan)),)
    if has_pod_roles(plan) and plan.accounts.people:
        person = max((person.name for person in plan.accounts.people), key=len)
        yield pod_role_name(plan, person_name(person)), (policy(*pod_permissions(plan, person)),)


def length(texts: Iterable[str]) -> int:
    """Return how many characters IAM counts in policies."""
    return len("".join("".join(texts).split()))
