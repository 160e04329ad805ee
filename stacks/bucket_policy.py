"""The policy of a bucket: TLS alone, and its objects for the fleet's own roles, whoever else IAM would let in.

It says nothing of the bucket itself: who may configure it, and mend this policy, the account's IAM decides.
"""

from bedplate.plan.fleet import BucketPlan, FleetPlan
from stacks.arn import arn, bucket_arn
from stacks.permissions import data_kinds
from stacks.policy import Statement, policy
from stacks.replication import copies, role_name
from stacks.transport import only_by_tls

# Patterns, for a refusal is to hold for what S3 adds later too.
_READING = ("s3:GetObject*",)
_WRITING = (
    "s3:AbortMultipartUpload",
    "s3:DeleteObject*",
    "s3:ObjectOwnerOverrideToBucketOwner",
    "s3:PutObject*",
    "s3:Replicate*",
    "s3:RestoreObject",
)
# AWS Backup's own, by which it copies a bucket and brings it back where the account asks for that.
# Source: AWS Backup developer guide, default service role.
_BACKUP = "role/service-role/AWSBackupDefaultServiceRole"


def bucket_policy(plan: FleetPlan, bucket: BucketPlan) -> str:
    """Return the JSON text of a bucket's policy."""
    return policy(*only_by_tls(bucket.name), *only_for(plan, bucket))


def only_for(plan: FleetPlan, bucket: BucketPlan) -> tuple[Statement, Statement]:
    """Return what keeps a bucket's objects to the fleet's roles; readers read, and write nothing."""
    ours = (*(f"role/{plan.name}-{kind}" for kind in data_kinds(plan)), *_copier(plan, bucket), _BACKUP)
    roles = tuple(sorted(arn(plan, "iam", "", name) for name in ours))
    return (
        _refuse("ReadByFleetAlone", bucket, _READING, tuple(sorted({*roles, *bucket.readers}))),
        _refuse("WriteByFleetAlone", bucket, _WRITING, roles),
    )


def _copier(plan: FleetPlan, bucket: BucketPlan) -> tuple[str, ...]:
    return (f"role/{role_name(plan)}",) if bucket.store in copies(plan) else ()


def _refuse(sid: str, bucket: BucketPlan, actions: tuple[str, ...], roles: tuple[str, ...]) -> Statement:
    """Refuse everybody but the roles; services of AWS act for somebody, and are judged by that."""
    return Statement(
        sid=sid,
        effect="Deny",
        principals={"AWS": ("*",)},
        actions=actions,
        resources=(f"{bucket_arn(bucket.name)}/*",),
        conditions={
            "StringNotEquals": {"aws:PrincipalArn": roles},
            "BoolIfExists": {"aws:PrincipalIsAWSService": ("false",)},
        },
    )
