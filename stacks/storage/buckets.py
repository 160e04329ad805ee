"""S3 buckets of stores: lifecycle, encryption, access policy and replication; and the bucket of a region's nodes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pulumi
from pulumi_aws.s3._inputs import (
    BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs,
    BucketLifecycleConfigurationRuleArgs,
    BucketLifecycleConfigurationRuleExpirationArgs,
    BucketLifecycleConfigurationRuleFilterArgs,
    BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs,
    BucketOwnershipControlsRuleArgs,
    BucketReplicationConfigRuleArgs,
    BucketReplicationConfigRuleDeleteMarkerReplicationArgs,
    BucketReplicationConfigRuleDestinationArgs,
    BucketReplicationConfigRuleDestinationEncryptionConfigurationArgs,
    BucketReplicationConfigRuleDestinationMetricsArgs,
    BucketReplicationConfigRuleFilterArgs,
    BucketReplicationConfigRuleSourceSelectionCriteriaArgs,
    BucketReplicationConfigRuleSourceSelectionCriteriaSseKmsEncryptedObjectsArgs,
    BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs,
    BucketServerSideEncryptionConfigurationRuleArgs,
    BucketVersioningVersioningConfigurationArgs,
)
from pulumi_aws.s3.bucket import Bucket, BucketArgs
from pulumi_aws.s3.bucket_lifecycle_configuration import BucketLifecycleConfiguration, BucketLifecycleConfigurationArgs
from pulumi_aws.s3.bucket_ownership_controls import BucketOwnershipControls, BucketOwnershipControlsArgs
from pulumi_aws.s3.bucket_policy import BucketPolicy, BucketPolicyArgs
from pulumi_aws.s3.bucket_public_access_block import BucketPublicAccessBlock, BucketPublicAccessBlockArgs
from pulumi_aws.s3.bucket_replication_config import BucketReplicationConfig, BucketReplicationConfigArgs
from pulumi_aws.s3.bucket_server_side_encryption_configuration import (
    BucketServerSideEncryptionConfiguration,
    BucketServerSideEncryptionConfigurationInitArgs,
)
from pulumi_aws.s3.bucket_versioning import BucketVersioning, BucketVersioningInitArgs

from bedplate.permissions import (
    Conditions,
    Statement,
    arn,
    bucket_arn,
    kinds_with_bucket_access,
    policy,
    replicated_stores,
    replication_permissions,
    replication_role_name,
)
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.hub import HUB_DUMPS
from bedplate.plan.issuer import has_pod_roles, pod_role_name
from bedplate.plan.stores import BucketPlan
from stacks.alarms import alarm_on_failed_copies
from stacks.identity.policy import FleetRole, deny_everyone, trust_services
from stacks.network.transit import RegionStack
from stacks.options import child_options, name_tag, retained_options
from stacks.storage.files import require_tls

UPLOAD_DAYS = 7
OLD_VERSION_DAYS = 30


def lifecycle_rules(expire_days: int | None) -> list[BucketLifecycleConfigurationRuleArgs]:
    """Return the lifecycle rules of a bucket; objects expire only if the fleet file sets a time."""
    return [_cleanup_rule()] if expire_days is None else [_cleanup_rule(), expiry_rule("expire", "", expire_days)]


def _cleanup_rule() -> BucketLifecycleConfigurationRuleArgs:
    return BucketLifecycleConfigurationRuleArgs(
        id="tidy",
        status="Enabled",
        # A rule must have a filter; this one matches all objects.
        filter=BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
        # Replication copies delete markers; a marker without versions serves nobody.
        expiration=BucketLifecycleConfigurationRuleExpirationArgs(expired_object_delete_marker=True),
        abort_incomplete_multipart_upload=BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
            days_after_initiation=UPLOAD_DAYS
        ),
        noncurrent_version_expiration=BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
            noncurrent_days=OLD_VERSION_DAYS
        ),
    )


def expiry_rule(name: str, prefix: str, days: int) -> BucketLifecycleConfigurationRuleArgs:
    """Return the rule that deletes objects with a prefix after some days."""
    return BucketLifecycleConfigurationRuleArgs(
        id=name,
        status="Enabled",
        filter=BucketLifecycleConfigurationRuleFilterArgs(prefix=prefix),
        expiration=BucketLifecycleConfigurationRuleExpirationArgs(days=days),
    )


class ReplicationRole(pulumi.ComponentResource):
    """The role with which S3 reads source buckets and writes copies."""

    def __init__(self, plan: FleetPlan, opts: pulumi.ResourceOptions) -> None:
        name = replication_role_name(plan)
        super().__init__("bedplate:stacks:ReplicationRole", name, None, opts)
        # S3 Batch Operations copies the objects that existed before replication. AWS does not document whether S3 sends
        # aws:SourceAccount when it replicates, and no fleet has shown it. A condition on a missing key would stop all
        # copies. To name the role, a caller needs iam:PassRole for it.
        trust = trust_services("BeS3", "batchoperations.s3.amazonaws.com", "s3.amazonaws.com")
        about = f"S3 copies stores of the fleet {plan.name}"
        FleetRole(name, about, trust, replication_permissions(plan)).declare(plan, self)
        self.register_outputs({})


class StoreReplication(pulumi.ComponentResource):
    """Replication of a store: one rule with an alarm for each target bucket, including deletions."""

    def __init__(self, plan: FleetPlan, buckets: tuple[BucketPlan, ...], stacks: Mapping[str, RegionStack]) -> None:
        source, *targets = buckets
        name = f"{plan.name}-{source.store}"
        options = pulumi.ResourceOptions(providers=[stacks[source.region].provider])
        super().__init__("bedplate:stacks:StoreReplication", name, None, options)
        args = BucketReplicationConfigArgs(
            bucket=source.name,
            role=arn(plan, "iam", "", f"role/{replication_role_name(plan)}"),
            rules=[
                _rule(target, stacks[target.region].output("data_key_arn"), priority)
                for priority, target in enumerate(targets, start=1)
            ],
        )
        BucketReplicationConfig(name, args, child_options(self))
        topic_arn = stacks[source.region].output("alarm_topic_arn")
        for target in targets:
            ends = {"SourceBucket": source.name, "DestinationBucket": target.name, "RuleId": target.region}
            alarm_on_failed_copies(f"{name}-to-{target.region}", ends, topic_arn, self)
        self.register_outputs({})


def _rule(target: BucketPlan, key_arn: pulumi.Output[str], priority: int) -> BucketReplicationConfigRuleArgs:
    """Return the rule that copies all objects to a bucket; priorities must differ, their order has no effect."""
    encryption = BucketReplicationConfigRuleDestinationEncryptionConfigurationArgs(replica_kms_key_id=key_arn)
    encrypted_objects = BucketReplicationConfigRuleSourceSelectionCriteriaSseKmsEncryptedObjectsArgs(status="Enabled")
    return BucketReplicationConfigRuleArgs(
        id=target.region,
        priority=priority,
        status="Enabled",
        filter=BucketReplicationConfigRuleFilterArgs(prefix=""),
        delete_marker_replication=BucketReplicationConfigRuleDeleteMarkerReplicationArgs(status="Enabled"),
        source_selection_criteria=BucketReplicationConfigRuleSourceSelectionCriteriaArgs(
            sse_kms_encrypted_objects=encrypted_objects
        ),
        destination=BucketReplicationConfigRuleDestinationArgs(
            bucket=bucket_arn(target.name),
            encryption_configuration=encryption,
            metrics=BucketReplicationConfigRuleDestinationMetricsArgs(status="Enabled"),
        ),
    )


# Patterns, so that the deny statements include future actions of S3.
_READ_PATTERNS = ("s3:GetObject*",)
_WRITE_PATTERNS = (
    "s3:AbortMultipartUpload",
    "s3:DeleteObject*",
    "s3:ObjectOwnerOverrideToBucketOwner",
    "s3:PutObject*",
    "s3:Replicate*",
    "s3:RestoreObject",
)
# The default role of AWS Backup, which reads and restores buckets.
# Source: AWS Backup developer guide, default service role.
_BACKUP_ROLE = "role/service-role/AWSBackupDefaultServiceRole"


def bucket_policy(plan: FleetPlan, bucket: BucketPlan) -> str:
    """Return the JSON text of a bucket's policy."""
    return policy(*require_tls(bucket.name), *restrict_access(plan, bucket))


