"""What a node may do in AWS, and who may reach a bucket."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bedplate.plan import FleetPlan
from bedplate.plan.fleet import BucketPlan
from bedplate.plan.nodes import MountKind
from stacks.dns.zone import registration_permissions
from stacks.identity.policy import Statement, policy
from stacks.identity.roles import CONTROL, GATEWAY, KINDS, permissions
from stacks.network.vpc import find_groups_permission, flow_log_group, write_flows_permission
from stacks.storage.buckets import bucket_policy, replication_permissions, replicated_stores
from stacks.storage.files import mount_policy, require_tls
from tests.testlab.fakes.buckets import Call, concerned, rights, way_of
from tests.testlab.fakes.node_states import CLOUD
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

# Their resource can only be `*`: a session's channel belongs to whoever opens it, and a look knows no resource.
WITHOUT_RESOURCE = ("ssmmessages:", "ec2:Describe", "ec2:GetInstanceTypes", "autoscaling:Describe")
IAM_LIMIT = 10_240  # characters of a role's inline policies, without blanks: IAM and STS quotas


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Give the plan of the larger example."""
    return plan_of(EXAMPLES / "lab.yaml")


@pytest.fixture(scope="module")
def statements(plan: FleetPlan) -> tuple[Statement, ...]:
    """Give what its nodes may do, those of each kind."""
    return tuple({one.sid: one for kind in KINDS for one in permissions(plan, kind)}.values())


@pytest.mark.parametrize("kind", [CONTROL, GATEWAY])
def test_a_gateway_and_the_control_plane_reach_no_data(kind: str, plan: FleetPlan) -> None:
    """Whoever takes one over finds no bucket, no file system and no data key."""
    services = {action.partition(":")[0] for one in permissions(plan, kind) for action in one.actions}

    assert services.isdisjoint({"s3", "elasticfilesystem"})
    assert "UseDataKey" not in {one.sid for one in permissions(plan, kind)}


def test_no_action_is_a_pattern(statements: tuple[Statement, ...]) -> None:
    """Each action is spelt out: what AWS adds to a service later is not granted."""
    assert not [action for one in statements for action in one.actions if "*" in action]


def test_only_sessions_and_looks_are_granted_on_everything(statements: tuple[Statement, ...]) -> None:
    """Every other statement names its resources, and these stay within the fleet's regions."""
    open_ended = [one for one in statements if "*" in one.resources]

    assert open_ended
    assert all(action.startswith(WITHOUT_RESOURCE) for one in open_ended for action in one.actions)
    assert all("aws:RequestedRegion" in one.conditions["StringEquals"] for one in open_ended)


def test_a_node_hands_on_no_role(statements: tuple[Statement, ...]) -> None:
    """Whoever may pass a role may become it."""
    assert not [action for one in statements for action in one.actions if action.startswith(("iam:", "sts:"))]


def test_buckets_are_named(plan: FleetPlan, statements: tuple[Statement, ...]) -> None:
    """A node reaches the fleet's buckets and no other of the account's."""
    (objects,) = (one for one in statements if one.sid == "UseObjects")

    assert set(objects.resources) == {f"arn:aws:s3:::{bucket.name}/*" for bucket in plan.buckets}


def test_what_has_no_name_yet_is_known_by_its_tag(statements: tuple[Statement, ...]) -> None:
    """Groups are made after the policy: the fleet's tag tells them from others."""
    (found,) = (one for one in statements if one.sid == "AnswerLifecycleHooks")

    assert found.conditions == {"StringEquals": {"aws:ResourceTag/bedplate:fleet": ("lab",)}}


def test_a_key_is_used_only_through_its_service(statements: tuple[Statement, ...]) -> None:
    """A node decrypts what S3 or Systems Manager hands it, never a cipher text by itself."""
    keys = [one for one in statements if any(action.startswith("kms:") for action in one.actions)]

    assert len(keys) == 2
    assert all("kms:ViaService" in one.conditions["StringEquals"] for one in keys)
    assert all("kms:ResourceAliases" in one.conditions["ForAnyValue:StringEquals"] for one in keys)


@pytest.mark.parametrize("kind", KINDS)
def test_the_policies_fit_into_their_role(kind: str, plan: FleetPlan) -> None:
    """IAM counts the characters of all of a role's policies that are no blanks."""
    texts = (policy(*permissions(plan, kind)), policy(*registration_permissions(plan, "Z0123456789ABCDEFGHIJ")))

    assert len("".join("".join(texts).split())) < IAM_LIMIT


