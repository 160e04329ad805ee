"""What a bucket lets go of by itself: broken uploads, old versions, and objects past their days."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

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

from bedplate.plan.fleet import BucketPlan, FleetPlan
from stacks.identity.policy import Errand, Statement, arn, bucket_arn, policy, service_role
from stacks.identity.roles import data_kinds, through_key
from stacks.network.transit import Side
from stacks.options import inside, kept, named
from stacks.storage.files import only_by_tls

UPLOAD_DAYS = 7
OLD_VERSION_DAYS = 30


def expiry_rules(expire_days: int | None) -> list[BucketLifecycleConfigurationRuleArgs]:
    """Return a bucket's lifecycle rules; objects expire only where the fleet file says when."""
    return [_tidy()] if expire_days is None else [_tidy(), _expire(expire_days)]


def _tidy() -> BucketLifecycleConfigurationRuleArgs:
    return BucketLifecycleConfigurationRuleArgs(
        id="tidy",
        status="Enabled",
        filter=_everything(),
        abort_incomplete_multipart_upload=BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
            days_after_initiation=UPLOAD_DAYS
        ),
        noncurrent_version_expiration=BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
            noncurrent_days=OLD_VERSION_DAYS
        ),
    )


def _expire(days: int) -> BucketLifecycleConfigurationRuleArgs:
    return BucketLifecycleConfigurationRuleArgs(
        id="expire",
        status="Enabled",
        filter=_everything(),
        expiration=BucketLifecycleConfigurationRuleExpirationArgs(days=days),
    )


def _everything() -> BucketLifecycleConfigurationRuleFilterArgs:
    """Return the filter that leaves nothing out; a rule must have one."""
    return BucketLifecycleConfigurationRuleFilterArgs(prefix="")


_READ = ("s3:GetObjectVersionAcl", "s3:GetObjectVersionForReplication", "s3:GetObjectVersionTagging")
_WRITE = ("s3:ReplicateDelete", "s3:ReplicateObject", "s3:ReplicateTags")


def copies(plan: FleetPlan) -> dict[str, tuple[BucketPlan, ...]]:
    """Return the buckets of each store that has copies, by its name: the source first."""
    stores = {bucket.store: [each for each in plan.buckets if each.store == bucket.store] for bucket in plan.buckets}
    return {store: tuple(buckets) for store, buckets in stores.items() if len(buckets) > 1}


def role_name(plan: FleetPlan) -> str:
    """Return the name of the role by which S3 copies: known before `shared` makes it."""
    return f"{plan.name}-replication"


class ReplicationRole(pulumi.ComponentResource):
    """A role that S3 takes on for this account's buckets, to read the sources and write the copies."""

    def __init__(self, plan: FleetPlan, opts: pulumi.ResourceOptions) -> None:
        name = role_name(plan)
        super().__init__("bedplate:stacks:ReplicationRole", name, None, opts)
        errand = Errand(
            role=name,
            description=f"S3 copies stores of the fleet {plan.name}",
            service="s3.amazonaws.com",
            sid="BeS3",
            permissions=copier_permissions(plan),
        )
        service_role(plan, errand, self)
        self.register_outputs({})


def copier_permissions(plan: FleetPlan) -> Iterator[Statement]:
    """Yield what S3 may do to copy: to sources and copies by name, to keys by their alias and through S3 alone."""
    stores = copies(plan).values()
    sources = tuple(sorted(bucket_arn(buckets[0].name) for buckets in stores))
    targets = tuple(sorted(f"{bucket_arn(bucket.name)}/*" for buckets in stores for bucket in buckets[1:]))
    read = tuple(sorted({buckets[0].region for buckets in stores}))
    written = tuple(sorted({bucket.region for buckets in stores for bucket in buckets[1:]}))
    yield Statement(sid="FindSources", actions=("s3:GetReplicationConfiguration", "s3:ListBucket"), resources=sources)
    yield Statement(sid="ReadSources", actions=_READ, resources=tuple(f"{source}/*" for source in sources))
    yield Statement(sid="WriteCopies", actions=_WRITE, resources=targets)
    yield replace(through_key(plan, "s3", read, "data", ("kms:Decrypt",)), sid="OpenSources")
    yield replace(through_key(plan, "s3", written, "data", ("kms:Encrypt", "kms:GenerateDataKey")), sid="SealCopies")


