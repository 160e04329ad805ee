"""Specimens of identities, keys and what is kept secret."""

import json
from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.simulation import Aws
from tests.testlab.kinds import world as services
from tests.testlab.kinds.world import TRUST, Specimen, World, fresh
from tests.testlab.rehearsal.live import Told, asked, every, own, settled


def _json(told: Told) -> Told:
    """Return the same with policies as the texts that they were given as."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return _texts(told(aws, ident, inputs))

    return tell


def _texts(value: object) -> object:
    if isinstance(value, dict):
        return services.text(value) if "Statement" in value else {key: _texts(item) for key, item in value.items()}
    return [_texts(item) for item in value] if isinstance(value, list) else value


def _told_alias(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    found = [one for one in aws.call("kms", "list_aliases")["Aliases"] if one["AliasName"] == ident]
    return settled([found, aws.call("kms", "describe_key", KeyId=found[0]["TargetKeyId"])["KeyMetadata"]["Arn"]])


def _split(mark: str, place: int) -> Any:  # noqa: ANN401  # a parameter of `asked`
    return lambda ident, _inputs: ident.split(mark, 1)[place]


_TOLD_KEY = every(
    asked("kms", "describe_key", KeyId=own),
    asked("kms", "get_key_rotation_status", KeyId=own),
    asked("kms", "get_key_policy", KeyId=own, PolicyName=lambda _ident, _inputs: "default"),
    asked("kms", "list_resource_tags", KeyId=own),
)

IDENTITY = (
    Specimen(
        "aws:iam/role:Role",
        inputs=lambda _world: {
            "name": fresh("role"),
            "assumeRolePolicy": services.trust(),
            "description": "nodes",
            "path": "/lab/",
        },
        changes=lambda world: {
            "assumeRolePolicy": services.trust(Id="again"),
            "description": "machines",
            "maxSessionDuration": 7200,
            "permissionsBoundary": services.managed_policy(world),
            "managedPolicyArns": ["arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"],
            "inlinePolicies": [{"name": "own", "policy": services.document("ssm:GetParameter")}],
        },
        told=_json(
            every(
                asked("iam", "get_role", RoleName=own),
                asked("iam", "list_attached_role_policies", RoleName=own),
                asked("iam", "list_role_policies", RoleName=own),
            )
        ),
        silent=frozenset({"forceDetachPolicies"}),
    ),
    Specimen(
        "aws:iam/rolePolicy:RolePolicy",
        inputs=lambda world: {
            "name": "data",
            "role": services.role_name(world),
            "policy": services.document("s3:GetObject"),
        },
        changes={"policy": services.document("s3:PutObject")},
        told=_json(asked("iam", "get_role_policy", RoleName=_split(":", 0), PolicyName=_split(":", 1))),
    ),
    Specimen(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        inputs=lambda world: {
            "role": services.role_name(world),
            "policyArn": services.managed_policy(world),
        },
        told=every(
            asked("iam", "list_attached_role_policies", RoleName=_split("/", 0)),
            asked("iam", "get_role", RoleName=_split("/", 0)),
        ),
    ),
    Specimen(
        "aws:iam/instanceProfile:InstanceProfile",
        inputs=lambda _world: {"name": fresh("profile"), "path": "/lab/"},
        changes=lambda world: {"role": services.role_name(world)},
        told=asked("iam", "get_instance_profile", InstanceProfileName=own),
    ),
    Specimen(
        "aws:kms/key:Key",
        inputs={"description": "data", "multiRegion": True, "deletionWindowInDays": 7},
        changes={
            "description": "more data",
            "enableKeyRotation": True,
            "isEnabled": False,
            "policy": services.key_policy("kms:Decrypt"),
        },
        told=_TOLD_KEY,
        silent=frozenset({"bypassPolicyLockoutSafetyCheck", "deletionWindowInDays", "rotationPeriodInDays"}),
    ),
    Specimen(
        "aws:kms/alias:Alias",
        inputs=lambda world: {"name": f"alias/{fresh('data')}", "targetKeyId": services.key(world)},
        changes=lambda world: {"targetKeyId": services.key(world)},
        told=_told_alias,
    ),
    Specimen(
        "aws:ssm/parameter:Parameter",
        inputs=lambda world: {
            "name": f"/lab/{fresh('fact')}",
            "type": "SecureString",
            "value": "hidden",
            "keyId": services.key(world),
            "description": "a fact",
        },
        changes=lambda world: {
            "value": "moved",
            "description": "another fact",
            "keyId": services.key(world),
            "allowedPattern": "m.*",
            "tier": "Advanced",
            "type": "String",
        },
        told=every(
            asked("ssm", "get_parameter", Name=own, WithDecryption=lambda _ident, _inputs: True),
            asked("ssm", "describe_parameters", Filters=lambda ident, _inputs: [{"Key": "Name", "Values": [ident]}]),
            asked("ssm", "list_tags_for_resource", ResourceId=own, ResourceType=lambda _ident, _inputs: "Parameter"),
        ),
        silent=frozenset({"insecureValue", "overwrite"}),
    ),
    Specimen(
        "aws:ssm/parameter:Parameter",
        form="in the open",
        inputs=lambda _world: {"name": f"/lab/{fresh('fact')}", "type": "String", "insecureValue": "plain"},
        changes={"insecureValue": "plainer"},
        told=asked("ssm", "get_parameter", Name=own),
        silent=frozenset({"tags"}),
    ),
    Specimen(
        "aws:secretsmanager/secret:Secret",
        inputs=lambda _world: {"name": fresh("secret"), "description": "a token", "recoveryWindowInDays": 0},
        changes=lambda world: {
            "description": "a new token",
            "kmsKeyId": services.key(world),
            "policy": services.open_policy("secretsmanager:GetSecretValue"),
        },
        told=every(
            asked("secretsmanager", "describe_secret", SecretId=own),
            asked("secretsmanager", "get_resource_policy", SecretId=own),
        ),
        silent=frozenset({"forceOverwriteReplicaSecret", "recoveryWindowInDays"}),
    ),
    Specimen(
        "aws:secretsmanager/secretVersion:SecretVersion",
        inputs=lambda world: {"secretId": services.secret(world), "secretString": "hidden"},
        changes={"versionStages": ["AWSCURRENT", "blue"]},
        told=asked("secretsmanager", "get_secret_value", SecretId=_split("|", 0), VersionId=_split("|", 1)),
        adopted=True,
    ),
)


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