def test_only_the_control_plane_scales(plan: FleetPlan) -> None:
    """It sets the size of groups that bear the autoscaler's tag beside the fleet's; no node does."""
    able = {kind: _named(permissions(plan, kind), "autoscaling:SetDesiredCapacity") for kind in KINDS}

    assert [kind for kind, found in able.items() if found] == [CONTROL]
    (scales,) = able[CONTROL]
    assert scales.conditions["StringEquals"] == {"aws:ResourceTag/bedplate:fleet": ("lab",)}
    assert scales.conditions["Null"] == {"aws:ResourceTag/k8s.io/cluster-autoscaler/enabled": ("false",)}


def test_the_control_plane_holds_volumes_of_its_own_alone(plan: FleetPlan) -> None:
    """Both the machine and the volume bear a member's tag; no other kind attaches anything."""
    able = {kind: _named(permissions(plan, kind), "ec2:AttachVolume") for kind in KINDS}

    assert [kind for kind, found in able.items() if found] == [CONTROL]
    (holds,) = able[CONTROL]
    assert holds.conditions["StringLike"] == {"aws:ResourceTag/bedplate:member": ("control-*",)}
    assert {resource.rpartition(":")[2] for resource in holds.resources} == {"instance/*", "volume/*"}


def test_a_machine_writes_its_own_names_alone(plan: FleetPlan) -> None:
    """Addresses, host keys and owners of ssh groups' names in the zone, made and deleted, never written over."""
    (write,) = _named(registration_permissions(plan, "Z1"), "route53:ChangeResourceRecordSets")

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


def _named(statements: tuple[Statement, ...], action: str) -> list[Statement]:
    return [one for one in statements if action in one.actions]


def test_a_bucket_refuses_clear_text_and_old_tls() -> None:
    """Both are denied to everybody, on the bucket and on its objects."""
    denied: list[dict[str, Any]] = json.loads(policy(*require_tls("b")))["Statement"]

    assert {one["Effect"] for one in denied} == {"Deny"}
    assert all(one["Resource"] == ["arn:aws:s3:::b", "arn:aws:s3:::b/*"] for one in denied)
    assert [one["Condition"] for one in denied] == [
        {"Bool": {"aws:SecureTransport": ["false"]}},
        {"NumericLessThan": {"s3:TlsVersion": ["1.2"]}},
    ]


ROLE = "arn:aws:iam::111122223333:role/"
ANALYST = f"{ROLE}aws-reserved/sso.amazonaws.com/AWSReservedSSO_Analyst_0123456789abcdef"
PLAN = plan_of(EXAMPLES / "lab.yaml")
BUCKETS = {(bucket.store, bucket.region): bucket for bucket in PLAN.buckets}
DATASETS, RESULTS = BUCKETS["datasets", "us-west-2"], BUCKETS["results", "us-west-2"]
NODE = {"aws:PrincipalArn": f"{ROLE}lab-ssh", "aws:PrincipalIsAWSService": "false"}


def refused(bucket: BucketPlan, caller: Mapping[str, str], action: str, key: str = "/model.pt") -> set[str]:
    """Return the statements of a bucket's policy that deny a call over TLS 1.3: IAM lets it pass otherwise."""
    called = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3", **caller}
    resource = f"arn:aws:s3:::{bucket.name}{key}"
    return {one["Sid"] for one in concerned(bucket_policy(PLAN, bucket), Call(action, resource, called))}


def caller(arn: str) -> dict[str, str]:
    """Return what a request of a principal carries."""
    return {"aws:PrincipalArn": arn, "aws:PrincipalIsAWSService": "false"}


DATA = ("s3:GetObject", "s3:GetObjectVersion", "s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion")


@pytest.mark.parametrize("action", DATA)
@pytest.mark.parametrize("kind", ["ssh", "kubernetes"])
def test_nodes_use_what_their_role_lets_them(kind: str, action: str) -> None:
    """The policy takes nothing from those whose data it is."""
    assert not refused(DATASETS, caller(f"{ROLE}lab-{kind}"), action)


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
def test_nobody_else_reaches_an_object_whatever_iam_allows(principal: str, action: str) -> None:
    """Neither the machine that faces the internet, nor another fleet's nodes, nor other people of the account."""
    assert refused(DATASETS, caller(principal), action)


