"""Who reaches the objects of a bucket when IAM lets everybody in: asked of the policy by its own conditions."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from bedplate.plan.fleet import BucketPlan
from stacks.bucket_policy import bucket_policy
from tests.support.declared import EXAMPLES, plan_of
from tests.support.judged_call import Call, concerned

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
