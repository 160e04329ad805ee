"""What a bucket lets go of by itself: broken uploads, old versions, and objects past their days."""

from pulumi_aws.s3._inputs import (
    BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs,
    BucketLifecycleConfigurationRuleArgs,
    BucketLifecycleConfigurationRuleExpirationArgs,
    BucketLifecycleConfigurationRuleFilterArgs,
    BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs,
)

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