@pytest.mark.parametrize(
    "action",
    [
        *("s3:PutBucketPolicy", "s3:DeleteBucketPolicy", "s3:GetBucketPolicy", "s3:PutLifecycleConfiguration"),
        *("s3:PutEncryptionConfiguration", "s3:PutBucketVersioning", "s3:PutReplicationConfiguration"),
        *("s3:ListBucket", "s3:DeleteBucket", "s3:PutBucketPublicAccessBlock", "s3:PutBucketTagging"),
    ],
)
def test_an_administrator_keeps_the_bucket_itself(action: str) -> None:
    """Whoever deploys configures it, and can mend a policy that shuts out too many."""
    assert not refused(DATASETS, caller(f"{ROLE}Admin"), action, key="")


@pytest.mark.parametrize(
    "action",
    [
        *("s3:GetObjectVersionForReplication", "s3:GetObjectVersionAcl", "s3:GetObjectVersionTagging"),
        *("s3:ReplicateObject", "s3:ReplicateDelete", "s3:ReplicateTags"),
    ],
)
def test_copies_are_made_where_a_store_has_any(action: str) -> None:
    """The copier works on both ends of a store in several regions, and has no business with one in a single region."""
    copier = caller(f"{ROLE}lab-replication")

    assert all(not refused(BUCKETS["datasets", region], copier, action) for region in ("us-west-2", "eu-north-1"))
    assert refused(RESULTS, copier, action)


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:GetObjectTagging", "s3:PutObject"])
def test_backups_are_made_and_brought_back(action: str) -> None:
    """By the role that AWS Backup has in every account that uses it."""
    backup = caller(f"{ROLE}service-role/AWSBackupDefaultServiceRole")

    assert not refused(DATASETS, backup, action)


def test_a_service_of_aws_is_no_person() -> None:
    """What acts by itself has no role; what acts for somebody is judged as that somebody."""
    itself = {"aws:PrincipalIsAWSService": "true"}

    assert not refused(DATASETS, itself, "s3:PutObject")
    assert refused(DATASETS, {}, "s3:GetObject") == {"ReadByFleetAlone"}


def test_a_reader_reads_and_writes_nothing() -> None:
    """The file names it by its whole ARN; the other stores stay shut to it."""
    opened = replace(DATASETS, readers=(ANALYST,))

    assert not refused(opened, caller(ANALYST), "s3:GetObject")
    assert refused(opened, caller(ANALYST), "s3:PutObject") == {"WriteByFleetAlone"}
    assert refused(RESULTS, caller(ANALYST), "s3:GetObject") == {"ReadByFleetAlone"}


def test_nodes_too_come_by_new_tls_alone() -> None:
    """The older refusals stand."""
    assert refused(DATASETS, {**NODE, "aws:SecureTransport": "false"}, "s3:GetObject") == {"RefuseClearText"}
    assert refused(DATASETS, {**NODE, "s3:TlsVersion": "1.1"}, "s3:GetObject") == {"RefuseOldTls"}


def test_every_policy_fits() -> None:
    """S3 takes 20 KB, with every region's copier and readers in it."""
    longest = max(len(bucket_policy(PLAN, bucket)) for bucket in PLAN.buckets)

    assert longest < 20_480


SYSTEM = "arn:aws:elasticfilesystem:us-west-2:111122223333:file-system/fs-0123456789abcdef0"
POLICY = mount_policy(SYSTEM)
ALL = {"ClientMount", "ClientWrite", "ClientRootAccess"}
MOUNTING_POLICY_ROLE = {"AWS": "arn:aws:iam::111122223333:role/lab-ssh"}


def test_a_node_mounts_as_the_role_has_it() -> None:
    """It shows no identity, comes by TLS to a mount target, reads, writes, and as root makes homes."""
    assert rights(POLICY, SYSTEM, way_of(CLOUD)) == ALL


def test_nobody_mounts_in_clear_text() -> None:
    """Whoever goes round the tunnel is refused everything."""
    in_the_clear = way_of(replace(CLOUD, kind=MountKind.NFS))

    assert in_the_clear["aws:securetransport"] == "false"
    assert rights(POLICY, SYSTEM, in_the_clear) == set()


def test_nobody_mounts_from_outside_the_network() -> None:
    """What reaches the file system by anything but a mount target of its network has to be somebody."""
    outside = {**way_of(CLOUD), "elasticfilesystem:accessedviamounttarget": "false"}

    assert rights(POLICY, SYSTEM, outside) == set()


