"""Specimens of storage: EFS and S3."""

from typing import Any

from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from tests.testlab.kinds import world as services
from tests.testlab.kinds.identity import COPIES, IDENTITY
from tests.testlab.kinds.machines import MACHINES
from tests.testlab.kinds.names import NAMES
from tests.testlab.kinds.world import Specimen, fresh
from tests.testlab.rehearsal.live import Told, asked, every, faked, own


def _of_bucket(operation: str) -> Told:
    return asked("s3", operation, Bucket=own)


def _part(place: int) -> Any:  # noqa: ANN401  # a parameter of `asked`
    return lambda ident, _inputs: ident.split("/", 1)[place]


def _object(operation: str) -> Told:
    return asked("s3", operation, Bucket=_part(0), Key=_part(1))


def _bucket_tags(aws: Aws, ident: str) -> object:
    try:
        return aws.call("s3", "get_bucket_tagging", Bucket=ident)["TagSet"]
    except Refusal:
        return []


_EXPIRE = {"id": "old", "status": "Enabled", "noncurrentVersionExpiration": {"noncurrentDays": 30}}
_GIVE_UP = {"id": "uploads", "status": "Enabled", "abortIncompleteMultipartUpload": {"daysAfterInitiation": 7}}
_PRIVATE = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")

STORAGE = (
    Specimen(
        "aws:efs/fileSystem:FileSystem",
        inputs=lambda world: {
            "creationToken": fresh("home"),
            "encrypted": True,
            "kmsKeyId": services.key(world),
            "performanceMode": "generalPurpose",
        },
        changes={"lifecyclePolicies": [{"transitionToIa": "AFTER_30_DAYS"}]},
        told=every(
            asked("efs", "describe_file_systems", FileSystemId=own),
            asked("efs", "describe_lifecycle_configuration", FileSystemId=own),
        ),
        silent=frozenset({"protection", "provisionedThroughputInMibps", "throughputMode"}),
    ),
    Specimen(
        "aws:efs/mountTarget:MountTarget",
        inputs=lambda world: {
            "fileSystemId": services.file_system(world),
            "subnetId": world.subnet,
            "securityGroups": [world.group],
            "ipAddress": "10.20.0.20",
        },
        changes=lambda world: {"securityGroups": [world.other_group]},
        told=every(
            asked("efs", "describe_mount_targets", MountTargetId=own),
            asked("efs", "describe_mount_target_security_groups", MountTargetId=own),
        ),
    ),
    Specimen(
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
        inputs=lambda world: {
            "fileSystemId": services.file_system(world),
            "policy": services.open_policy("elasticfilesystem:ClientMount"),
        },
        changes={"policy": services.open_policy("elasticfilesystem:ClientWrite")},
        told=asked("efs", "describe_file_system_policy", FileSystemId=own),
        silent=frozenset({"bypassPolicyLockoutSafetyCheck"}),
    ),
    Specimen(
        "aws:efs/backupPolicy:BackupPolicy",
        inputs=lambda world: {
            "fileSystemId": services.file_system(world),
            "backupPolicy": {"status": "ENABLED"},
        },
        changes={"backupPolicy": {"status": "DISABLED"}},
        told=faked,
    ),
    Specimen(
        "aws:s3/bucket:Bucket",
        inputs=lambda _world: {"bucket": fresh("lab-data"), "objectLockEnabled": True},
        told=lambda aws, ident, inputs: [
            [one["Name"] for one in aws.call("s3", "list_buckets")["Buckets"] if one["Name"] == ident],
            _of_bucket("get_object_lock_configuration")(aws, ident, inputs) and True,
            _bucket_tags(aws, ident),
        ],
        silent=frozenset({"forceDestroy"}),
    ),
    Specimen(
        "aws:s3/bucketVersioning:BucketVersioning",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "versioningConfiguration": {"status": "Enabled"},
        },
        changes={"versioningConfiguration": {"status": "Suspended"}},
        told=_of_bucket("get_bucket_versioning"),
        silent=frozenset({"bucket", "mfa"}),
        adopted=True,
    ),
    Specimen(
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
        told=_of_bucket("get_bucket_encryption"),
        silent=frozenset({"bucket"}),
    ),
    Specimen(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        inputs=lambda world: {"bucket": services.bucket(world)},
        changes=dict.fromkeys(_PRIVATE, True),
        told=_of_bucket("get_public_access_block"),
        silent=frozenset({"bucket", "skipDestroy"}),
    ),
    Specimen(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "rule": {"objectOwnership": "BucketOwnerEnforced"},
        },
        changes={"rule": {"objectOwnership": "ObjectWriter"}},
        told=_of_bucket("get_bucket_ownership_controls"),
        silent=frozenset({"bucket"}),
    ),
    Specimen(
        "aws:s3/bucketPolicy:BucketPolicy",
        inputs=lambda world: {"bucket": services.bucket(world), "policy": services.open_policy("s3:GetObject")},
        changes={"policy": services.open_policy("s3:PutObject")},
        told=_of_bucket("get_bucket_policy"),
        silent=frozenset({"bucket"}),
    ),
    Specimen(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "rules": [
                {**_EXPIRE, "filter": {"and": {"prefix": "runs/", "tags": {"kind": "scratch"}}}},
                {**_GIVE_UP, "expiration": {"days": 365}},
            ],
        },
        changes={"rules": [{**_EXPIRE, "transitions": [{"days": 30, "storageClass": "GLACIER"}]}]},
        told=_of_bucket("get_bucket_lifecycle_configuration"),
        silent=frozenset({"bucket", "transitionDefaultMinimumObjectSize"}),
    ),
    Specimen(
        "aws:s3/bucketObjectv2:BucketObjectv2",
        inputs=lambda world: {
            "bucket": services.bucket(world),
            "key": "config/fleet.json",
            "content": "one",
            "contentType": "application/json",
        },
        changes=lambda world: {
            "content": "two",
            "contentBase64": "dGhyZWU=",
            "cacheControl": "no-cache",
            "contentDisposition": "inline",
            "contentEncoding": "identity",
            "contentLanguage": "en",
            "contentType": "text/plain",
            "metadata": {"made-by": "lab"},
            "storageClass": "STANDARD_IA",
            "serverSideEncryption": "AES256",
            "kmsKeyId": services.key(world),
            "bucketKeyEnabled": True,
        },
        told=every(_object("head_object"), _object("get_object_tagging")),
        silent=frozenset({"bucket", "content", "etag", "forceDestroy", "key", "sourceHash"}),
    ),
)


SERVICES = (*COPIES, *IDENTITY, *MACHINES, *NAMES, *STORAGE)