def restrict_access(plan: FleetPlan, bucket: BucketPlan) -> tuple[Statement, Statement]:
    """Deny objects to all principals but the roles of the fleet; readers may only read."""
    role_names = (
        *(f"role/{plan.name}-{kind}" for kind in kinds_with_bucket_access(plan)),
        *((f"role/{replication_role_name(plan)}",) if bucket.store in replicated_stores(plan) else ()),
        _BACKUP_ROLE,
    )
    roles = tuple(sorted(arn(plan, "iam", "", name) for name in role_names))
    # All by a pattern: a list of hundreds would exceed the size of a policy.
    of_pods = (arn(plan, "iam", "", f"role/{pod_role_name(plan, '*')}"),) if has_pod_roles(plan) else ()
    return (
        _deny_others("ReadByFleetAlone", bucket, _READ_PATTERNS, tuple(sorted({*roles, *bucket.readers})), of_pods),
        _deny_others("WriteByFleetAlone", bucket, _WRITE_PATTERNS, roles, of_pods),
    )


def _deny_others(
    sid: str, bucket: BucketPlan, actions: tuple[str, ...], roles: tuple[str, ...], patterns: tuple[str, ...]
) -> Statement:
    """Deny actions to all principals except the roles; AWS services are checked as the principal they act for."""
    conditions: Conditions = {
        "StringNotEquals": {"aws:PrincipalArn": roles},
        **({"StringNotLike": {"aws:PrincipalArn": patterns}} if patterns else {}),
        "BoolIfExists": {"aws:PrincipalIsAWSService": ("false",)},
    }
    return deny_everyone(sid, actions, (f"{bucket_arn(bucket.name)}/*",), conditions)


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """The settings that every bucket has; `options` returns the options of a child of the bucket's component."""

    label: str
    bucket: pulumi.Output[str]
    options: Callable[..., pulumi.ResourceOptions]

    def restrict(self, text: str, *, is_public: bool = False) -> BucketPolicy:
        """Block public access and put the policy, one after the other: S3 refuses concurrent changes of these.

        `is_public`: the policy, but no ACL, may make objects public.
        """
        block = BucketPublicAccessBlockArgs(
            bucket=self.bucket,
            block_public_acls=True,
            block_public_policy=not is_public,
            ignore_public_acls=True,
            restrict_public_buckets=not is_public,
        )
        access_block = BucketPublicAccessBlock(self.label, block, self.options())
        owner = BucketOwnershipControlsArgs(
            bucket=self.bucket, rule=BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced")
        )
        BucketOwnershipControls(self.label, owner, self.options())
        args = BucketPolicyArgs(bucket=self.bucket, policy=text)
        return BucketPolicy(self.label, args, self.options(after=(access_block,)))

    def encrypt(self, key_arn: pulumi.Output[str] | None) -> None:
        """Encrypt objects with a key of the account, or without one with keys of S3."""
        by_default = BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
            sse_algorithm="aws:kms" if key_arn else "AES256", kms_master_key_id=key_arn
        )
        rule = BucketServerSideEncryptionConfigurationRuleArgs(
            apply_server_side_encryption_by_default=by_default, bucket_key_enabled=True if key_arn else None
        )
        args = BucketServerSideEncryptionConfigurationInitArgs(bucket=self.bucket, rules=[rule])
        BucketServerSideEncryptionConfiguration(self.label, args, self.options())


