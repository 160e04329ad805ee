"""An S3 bucket and everything that guards what is in it."""

import pulumi
from pulumi_aws.s3._inputs import (
    BucketOwnershipControlsRuleArgs,
    BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs,
    BucketServerSideEncryptionConfigurationRuleArgs,
    BucketVersioningVersioningConfigurationArgs,
)
from pulumi_aws.s3.bucket import Bucket, BucketArgs
from pulumi_aws.s3.bucket_lifecycle_configuration import (
    BucketLifecycleConfiguration,
    BucketLifecycleConfigurationArgs,
)
from pulumi_aws.s3.bucket_ownership_controls import BucketOwnershipControls, BucketOwnershipControlsArgs
from pulumi_aws.s3.bucket_policy import BucketPolicy, BucketPolicyArgs
from pulumi_aws.s3.bucket_public_access_block import BucketPublicAccessBlock, BucketPublicAccessBlockArgs
from pulumi_aws.s3.bucket_server_side_encryption_configuration import (
    BucketServerSideEncryptionConfiguration,
    BucketServerSideEncryptionConfigurationInitArgs,
)
from pulumi_aws.s3.bucket_versioning import BucketVersioning, BucketVersioningInitArgs

from bedplate.plan.fleet import BucketPlan, FleetPlan
from stacks.bucket_policy import bucket_policy
from stacks.expiry import expiry_rules
from stacks.options import kept
from stacks.tags import named


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