class StoreCopies(pulumi.ComponentResource):
    """The rules of a store's source: one for each copy, which mirrors it, deletions too."""

    def __init__(self, plan: FleetPlan, buckets: tuple[BucketPlan, ...], every: Mapping[str, Side]) -> None:
        source, *targets = buckets
        name = f"{plan.name}-{source.store}"
        there = pulumi.ResourceOptions(providers=[every[source.region].provider])
        super().__init__("bedplate:stacks:StoreCopies", name, None, there)
        args = BucketReplicationConfigArgs(
            bucket=source.name,
            role=arn(plan, "iam", "", f"role/{role_name(plan)}"),
            rules=[
                _rule(target, every[target.region].output("data_key_arn"), rank)
                for rank, target in enumerate(targets, start=1)
            ],
        )
        BucketReplicationConfig(name, args, inside(self))
        self.register_outputs({})


def _rule(target: BucketPlan, key_arn: pulumi.Output[str], rank: int) -> BucketReplicationConfigRuleArgs:
    """Return the rule that copies everything to a bucket; ranks only have to differ, for no two share a target."""
    seal = BucketReplicationConfigRuleDestinationEncryptionConfigurationArgs(replica_kms_key_id=key_arn)
    ciphered = BucketReplicationConfigRuleSourceSelectionCriteriaSseKmsEncryptedObjectsArgs(status="Enabled")
    return BucketReplicationConfigRuleArgs(
        id=target.region,
        priority=rank,
        status="Enabled",
        filter=BucketReplicationConfigRuleFilterArgs(prefix=""),
        delete_marker_replication=BucketReplicationConfigRuleDeleteMarkerReplicationArgs(status="Enabled"),
        source_selection_criteria=BucketReplicationConfigRuleSourceSelectionCriteriaArgs(
            sse_kms_encrypted_objects=ciphered
        ),
        destination=BucketReplicationConfigRuleDestinationArgs(
            bucket=bucket_arn(target.name), encryption_configuration=seal
        ),
    )


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


class StoreBucket(pulumi.ComponentResource):
    """A private, encrypted, versioned bucket; it and its guards outlive their stack, for data stays in it."""

    name: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, bucket: BucketPlan, key_arn: pulumi.Output[str], opts: pulumi.ResourceOptions
    ) -> None:
        self._label = f"{plan.name}-{bucket.store}"
        super().__init__("bedplate:stacks:StoreBucket", self._label, None, opts)
        self.name = Bucket(self._label, BucketArgs(bucket=bucket.name, tags=named(bucket.name)), kept(self)).id
        self._shut(bucket_policy(plan, bucket))
        self._encrypt(key_arn)
        self._keep_versions(bucket)
        self.register_outputs({"name": self.name})

    def _shut(self, policy: str) -> None:
        """Refuse the public, and whom the policy refuses; it waits, for S3 takes one such change at a time."""
        block = BucketPublicAccessBlockArgs(
            bucket=self.name,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
        )
        shut = BucketPublicAccessBlock(self._label, block, kept(self))
        owner = BucketOwnershipControlsArgs(
            bucket=self.name, rule=BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced")
        )
        BucketOwnershipControls(self._label, owner, kept(self))
        args = BucketPolicyArgs(bucket=self.name, policy=policy)
        BucketPolicy(self._label, args, kept(self, after=(shut,)))

    def _encrypt(self, key_arn: pulumi.Output[str]) -> None:
        by_key = BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
            sse_algorithm="aws:kms", kms_master_key_id=key_arn
        )
        rule = BucketServerSideEncryptionConfigurationRuleArgs(
            apply_server_side_encryption_by_default=by_key, bucket_key_enabled=True
        )
        args = BucketServerSideEncryptionConfigurationInitArgs(bucket=self.name, rules=[rule])
        BucketServerSideEncryptionConfiguration(self._label, args, kept(self))

    def _keep_versions(self, bucket: BucketPlan) -> None:
        """Keep old versions, for a while: rules about them count only once versioning is on."""
        enabled = BucketVersioningVersioningConfigurationArgs(status="Enabled")
        versioning = BucketVersioning(
            self._label,
            BucketVersioningInitArgs(bucket=self.name, versioning_configuration=enabled),
            kept(self),
        )
        expiry = BucketLifecycleConfigurationArgs(bucket=self.name, rules=expiry_rules(bucket.expire_days))
        BucketLifecycleConfiguration(self._label, expiry, kept(self, after=(versioning,)))
