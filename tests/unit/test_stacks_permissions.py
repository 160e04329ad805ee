"""What a node may do in AWS, and who may reach a bucket."""

import json
from typing import Any

import pytest

from bedplate.plan import FleetPlan
from stacks.name_office import names_grant
from stacks.permissions import CONTROL, GATEWAY, KINDS, permissions
from stacks.policy import Statement, policy
from stacks.transport import only_by_tls
from tests.support.declared import EXAMPLES, plan_of

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
    texts = (policy(*permissions(plan, kind)), policy(*names_grant(plan, "Z0123456789ABCDEFGHIJ")))

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
    (write,) = _named(names_grant(plan, "Z1"), "route53:ChangeResourceRecordSets")

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
    denied: list[dict[str, Any]] = json.loads(policy(*only_by_tls("b")))["Statement"]

    assert {one["Effect"] for one in denied} == {"Deny"}
    assert all(one["Resource"] == ["arn:aws:s3:::b", "arn:aws:s3:::b/*"] for one in denied)
    assert [one["Condition"] for one in denied] == [
        {"Bool": {"aws:SecureTransport": ["false"]}},
        {"NumericLessThan": {"s3:TlsVersion": ["1.2"]}},
    ]
