"""IAM policies of nodes, flow logs and replication, and policies of buckets and file systems."""

import json
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest

from bedplate.permissions import (
    GATEWAY,
    HUB,
    Statement,
    node_kinds,
    permissions,
    policy,
    registration_permissions,
    replicated_stores,
    replication_permissions,
)
from bedplate.plan import FleetPlan
from bedplate.plan.mounts import MountKind
from bedplate.plan.stores import BucketPlan
from stacks.identity.policy import launch_statements
from stacks.network.vpc import find_groups_permission, flow_log_group, write_flows_permission
from stacks.storage.buckets import bucket_policy
from stacks.storage.files import mount_policy, require_tls
from tests.testlab.fakes.buckets import Call, matching_statements, mount_conditions, rights
from tests.testlab.fakes.node_states import CLOUD
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

KINDS = node_kinds(plan_of(EXAMPLES / "lab.yaml"))
MEMBERS = ["control-1", "control-2", "control-3"]
MEMBER = MEMBERS[0]
# Actions without resource-level permissions, whose resource must be `*`.
WITHOUT_RESOURCE = (
    *("ssmmessages:", "ec2:Describe", "ec2:GetInstanceTypes", "autoscaling:Describe"),
    *("cloudwatch:PutMetricData", "ecr:GetAuthorizationToken"),
)
IAM_LIMIT = 10_240  # characters of the inline policies of a role, without white space: IAM and STS quotas


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Return the plan of the lab example."""
    return plan_of(EXAMPLES / "lab.yaml")


@pytest.fixture(scope="module")
def statements(plan: FleetPlan) -> tuple[Statement, ...]:
    """Return the statements of all kinds of nodes."""
    return tuple({statement.sid: statement for kind in KINDS for statement in permissions(plan, kind)}.values())


@pytest.mark.parametrize("kind", [MEMBER, GATEWAY])
def test_gateways_and_the_control_plane_have_no_access_to_data(kind: str, plan: FleetPlan) -> None:
    """Their roles have no permissions for file systems, for buckets of stores, and for data keys of those."""
    statements = permissions(plan, kind)
    of_s3 = [statement for statement in statements if statement.actions[0].startswith("s3:")]

    assert not [statement for statement in statements if statement.actions[0].startswith("elasticfilesystem:")]
    own = ["WriteSnapshots", "ListStatus", "ReadStatus"] if kind == MEMBER else []
    assert {statement.sid for statement in of_s3} == {*own, "ReadBundles", "WriteOwnStatus"}
    assert "UseDataKey" not in {statement.sid for statement in statements}


def test_members_write_snapshots_and_read_none(plan: FleetPlan) -> None:
    """A stolen member can neither read, write nor delete what others upload; no other node has any right there."""
    rights = {statement.sid: statement for statement in permissions(plan, MEMBER)}
    home = "arn:aws:s3:::lab-nodes-111122223333-us-west-2"
    folders = tuple(f"{home}/{folder}/control-1.us-west-2/*" for folder in ("etcd", "audit"))

    assert (rights["WriteSnapshots"].actions, rights["WriteSnapshots"].resources) == (("s3:PutObject",), folders)
    for kind in KINDS:
        resources = [resource for statement in permissions(plan, kind) for resource in statement.resources]
        assert {*map(resources.count, folders)} == {int(kind == MEMBER)}


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_read_bundles_and_write_only_their_own_status(kind: str, plan: FleetPlan) -> None:
    """A node cannot change a bundle, a ring, or the status of another; it cannot list the bucket."""
    rights = {statement.sid: statement for statement in permissions(plan, kind)}
    buckets = "arn:aws:s3:::lab-nodes-111122223333-*"

    assert f"{buckets}/blobs/*" in rights["ReadBundles"].resources
    assert rights["WriteOwnStatus"].resources == (f"{buckets}/status/${{aws:userid}}/*",)
    assert rights["ReadRings"].actions == ("ssm:GetParameter",)
    assert rights["ReadRings"].resources == ("arn:aws:ssm:*:111122223333:parameter/lab/nodes/*",)
    assert rights["UseBundleKey"].conditions["StringLike"]["kms:EncryptionContext:aws:s3:arn"] == (buckets,)


def test_only_kubernetes_workers_read_the_join_token(plan: FleetPlan) -> None:
    """With the token a machine may ask to be a node; people on workbenches have the rights of their machine."""
    parameter = "arn:aws:ssm:us-west-2:111122223333:parameter/lab.workers/join"
    actions = {
        kind: [
            action
            for statement in permissions(plan, kind)
            for action in statement.actions
            if any(fnmatchcase(parameter, resource) for resource in statement.resources) and action.startswith("ssm:")
        ]
        for kind in KINDS
    }

    members = {key: ["ssm:PutParameter"] for key in MEMBERS}
    assert actions == {"ssh": [], "kubernetes": ["ssm:GetParameter"], **members, HUB: [], GATEWAY: []}


def test_actions_have_no_wildcards(statements: tuple[Statement, ...]) -> None:
    """New actions of a service are not allowed automatically."""
    assert not [action for statement in statements for action in statement.actions if "*" in action]


def test_only_sessions_and_describe_actions_have_all_resources(statements: tuple[Statement, ...]) -> None:
    """These are limited to the regions of the fleet."""
    open_ended = [statement for statement in statements if "*" in statement.resources]

    assert open_ended
    assert all(action.startswith(WITHOUT_RESOURCE) for statement in open_ended for action in statement.actions)
    assert all("aws:RequestedRegion" in statement.conditions["StringEquals"] for statement in open_ended)


def test_nodes_cannot_pass_or_assume_roles(statements: tuple[Statement, ...]) -> None:
    """A node that passes a role can use it."""
    assert not [
        action for statement in statements for action in statement.actions if action.startswith(("iam:", "sts:"))
    ]


# The region in the names of each store's buckets: a pattern for a store in several regions.
OBJECTS = {"lab-datasets": "*", "lab-results": "us-west-2"}


def test_nodes_use_only_buckets_of_the_fleet(plan: FleetPlan, statements: tuple[Statement, ...]) -> None:
    """The policy contains the names of these buckets."""
    (objects,) = (statement for statement in statements if statement.sid == "UseObjects")

    assert set(objects.resources) == {
        f"arn:aws:s3:::{name}-111122223333-{region}/*" for name, region in OBJECTS.items()
    }
    assert all(any(fnmatchcase(f"arn:aws:s3:::{b.name}/k", arn) for arn in objects.resources) for b in plan.buckets)


@pytest.mark.parametrize(
    ("kind", "tags"),
    [
        ("ssh", {"aws:ResourceTag/bedplate:use": ("ssh",)}),
        ("kubernetes", {"aws:ResourceTag/bedplate:use": ("kubernetes",)}),
        (MEMBER, {"aws:ResourceTag/bedplate:member": ("control-1.us-west-2",)}),
        (GATEWAY, {"aws:ResourceTag/bedplate:member": ("laptops.us-west-2",)}),
    ],
)
def test_lifecycle_actions_require_the_tags_of_a_nodes_own_groups(
    kind: str, tags: Mapping[str, object], plan: FleetPlan
) -> None:
    """A user of a workbench cannot end starting machines of the control plane, or stop the drain of a worker."""
    statements = [statement for statement in permissions(plan, kind) if statement.sid == "AnswerLifecycleHooks"]

    required = {"StringEquals": {"aws:ResourceTag/bedplate:fleet": ("lab",), **tags}}
    assert [statement.conditions for statement in statements] == [required]


def test_nodes_use_keys_only_through_services(statements: tuple[Statement, ...]) -> None:
    """S3 and Systems Manager decrypt for a node, which cannot call Decrypt itself."""
    keys = [statement for statement in statements if any(action.startswith("kms:") for action in statement.actions)]

    assert len(keys) == 6
    assert all("kms:ViaService" in statement.conditions["StringLike"] for statement in keys)
    assert all("kms:ResourceAliases" in statement.conditions["ForAnyValue:StringEquals"] for statement in keys)


def test_auto_scaling_and_spot_start_machines_from_encrypted_images(plan: FleetPlan) -> None:
    """A launch needs the key for the service-linked role of its market; both may use it and grant it to volumes."""
    for statement in launch_statements(plan, "us-west-2"):
        names = {role.rpartition("/")[2] for role in statement.conditions["StringEquals"]["aws:PrincipalArn"]}
        assert names == {"AWSServiceRoleForAutoScaling", "AWSServiceRoleForEC2Spot"}


@pytest.mark.parametrize("kind", KINDS)
def test_policies_fit_the_quota_of_a_role(kind: str, plan: FleetPlan) -> None:
    """IAM counts all characters of inline policies except white space."""
    texts = (policy(*permissions(plan, kind)), policy(*registration_permissions(plan, "Z0123456789ABCDEFGHIJ")))

    assert len("".join("".join(texts).split())) < IAM_LIMIT


def test_only_the_control_plane_scales_groups(plan: FleetPlan) -> None:
    """Only groups with the tags of the autoscaler and the fleet."""
    by_kind = {kind: _with_action(permissions(plan, kind), "autoscaling:SetDesiredCapacity") for kind in KINDS}

    assert [kind for kind, statements in by_kind.items() if statements] == MEMBERS
    (statement,) = by_kind[MEMBER]
    assert statement.conditions["StringEquals"] == {"aws:ResourceTag/bedplate:fleet": ("lab",)}
    assert statement.conditions["Null"] == {"aws:ResourceTag/k8s.io/cluster-autoscaler/enabled": ("false",)}


def test_the_control_plane_changes_only_the_subnets_of_groups(plan: FleetPlan) -> None:
    """A stolen member changes neither limits nor what is launched."""
    by_kind = {kind: _with_action(permissions(plan, kind), "autoscaling:UpdateAutoScalingGroup") for kind in KINDS}

    assert [kind for kind, statements in by_kind.items() if statements] == MEMBERS
    (statement,) = by_kind[MEMBER]
    assert statement.conditions["StringEquals"] == {"aws:ResourceTag/bedplate:fleet": ("lab",)}
    assert statement.conditions["Null"] == {
        "aws:ResourceTag/k8s.io/cluster-autoscaler/enabled": ("false",),
        **{f"autoscaling:{key}": ("true",) for key in ("MaxSize", "MinSize")},
        **{f"autoscaling:{key}": ("true",) for key in ("LaunchConfigurationName", "LaunchTemplateVersionSpecified")},
    }


def test_no_machine_ends_machines_of_people(plan: FleetPlan) -> None:
    """Members end workers only, and decide by no report of a person: they read no version of an object."""
    ends = "autoscaling:TerminateInstanceInAutoScalingGroup"
    assert [kind for kind in KINDS if _with_action(permissions(plan, kind), ends)] == MEMBERS
    (statement,) = _with_action(permissions(plan, MEMBER), ends)
    assert statement.conditions["Null"] == {"aws:ResourceTag/k8s.io/cluster-autoscaler/enabled": ("false",)}
    for action in ("autoscaling:DeleteScheduledAction", "s3:ListBucketVersions", "s3:GetObjectVersion"):
        assert not any(_with_action(permissions(plan, kind), action) for kind in KINDS)


def test_the_control_plane_has_no_permissions_of_a_cloud_controller(plan: FleetPlan) -> None:
    """There is none (ADR 23): the approver reads instances, the capacity controller also subnets."""
    actions = {action for statement in permissions(plan, MEMBER) for action in statement.actions}

    places = ("AvailabilityZones", "InstanceTopology", "Regions", "RouteTables", "SecurityGroups", "Volumes", "Vpcs")
    assert not actions & {f"ec2:Describe{place}" for place in places}
    assert {"ec2:DescribeInstances", "ec2:DescribeSubnets"} <= actions


def test_permanent_machines_attach_only_their_own_volume(plan: FleetPlan) -> None:
    """Instance and volume must have its tag: a stolen member takes the volume of no other, and detaches none."""
    by_kind = {kind: _with_action(permissions(plan, kind), "ec2:AttachVolume") for kind in KINDS}

    assert [kind for kind, statements in by_kind.items() if statements] == [*MEMBERS, HUB, GATEWAY]
    names = {**{kind: kind for kind in (*MEMBERS, HUB)}, GATEWAY: "laptops"}
    for kind, name in names.items():
        (statement,) = by_kind[kind]
        assert statement.actions == ("ec2:AttachVolume",)
        assert statement.conditions["StringEquals"]["aws:ResourceTag/bedplate:member"] == (f"{name}.us-west-2",)
    assert {resource.rpartition(":")[2] for resource in statement.resources} == {"instance/*", "volume/*"}


def test_nodes_write_only_names_of_ssh_groups(plan: FleetPlan) -> None:
    """A, SSHFP and TXT records, created and deleted, never overwritten."""
    (write,) = _with_action(registration_permissions(plan, "Z1"), "route53:ChangeResourceRecordSets")

    key = "route53:ChangeResourceRecordSets"
    assert write.resources == ("arn:aws:route53:::hostedzone/Z1",)
    assert write.conditions["ForAllValues:StringEquals"] == {
        f"{key}RecordTypes": ("A", "SSHFP", "TXT"),
        f"{key}Actions": ("CREATE", "DELETE"),
    }
    assert write.conditions["ForAllValues:StringLike"][f"{key}NormalizedRecordNames"] == (
        "workbench-cpu-?.us-west-2.lab.internal",
        "workbench-cpu-??.us-west-2.lab.internal",
        "workbench-gpu-?.us-east-1.lab.internal",
        "workbench-gpu-?.us-west-2.lab.internal",
    )


def _with_action(statements: tuple[Statement, ...], action: str) -> list[Statement]:
    return [statement for statement in statements if action in statement.actions]


def test_buckets_require_tls_1_2() -> None:
    """The policy denies all principals older versions, on the bucket and its objects."""
    denied: list[dict[str, Any]] = json.loads(policy(*require_tls("b")))["Statement"]

    assert {statement["Effect"] for statement in denied} == {"Deny"}
    assert all(statement["Resource"] == ["arn:aws:s3:::b", "arn:aws:s3:::b/*"] for statement in denied)
    assert [statement["Condition"] for statement in denied] == [
        {"Bool": {"aws:SecureTransport": ["false"]}},
        {"NumericLessThan": {"s3:TlsVersion": ["1.2"]}},
    ]


ROLE = "arn:aws:iam::111122223333:role/"
ANALYST = f"{ROLE}aws-reserved/sso.amazonaws.com/AWSReservedSSO_Analyst_0123456789abcdef"
PLAN = plan_of(EXAMPLES / "lab.yaml")
BUCKETS = {(bucket.store, bucket.region): bucket for bucket in PLAN.buckets}
DATASETS, RESULTS = BUCKETS["datasets", "us-west-2"], BUCKETS["results", "us-west-2"]
NODE = {"aws:PrincipalArn": f"{ROLE}lab-ssh", "aws:PrincipalIsAWSService": "false"}


def denied_by(bucket: BucketPlan, caller: Mapping[str, str], action: str, key: str = "/model.pt") -> set[str]:
    """Return the statements of a bucket policy that deny a call with TLS 1.3."""
    context = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3", **caller}
    resource = f"arn:aws:s3:::{bucket.name}{key}"
    return {
        statement["Sid"]
        for statement in matching_statements(bucket_policy(PLAN, bucket), Call(action, resource, context))
    }


def caller(arn: str) -> dict[str, str]:
    """Return the context of a request by a principal."""
    return {"aws:PrincipalArn": arn, "aws:PrincipalIsAWSService": "false"}


DATA = ("s3:GetObject", "s3:GetObjectVersion", "s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion")


@pytest.mark.parametrize("action", DATA)
@pytest.mark.parametrize("kind", ["ssh", "kubernetes"])
def test_the_bucket_policy_does_not_limit_nodes(kind: str, action: str) -> None:
    """Roles with access to data may use all object actions."""
    assert not denied_by(DATASETS, caller(f"{ROLE}lab-{kind}"), action)


@pytest.mark.parametrize("action", DATA)
@pytest.mark.parametrize(
    "principal",
    [
        f"{ROLE}lab-gateway",
        f"{ROLE}lab-two-ssh",
        f"{ROLE}Admin",
        "arn:aws:iam::111122223333:user/ada",
        "arn:aws:iam::111122223333:root",
        "arn:aws:iam::444455556666:role/lab-ssh",
    ],
)
def test_the_bucket_policy_denies_objects_to_others(principal: str, action: str) -> None:
    """Gateways, other fleets, and users and administrators of the account, whatever IAM allows."""
    assert denied_by(DATASETS, caller(principal), action)


@pytest.mark.parametrize(
    "action",
    [
        *("s3:PutBucketPolicy", "s3:DeleteBucketPolicy", "s3:GetBucketPolicy", "s3:PutLifecycleConfiguration"),
        *("s3:PutEncryptionConfiguration", "s3:PutBucketVersioning", "s3:PutReplicationConfiguration"),
        *("s3:ListBucket", "s3:DeleteBucket", "s3:PutBucketPublicAccessBlock", "s3:PutBucketTagging"),
    ],
)
def test_administrators_can_configure_the_bucket(action: str) -> None:
    """The policy lets administrators deploy settings and correct the policy."""
    assert not denied_by(DATASETS, caller(f"{ROLE}Admin"), action, key="")


@pytest.mark.parametrize(
    "action",
    [
        *("s3:GetObjectVersionForReplication", "s3:GetObjectVersionAcl", "s3:GetObjectVersionTagging"),
        *("s3:ReplicateObject", "s3:ReplicateDelete", "s3:ReplicateTags"),
    ],
)
def test_the_replication_role_uses_only_replicated_stores(action: str) -> None:
    """Source and target buckets, not buckets of a store in one region."""
    copier = caller(f"{ROLE}lab-replication")

    assert all(not denied_by(BUCKETS["datasets", region], copier, action) for region in ("us-west-2", "eu-north-1"))
    assert denied_by(RESULTS, copier, action)


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:GetObjectTagging", "s3:PutObject"])
def test_aws_backup_reads_and_restores_objects(action: str) -> None:
    """The policy admits the default role of AWS Backup."""
    backup = caller(f"{ROLE}service-role/AWSBackupDefaultServiceRole")

    assert not denied_by(DATASETS, backup, action)


def test_aws_services_are_not_denied() -> None:
    """A service acting for a principal is checked as that principal."""
    itself = {"aws:PrincipalIsAWSService": "true"}

    assert not denied_by(DATASETS, itself, "s3:PutObject")
    assert denied_by(DATASETS, {}, "s3:GetObject") == {"ReadByFleetAlone"}


def test_readers_can_only_read() -> None:
    """Only stores that have its ARN in the fleet file."""
    bucket = replace(DATASETS, readers=(ANALYST,))

    assert not denied_by(bucket, caller(ANALYST), "s3:GetObject")
    assert denied_by(bucket, caller(ANALYST), "s3:PutObject") == {"WriteByFleetAlone"}
    assert denied_by(RESULTS, caller(ANALYST), "s3:GetObject") == {"ReadByFleetAlone"}


def test_nodes_need_tls_1_2() -> None:
    """TLS statements apply to nodes too."""
    assert denied_by(DATASETS, {**NODE, "aws:SecureTransport": "false"}, "s3:GetObject") == {"RefuseClearText"}
    assert denied_by(DATASETS, {**NODE, "s3:TlsVersion": "1.1"}, "s3:GetObject") == {"RefuseOldTls"}


def test_bucket_policies_fit_the_limit() -> None:
    """S3 allows 20 KB, with the replication role and readers."""
    longest = max(len(bucket_policy(PLAN, bucket)) for bucket in PLAN.buckets)

    assert longest < 20_480


FILE_SYSTEM = "arn:aws:elasticfilesystem:us-west-2:111122223333:file-system/fs-0123456789abcdef0"
MOUNT_POLICY = mount_policy(FILE_SYSTEM)
ALL_RIGHTS = {"ClientMount", "ClientWrite", "ClientRootAccess"}
NODE_ROLE = {"AWS": "arn:aws:iam::111122223333:role/lab-ssh"}


def test_a_node_has_all_mount_rights() -> None:
    """Without IAM identity, with TLS to a mount target; root creates home directories."""
    assert rights(MOUNT_POLICY, FILE_SYSTEM, mount_conditions(CLOUD)) == ALL_RIGHTS


def test_a_mount_requires_tls() -> None:
    """Without TLS all actions are denied."""
    in_the_clear = mount_conditions(replace(CLOUD, kind=MountKind.NFS))

    assert in_the_clear["aws:securetransport"] == "false"
    assert rights(MOUNT_POLICY, FILE_SYSTEM, in_the_clear) == set()


def test_a_mount_requires_a_mount_target() -> None:
    """Other access needs an IAM identity."""
    outside = {**mount_conditions(CLOUD), "elasticfilesystem:accessedviamounttarget": "false"}

    assert rights(MOUNT_POLICY, FILE_SYSTEM, outside) == set()


def test_the_policy_applies_to_one_file_system() -> None:
    """The policy allows no other file system."""
    assert rights(MOUNT_POLICY, f"{FILE_SYSTEM}1", mount_conditions(CLOUD)) == set()


def changed_policy(**changes: object) -> str:
    """Return the policy with changes in its allow statement, or without it."""
    allowed, denied = json.loads(MOUNT_POLICY)["Statement"]
    changed = {key: value for key, value in {**allowed, **changes}.items() if value}
    return json.dumps({"Statement": [denied, *([changed] if changed.get("Effect") else [])]})


@pytest.mark.parametrize(
    ("policy", "remaining"),
    [
        (changed_policy(Effect=None), set()),
        (changed_policy(Principal=NODE_ROLE), set()),
        (
            changed_policy(Action=["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]),
            ALL_RIGHTS - {"ClientRootAccess"},
        ),
        (changed_policy(Effect="Deny"), set()),
        (changed_policy(Condition=None), ALL_RIGHTS),
    ],
    ids=["no-allow", "one-role", "no-root", "denied", "valid"],
)
def test_the_fake_of_efs_finds_policies_that_block_nodes(policy: str, remaining: set[str]) -> None:
    """Each seeded defect removes rights; the valid counterpart removes none."""
    assert rights(policy, FILE_SYSTEM, mount_conditions(CLOUD)) == remaining


def test_the_fake_of_efs_finds_policies_without_tls() -> None:
    """Without the deny statement, mounts without TLS are allowed."""
    allowed, _ = json.loads(MOUNT_POLICY)["Statement"]

    open_policy = json.dumps({"Statement": [allowed]})
    assert rights(open_policy, FILE_SYSTEM, mount_conditions(replace(CLOUD, kind=MountKind.NFS))) == ALL_RIGHTS


def test_the_flow_log_role_writes_only_to_flow_log_groups() -> None:
    """One group for each region, and its streams."""
    plan = plan_of(EXAMPLES / "lab.yaml")

    resources = write_flows_permission(plan).resources

    assert len(resources) == 2 * len(plan.regions)
    assert all(f":111122223333:log-group:{flow_log_group(plan)}" in name for name in resources)


def test_the_flow_log_role_lists_groups_only_in_regions_of_the_fleet() -> None:
    """AWS requires this permission for flow logs."""
    plan = plan_of(EXAMPLES / "lab.yaml")

    statement = find_groups_permission(plan)

    assert statement.actions == ("logs:DescribeLogGroups",)
    assert {name.split(":")[3] for name in statement.resources} == {region.name for region in plan.regions}


def test_a_store_is_replicated_from_its_first_region(plan: FleetPlan) -> None:
    """A store in one region has no replication."""
    regions = {store: [bucket.region for bucket in buckets] for store, buckets in replicated_stores(plan).items()}

    assert regions == {"datasets": ["us-west-2", "us-east-1", "eu-north-1"]}


def test_the_replication_role_reads_sources_and_writes_copies(plan: FleetPlan) -> None:
    """The role cannot read copies or write sources."""
    resources = {
        statement["Sid"]: statement["Resource"]
        for statement in json.loads(policy(*replication_permissions(plan)))["Statement"]
    }

    assert resources["ReadSources"] == ["arn:aws:s3:::lab-datasets-111122223333-us-west-2/*"]
    assert resources["WriteCopies"] == ["arn:aws:s3:::lab-datasets-111122223333-*/*"]
    assert resources["KeepSources"] == resources["ReadSources"]


def test_the_replication_role_uses_keys_only_through_s3(plan: FleetPlan) -> None:
    """Source keys to decrypt, target keys to encrypt."""
    keys = {
        statement.sid: statement
        for statement in replication_permissions(plan)
        if statement.actions[0].startswith("kms:")
    }

    assert keys["OpenSources"].conditions["StringLike"] == {"kms:ViaService": ("s3.us-west-2.amazonaws.com",)}
    assert keys["SealCopies"].conditions["StringLike"] == {"kms:ViaService": ("s3.*.amazonaws.com",)}
