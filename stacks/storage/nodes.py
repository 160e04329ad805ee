"""The bucket of a region for its nodes: bundles, node documents, status of nodes, snapshots of etcd."""

from pulumi_aws.s3._inputs import BucketLifecycleConfigurationRuleArgs

from bedplate.plan.fleet import BucketPlan, FleetPlan
from stacks.identity.policy import policy
from stacks.storage.buckets import StoreBucket, expiry_rule, lifecycle_rules
from stacks.storage.files import require_tls

STATUS_DAYS, SNAPSHOT_DAYS = 30, 30


class NodesBucket(StoreBucket):
    """The bucket of the bundles: operators upload them, so its policy requires TLS only; IAM limits the nodes."""

    kind = "bedplate:stacks:NodesBucket"

    def policy(self, plan: FleetPlan, bucket: BucketPlan) -> str:  # noqa: ARG002  # same signature as the base class
        """Return the JSON text of the bucket's policy."""
        return policy(*require_tls(bucket.name))

    def lifecycle(self, bucket: BucketPlan) -> list[BucketLifecycleConfigurationRuleArgs]:
        """Return the lifecycle rules: status and snapshots of etcd are deleted after some weeks."""
        return [
            *lifecycle_rules(bucket.expire_days),
            expiry_rule("status", "status/", STATUS_DAYS),
            expiry_rule("snapshots", "etcd/", SNAPSHOT_DAYS),
        ]
