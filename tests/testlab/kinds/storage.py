"""Fixtures of EFS, S3 and ECR; SERVICES has all fixtures outside networks."""

from typing import Any

from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from tests.testlab.kinds import world as services
from tests.testlab.kinds.identity import COPIES, IDENTITY
from tests.testlab.kinds.machines import MACHINES
from tests.testlab.kinds.names import NAMES
from tests.testlab.kinds.world import KindFixture, fresh
from tests.testlab.rehearsal.live import Describe, describe_all, describe_by_call, describe_fakes, id_list, own_id


def _of_bucket(operation: str) -> Describe:
    return describe_by_call("s3", operation, Bucket=own_id)


def _part(place: int) -> Any:  # noqa: ANN401  # a parameter of `asked`
    return lambda ident, _inputs: ident.split("/", 1)[place]


def _object(operation: str) -> Describe:
    return describe_by_call("s3", operation, Bucket=_part(0), Key=_part(1))


def _bucket_tags(aws: Aws, ident: str) -> object:
    try:
        return aws.call("s3", "get_bucket_tagging", Bucket=ident)["TagSet"]
    except ResourceError:
        return []


_EXPIRE = {"id": "old", "status": "Enabled", "noncurrentVersionExpiration": {"noncurrentDays": 30}}
_GIVE_UP = {"id": "uploads", "status": "Enabled", "abortIncompleteMultipartUpload": {"daysAfterInitiation": 7}}
_ELSEWHERE = {"region": "eu-west-1", "registryId": "111122223333"}
_COPIED_IMAGES = {
    "destinations": [{"region": "us-east-1", "registryId": "111122223333"}, _ELSEWHERE],
    "repositoryFilters": [{"filter": "lab/", "filterType": "PREFIX_MATCH"}],
}
_PRIVATE = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")

STORAGE = (
    KindFixture(
        "aws:efs/fileSystem:FileSystem",
        inputs=lambda world: {
            "creationToken": fresh("home"),
            "encrypted": True,
            "kmsKeyId": services.key(world),
        },
        changes={"lifecyclePolicies": [{"transitionToIa": "AFTER_30_DAYS"}]},
        read_back=describe_all(
            describe_by_call("efs", "describe_file_systems", FileSystemId=own_id),
            describe_by_call("efs", "describe_lifecycle_configuration", FileSystemId=own_id),
        ),
        not_returned=frozenset({"throughputMode"}),
    ),
    KindFixture(
        "aws:efs/mountTarget:MountTarget",
        inputs=lambda world: {
            "fileSystemId": services.file_system(world),
            "subnetId": world.subnet,
            "securityGroups": [world.group],
        },
        changes=lambda world: {"securityGroups": [world.other_group]},
        read_back=describe_all(
            describe_by_call("efs", "describe_mount_targets", MountTargetId=own_id),
            describe_by_call("efs", "describe_mount_target_security_groups", MountTargetId=own_id),
        ),
    ),
    KindFixture(
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
        inputs=lambda world: {
            "fileSystemId": services.file_system(world),
            "policy": services.open_policy("elasticfilesystem:ClientMount"),
        },
        changes={"policy": services.open_policy("elasticfilesystem:ClientWrite")},
        read_back=describe_by_call("efs", "describe_file_system_policy", FileSystemId=own_id),
    ),
    KindFixture(
        "aws:efs/backupPolicy:BackupPolicy",
        inputs=lambda world: {
            "fileSystemId": services.file_system(world),
            "backupPolicy": {"status": "ENABLED"},
        },
        changes={"backupPolicy": {"status": "DISABLED"}},
        read_back=describe_fakes,
    ),
    KindFixture(
        "aws:s3/bucket:Bucket",
        inputs=lambda _world: {"bucket": fresh("lab-data")},
        read_back=lambda aws, ident, _inputs: [
            [bucket["Name"] for bucket in aws.call("s3", "list_buckets")["Buckets"] if bucket["Name"] == ident],
            _bucket_tags(aws, ident),
        ],
        not_returned=frozenset({"forceDestroy"}),
    ),
    KindFixture(
        "aws:s3/bucketVersioning:BucketVersioning",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "versioningConfiguration": {"status": "Enabled"},
        },
        changes={"versioningConfiguration": {"status": "Suspended"}},
        read_back=_of_bucket("get_bucket_versioning"),
        not_returned=frozenset({"bucket"}),
        adopted=True,
    ),
    KindFixture(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "rules": [
                {
                    "applyServerSideEncryptionByDefault": {
                        "sseAlgorithm": "aws:kms",
                        "kmsMasterKeyId": services.key(world),
                    },
                    "bucketKeyEnabled": True,
                }
            ],
        },
        changes={"rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}]},
        read_back=_of_bucket("get_bucket_encryption"),
        not_returned=frozenset({"bucket"}),
    ),
    KindFixture(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        inputs=lambda world: {"bucket": services.bucket(world)},
        changes=dict.fromkeys(_PRIVATE, True),
        read_back=_of_bucket("get_public_access_block"),
        not_returned=frozenset({"bucket"}),
    ),
    KindFixture(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "rule": {"objectOwnership": "BucketOwnerEnforced"},
        },
        changes={"rule": {"objectOwnership": "ObjectWriter"}},
        read_back=_of_bucket("get_bucket_ownership_controls"),
        not_returned=frozenset({"bucket"}),
    ),
    KindFixture(
        "aws:s3/bucketPolicy:BucketPolicy",
        inputs=lambda world: {"bucket": services.bucket(world), "policy": services.open_policy("s3:GetObject")},
        changes={"policy": services.open_policy("s3:PutObject")},
        read_back=_of_bucket("get_bucket_policy"),
        not_returned=frozenset({"bucket"}),
    ),
    KindFixture(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "rules": [
                {**_EXPIRE, "filter": {"prefix": "runs/"}},
                {**_GIVE_UP, "expiration": {"days": 365}},
            ],
        },
        changes={"rules": [{**_EXPIRE, "expiration": {"days": 30}}]},
        read_back=_of_bucket("get_bucket_lifecycle_configuration"),
        not_returned=frozenset({"bucket"}),
    ),
    KindFixture(
        "aws:s3/bucketObjectv2:BucketObjectv2",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "key": "config/fleet.json",
            "content": "one",
            "contentType": "application/json",
        },
        changes={"content": "two", "contentType": "text/plain"},
        read_back=describe_all(_object("head_object"), _object("get_object_tagging")),
        not_returned=frozenset({"bucket", "content", "key"}),
    ),
    KindFixture(
        "aws:ecr/repository:Repository",
        inputs=lambda _world: {"name": fresh("lab/base")},
        changes={"imageTagMutability": "IMMUTABLE"},
        read_back=describe_all(
            describe_by_call("ecr", "describe_repositories", repositoryNames=id_list),
            lambda aws, ident, _inputs: aws.call(
                "ecr", "list_tags_for_resource", resourceArn=aws.arn("ecr", f"repository/{ident}")
            )["tags"],
        ),
    ),
    KindFixture(
        "aws:ecr/replicationConfiguration:ReplicationConfiguration",
        inputs=lambda _world: {"replicationConfiguration": {"rules": [_COPIED_IMAGES]}},
        changes={"replicationConfiguration": {"rules": [{**_COPIED_IMAGES, "destinations": [_ELSEWHERE]}]}},
        read_back=lambda aws, _ident, _inputs: aws.call("ecr", "describe_registry")["replicationConfiguration"],
    ),
)


SERVICES = (*COPIES, *IDENTITY, *MACHINES, *NAMES, *STORAGE)
