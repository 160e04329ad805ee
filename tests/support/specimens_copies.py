"""Specimens of what copies stored data to another region."""

import json
from typing import Any

from tests.support import services
from tests.support.asked import asked
from tests.support.services import fresh
from tests.support.specimen import Specimen
from tests.support.world import TRUST, World

REPLICATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"


def versioned(world: World) -> str:
    """Make a bucket that keeps versions; return its name."""
    name = services.bucket(world)
    kept: Any = {"Status": "Enabled"}
    world.aws.call("s3", "put_bucket_versioning", Bucket=name, VersioningConfiguration=kept)
    return name


def copier(world: World) -> str:
    """Make a role that S3 may take; return its ARN."""
    trust = json.dumps(TRUST).replace("ec2.", "s3.")
    return world.made("create_role", "Role.Arn", "iam", RoleName=fresh("copier"), AssumeRolePolicyDocument=trust)


def copied(world: World, **more: object) -> dict[str, Any]:
    """Return a rule that copies everything to a bucket of another region."""
    return {
        "id": "everything",
        "status": "Enabled",
        "priority": 1,
        "filter": {},
        "deleteMarkerReplication": {"status": "Disabled"},
        "destination": {"bucket": f"arn:aws:s3:::{versioned(world.abroad)}", "storageClass": "STANDARD_IA"},
        **more,
    }


def encrypted(world: World) -> dict[str, Any]:
    """Return a rule that copies encrypted objects, under a key of the other region."""
    key = services.key(world.abroad)
    target = {
        "bucket": f"arn:aws:s3:::{versioned(world.abroad)}",
        "encryptionConfiguration": {"replicaKmsKeyId": key},
        "metrics": {"status": "Enabled", "eventThreshold": {"minutes": 15}},
        "replicationTime": {"status": "Enabled", "time": {"minutes": 15}},
    }
    return copied(
        world,
        destination=target,
        filter={"prefix": "runs/"},
        sourceSelectionCriteria={"sseKmsEncryptedObjects": {"status": "Enabled"}},
    )


COPIES = (
    Specimen(
        REPLICATION,
        inputs=lambda world: {"bucket": versioned(world), "role": copier(world), "rules": [copied(world)]},
        changes=lambda world: {"role": copier(world), "rules": [encrypted(world)]},
        told=asked("s3", "get_bucket_replication", Bucket=lambda ident, _inputs: ident),
        silent=frozenset({"bucket"}),
    ),
    Specimen(
        REPLICATION,
        form="of encrypted objects",
        inputs=lambda world: {"bucket": versioned(world), "role": copier(world), "rules": [encrypted(world)]},
        told=asked("s3", "get_bucket_replication", Bucket=lambda ident, _inputs: ident),
        silent=frozenset({"bucket", "rules"}),
    ),
)
