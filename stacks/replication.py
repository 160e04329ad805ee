"""Copies of a store's objects: from the bucket of its first region to those of all its others."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pulumi
from pulumi_aws.s3._inputs import (
    BucketReplicationConfigRuleArgs,
    BucketReplicationConfigRuleDeleteMarkerReplicationArgs,
    BucketReplicationConfigRuleDestinationArgs,
    BucketReplicationConfigRuleDestinationEncryptionConfigurationArgs,
    BucketReplicationConfigRuleFilterArgs,
    BucketReplicationConfigRuleSourceSelectionCriteriaArgs,
    BucketReplicationConfigRuleSourceSelectionCriteriaSseKmsEncryptedObjectsArgs,
)
from pulumi_aws.s3.bucket_replication_config import BucketReplicationConfig, BucketReplicationConfigArgs

from bedplate.plan.fleet import BucketPlan, FleetPlan
from stacks.arn import arn, bucket_arn
from stacks.options import inside
from stacks.permissions import through_key
from stacks.policy import Statement
from stacks.service_role import Errand, service_role
from stacks.side import Side

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