def test_the_policy_is_of_its_own_file_system() -> None:
    """It opens no other."""
    assert rights(POLICY, f"{SYSTEM}1", way_of(CLOUD)) == set()


def planted(**changes: object) -> str:
    """Return the policy with its first statement changed; one that is changed to nothing is taken out."""
    allowed, denied = json.loads(POLICY)["Statement"]
    told = {key: value for key, value in {**allowed, **changes}.items() if value}
    return json.dumps({"Statement": [denied, *([told] if told.get("Effect") else [])]})


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (planted(Effect=None), set()),
        (planted(Principal=MOUNTING_POLICY_ROLE), set()),
        (
            planted(Action=["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]),
            ALL - {"ClientRootAccess"},
        ),
        (planted(Effect="Deny"), set()),
        (planted(Condition=None), ALL),
    ],
    ids=["nobody-is-allowed", "a-role-alone", "root-is-nobody", "denied", "the-good-twin"],
)
def test_a_policy_that_stops_nodes_is_found(policy: str, left: set[str]) -> None:
    """The stand-in for EFS tells each way of shutting nodes out from a policy that lets them in."""
    assert rights(policy, SYSTEM, way_of(CLOUD)) == left


def test_a_policy_that_bears_clear_text_is_found() -> None:
    """Without its refusal it lets anybody read along."""
    allowed, _ = json.loads(POLICY)["Statement"]

    open_policy = json.dumps({"Statement": [allowed]})
    assert rights(open_policy, SYSTEM, way_of(replace(CLOUD, kind=MountKind.NFS))) == ALL


def test_the_role_writes_to_the_fleets_own_groups_alone() -> None:
    """One group a region, and the streams in it."""
    plan = plan_of(EXAMPLES / "lab.yaml")

    resources = write_flows_permission(plan).resources

    assert len(resources) == 2 * len(plan.regions)
    assert all(f":111122223333:log-group:{flow_log_group(plan)}" in name for name in resources)


def test_the_role_may_list_the_groups_of_its_regions_and_read_none() -> None:
    """AWS's own list of what a flow log's role needs at least has it, and nobody else's region."""
    plan = plan_of(EXAMPLES / "lab.yaml")

    statement = find_groups_permission(plan)

    assert statement.actions == ("logs:DescribeLogGroups",)
    assert {name.split(":")[3] for name in statement.resources} == {region.name for region in plan.regions}


@pytest.fixture(scope="module")
def stacks_replication_plan() -> FleetPlan:
    """Give the plan of the larger example: one store in three regions, one in a single region."""
    return plan_of(EXAMPLES / "lab.yaml")


def test_a_store_is_copied_from_its_first_region_to_all_others(stacks_replication_plan: FleetPlan) -> None:
    """A store of one region has nowhere to be copied to."""
    regions = {
        store: [bucket.region for bucket in buckets] for store, buckets in replicated_stores(stacks_replication_plan).items()
    }

    assert regions == {"datasets": ["us-west-2", "us-east-1", "eu-north-1"]}


def test_the_copier_reads_sources_and_writes_copies_alone(stacks_replication_plan: FleetPlan) -> None:
    """By name: it could neither read a copy nor write over a source."""
    found = {
        one["Sid"]: one["Resource"]
        for one in json.loads(policy(*replication_permissions(stacks_replication_plan)))["Statement"]
    }

    assert found["ReadSources"] == ["arn:aws:s3:::lab-datasets-111122223333-us-west-2/*"]
    assert found["WriteCopies"] == [
        "arn:aws:s3:::lab-datasets-111122223333-eu-north-1/*",
        "arn:aws:s3:::lab-datasets-111122223333-us-east-1/*",
    ]


def test_the_copier_uses_keys_only_through_s3(stacks_replication_plan: FleetPlan) -> None:
    """Keys of the source to open, keys of the copies to seal."""
    keys = {one.sid: one for one in replication_permissions(stacks_replication_plan) if one.actions[0].startswith("kms:")}

    assert keys["OpenSources"].conditions["StringEquals"] == {"kms:ViaService": ("s3.us-west-2.amazonaws.com",)}
    assert keys["SealCopies"].conditions["StringEquals"] == {
        "kms:ViaService": ("s3.eu-north-1.amazonaws.com", "s3.us-east-1.amazonaws.com")
    }
