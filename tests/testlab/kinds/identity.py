"""Fixtures of IAM, KMS, Systems Manager and Secrets Manager, and of S3 replication."""

import json
from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.simulation import Aws
from tests.testlab.kinds import world as services
from tests.testlab.kinds.world import TRUST, KindFixture, World, fresh
from tests.testlab.rehearsal.live import Describe, describe_all, describe_by_call, own_id, stable_reply


def _with_json(read: Describe) -> Describe:
    """Return a function that returns policies as JSON text, the form of the inputs."""

    def read_json(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return _policies_as_json(read(aws, ident, inputs))

    return read_json


def _policies_as_json(value: object) -> object:
    if isinstance(value, dict):
        return (
            services.text(value)
            if "Statement" in value
            else {key: _policies_as_json(item) for key, item in value.items()}
        )
    return [_policies_as_json(item) for item in value] if isinstance(value, list) else value


def _read_alias(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    aliases = [alias for alias in aws.call("kms", "list_aliases")["Aliases"] if alias["AliasName"] == ident]
    return stable_reply(
        [aliases, aws.call("kms", "describe_key", KeyId=aliases[0]["TargetKeyId"])["KeyMetadata"]["Arn"]]
    )


def _split(mark: str, place: int) -> Any:  # noqa: ANN401  # a parameter of `asked`
    return lambda ident, _inputs: ident.split(mark, 1)[place]


_READ_KEY = describe_all(
    describe_by_call("kms", "describe_key", KeyId=own_id),
    describe_by_call("kms", "get_key_rotation_status", KeyId=own_id),
    describe_by_call("kms", "get_key_policy", KeyId=own_id, PolicyName=lambda _ident, _inputs: "default"),
    describe_by_call("kms", "list_resource_tags", KeyId=own_id),
)

IDENTITY = (
    KindFixture(
        "aws:iam/role:Role",
        inputs=lambda _world: {
            "name": fresh("role"),
            "assumeRolePolicy": services.trust(),
            "description": "nodes",
        },
        changes=lambda world: {
            "assumeRolePolicy": services.trust(Id="again"),
            "description": "machines",
            "permissionsBoundary": services.managed_policy(world),
        },
        read_back=_with_json(describe_by_call("iam", "get_role", RoleName=own_id)),
    ),
    KindFixture(
        "aws:iam/rolePolicy:RolePolicy",
        inputs=lambda world: {
            "name": "data",
            "role": services.role_name(world),
            "policy": services.document("s3:GetObject"),
        },
        changes={"policy": services.document("s3:PutObject")},
        read_back=_with_json(
            describe_by_call("iam", "get_role_policy", RoleName=_split(":", 0), PolicyName=_split(":", 1))
        ),
    ),
    KindFixture(
        "aws:iam/instanceProfile:InstanceProfile",
        inputs=lambda _world: {"name": fresh("profile")},
        changes=lambda world: {"role": services.role_name(world)},
        read_back=describe_by_call("iam", "get_instance_profile", InstanceProfileName=own_id),
    ),
    KindFixture(
        "aws:iam/openIdConnectProvider:OpenIdConnectProvider",
        inputs=lambda _world: {
            "url": f"https://{fresh('issuer')}.s3.us-west-2.amazonaws.com",
            "clientIdLists": ["sts.amazonaws.com"],
        },
        changes={"clientIdLists": ["lab", "sts.amazonaws.com"]},
        read_back=describe_by_call("iam", "get_open_id_connect_provider", OpenIDConnectProviderArn=own_id),
        not_returned=frozenset({"url"}),  # AWS returns it without https://
    ),
    KindFixture(
        "aws:kms/key:Key",
        inputs={"description": "data", "deletionWindowInDays": 7},
        changes={
            "description": "more data",
            "enableKeyRotation": True,
            "policy": services.key_policy("kms:Decrypt"),
        },
        read_back=_READ_KEY,
        not_returned=frozenset({"deletionWindowInDays"}),
    ),
    KindFixture(
        "aws:kms/alias:Alias",
        inputs=lambda world: {"name": f"alias/{fresh('data')}", "targetKeyId": services.key(world)},
        changes=lambda world: {"targetKeyId": services.key(world)},
        read_back=_read_alias,
    ),
    KindFixture(
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
            "type": "String",
        },
        read_back=describe_all(
            describe_by_call("ssm", "get_parameter", Name=own_id, WithDecryption=lambda _ident, _inputs: True),
            describe_by_call(
                "ssm", "describe_parameters", Filters=lambda ident, _inputs: [{"Key": "Name", "Values": [ident]}]
            ),
            describe_by_call(
                "ssm", "list_tags_for_resource", ResourceId=own_id, ResourceType=lambda _ident, _inputs: "Parameter"
            ),
        ),
    ),
    KindFixture(
        "aws:secretsmanager/secret:Secret",
        inputs=lambda _world: {"name": fresh("secret"), "description": "a token", "recoveryWindowInDays": 0},
        changes=lambda world: {
            "description": "a new token",
            "kmsKeyId": services.key(world),
        },
        read_back=describe_by_call("secretsmanager", "describe_secret", SecretId=own_id),
        not_returned=frozenset({"recoveryWindowInDays"}),
    ),
    KindFixture(
        "aws:secretsmanager/secretVersion:SecretVersion",
        inputs=lambda world: {"secretId": services.secret(world), "secretString": "hidden"},
        read_back=describe_by_call(
            "secretsmanager", "get_secret_value", SecretId=_split("|", 0), VersionId=_split("|", 1)
        ),
        adopted=True,
    ),
)


REPLICATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"


def versioned_bucket(world: World) -> str:
    """Make a bucket with versioning; return its name."""
    name = services.bucket(world)
    configuration: Any = {"Status": "Enabled"}
    world.aws.call("s3", "put_bucket_versioning", Bucket=name, VersioningConfiguration=configuration)
    return name


def copier(world: World) -> str:
    """Make a role that S3 may assume; return its ARN."""
    trust = json.dumps(TRUST).replace("ec2.", "s3.")
    return world.create("create_role", "Role.Arn", "iam", RoleName=fresh("copier"), AssumeRolePolicyDocument=trust)


def copy_rule(world: World, **more: object) -> dict[str, Any]:
    """Return a rule that copies all objects to a bucket in another region."""
    return {
        "id": "everything",
        "status": "Enabled",
        "priority": 1,
        "filter": {},
        "deleteMarkerReplication": {"status": "Disabled"},
        "destination": {"bucket": f"arn:aws:s3:::{versioned_bucket(world.abroad)}", "storageClass": "STANDARD_IA"},
        **more,
    }


def encrypted_copy_rule(world: World) -> dict[str, Any]:
    """Return a rule that copies encrypted objects, with a key of the other region."""
    key = services.key(world.abroad)
    target = {
        "bucket": f"arn:aws:s3:::{versioned_bucket(world.abroad)}",
        "encryptionConfiguration": {"replicaKmsKeyId": key},
        "metrics": {"status": "Enabled", "eventThreshold": {"minutes": 15}},
        "replicationTime": {"status": "Enabled", "time": {"minutes": 15}},
    }
    return copy_rule(
        world,
        destination=target,
        filter={"prefix": "runs/"},
        sourceSelectionCriteria={"sseKmsEncryptedObjects": {"status": "Enabled"}},
    )


COPIES = (
    KindFixture(
        REPLICATION,
        inputs=lambda world: {"bucket": versioned_bucket(world), "role": copier(world), "rules": [copy_rule(world)]},
        changes=lambda world: {"role": copier(world), "rules": [encrypted_copy_rule(world)]},
        read_back=describe_by_call("s3", "get_bucket_replication", Bucket=lambda ident, _inputs: ident),
        not_returned=frozenset({"bucket"}),
    ),
    KindFixture(
        REPLICATION,
        variant="of encrypted objects",
        inputs=lambda world: {
            "bucket": versioned_bucket(world),
            "role": copier(world),
            "rules": [encrypted_copy_rule(world)],
        },
        read_back=describe_by_call("s3", "get_bucket_replication", Bucket=lambda ident, _inputs: ident),
        not_returned=frozenset({"bucket", "rules"}),
    ),
)
