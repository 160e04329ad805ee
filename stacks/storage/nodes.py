"""The bucket of a region for its nodes: they read bundles and node documents there, and write their status."""

from pulumi_aws.s3._inputs import BucketLifecycleConfigurationRuleArgs

from bedplate.plan.fleet import BucketPlan, FleetPlan
from stacks.identity.policy import policy
from stacks.storage.buckets import StoreBucket, expiry_rule, lifecycle_rules
from stacks.storage.files import require_tls

STATUS_DAYS = 30


class NodesBucket(StoreBucket):
    """The bucket of the bundles: operators upload them, so its policy requires TLS only; IAM limits the nodes."""

    kind = "bedplate:stacks:NodesBucket"

    def policy(self, plan: FleetPlan, bucket: BucketPlan) -> str:  # noqa: ARG002  # same signature as the base class
        """Return the JSON text of the bucket's policy."""
        return policy(*require_tls(bucket.name))

    def lifecycle(self, bucket: BucketPlan) -> list[BucketLifecycleConfigurationRuleArgs]:
        """Return the lifecycle rules: the status of an instance is deleted some weeks after its last run."""
        return [*lifecycle_rules(bucket.expire_days), expiry_rule("status", "status/", STATUS_DAYS)]