class StoreBucket(pulumi.ComponentResource):
    """A private, encrypted, versioned bucket. The bucket and its settings are retained when the stack is destroyed."""

    kind = "bedplate:stacks:StoreBucket"
    name: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, bucket: BucketPlan, key_arn: pulumi.Output[str], opts: pulumi.ResourceOptions
    ) -> None:
        self._label = f"{plan.name}-{bucket.store}"
        super().__init__(self.kind, self._label, None, opts)
        self.name = Bucket(
            self._label, BucketArgs(bucket=bucket.name, tags=name_tag(bucket.name)), retained_options(self)
        ).id
        settings = BucketSettings(self._label, self.name, partial(retained_options, self))
        settings.restrict(self.policy(plan, bucket))
        settings.encrypt(key_arn)
        self._keep_versions(bucket)
        self.register_outputs({"name": self.name})

    def policy(self, plan: FleetPlan, bucket: BucketPlan) -> str:
        """Return the JSON text of the bucket's policy."""
        return bucket_policy(plan, bucket)

    def lifecycle(self, bucket: BucketPlan) -> list[BucketLifecycleConfigurationRuleArgs]:
        """Return the lifecycle rules of the bucket."""
        return lifecycle_rules(bucket.expire_days)

    def _keep_versions(self, bucket: BucketPlan) -> None:
        """Keep old versions for a limited time; lifecycle rules for versions need versioning first."""
        enabled = BucketVersioningVersioningConfigurationArgs(status="Enabled")
        versioning = BucketVersioning(
            self._label,
            BucketVersioningInitArgs(bucket=self.name, versioning_configuration=enabled),
            retained_options(self),
        )
        expiry = BucketLifecycleConfigurationArgs(bucket=self.name, rules=self.lifecycle(bucket))
        BucketLifecycleConfiguration(self._label, expiry, retained_options(self, after=(versioning,)))


STATUS_DAYS, SNAPSHOT_DAYS, AUDIT_DAYS = 30, 30, 365


class NodesBucket(StoreBucket):
    """The bucket of the bundles: operators upload them, so its policy requires TLS only; IAM limits the nodes."""

    kind = "bedplate:stacks:NodesBucket"

    def policy(self, plan: FleetPlan, bucket: BucketPlan) -> str:  # noqa: ARG002  # same signature as the base class
        """Return the JSON text of the bucket's policy."""
        return policy(*require_tls(bucket.name))

    def lifecycle(self, bucket: BucketPlan) -> list[BucketLifecycleConfigurationRuleArgs]:
        """Return the lifecycle rules: status and snapshots are deleted after weeks, audit logs after a year."""
        return [
            *lifecycle_rules(bucket.expire_days),
            expiry_rule("status", "status/", STATUS_DAYS),
            expiry_rule("snapshots", "etcd/", SNAPSHOT_DAYS),
            expiry_rule("audit", "audit/", AUDIT_DAYS),
        ]


DUMP_DAYS = 35


class HubBucket(NodesBucket):
    """The bucket of the hub's backups: IAM limits the hub to its own folders, and operators restore from it."""

    kind = "bedplate:stacks:HubBucket"

    def lifecycle(self, bucket: BucketPlan) -> list[BucketLifecycleConfigurationRuleArgs]:
        """Return the lifecycle rules: dumps of the database expire, copies of files stay."""
        return [*lifecycle_rules(bucket.expire_days), expiry_rule("dumps", f"{HUB_DUMPS}/", DUMP_DAYS)]
