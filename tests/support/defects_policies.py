"""What AWS refuses of policies and moto lets pass: each row is a specimen with one fault in its policy."""

import json
from collections.abc import Callable
from typing import Any

from tests.support import services
from tests.support.world import World

_BUCKET, _KEY, _INLINE = "aws:s3/bucketPolicy:BucketPolicy", "aws:kms/key:Key", "aws:iam/rolePolicy:RolePolicy"
_ROLE, _ENDPOINT = "aws:iam/role:Role", "aws:ec2/vpcEndpoint:VpcEndpoint"
_EC2 = {"Service": "ec2.amazonaws.com"}
_ACCOUNT = {"AWS": "arn:aws:iam::111122223333:root"}


def _trust(**more: object) -> dict[str, Any]:
    return {"assumeRolePolicy": services.trust(Statement=[{"Effect": "Allow", "Action": "sts:AssumeRole", **more}])}


def _policy(action: str = "s3:GetObject", resource: str = "*", **more: object) -> dict[str, Any]:
    return {"policy": services.document(action, resource, **more)}


def _of_another_year() -> dict[str, Any]:
    return {"policy": json.dumps({**json.loads(services.document("s3:GetObject")), "Version": "2020-01-01"})}


def _opened(world: World) -> dict[str, Any]:
    bucket = services.bucket(world)
    shut = {"BlockPublicPolicy": True}
    world.aws.call("s3", "put_public_access_block", Bucket=bucket, PublicAccessBlockConfiguration=shut)
    return {"bucket": bucket, **_policy(resource=f"arn:aws:s3:::{bucket}/*", Principal="*")}


# Token, inputs in the place of the specimen's, the input that is complained about.
COMPLAINTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (_INLINE, _policy(Principal="*"), "policy"),
    (_INLINE, _policy(Sid="read-all"), "policy"),
    (_INLINE, _policy(Conditions={}), "policy"),
    (_INLINE, _policy(resource=""), "policy"),
    (_INLINE, _of_another_year(), "policy"),
    (_INLINE, {"policy": '{"Statement": ["all"]}'}, "policy"),
    (_ROLE, _trust(), "assumeRolePolicy"),
    (_ROLE, _trust(Principal=_EC2, Resource="*"), "assumeRolePolicy"),
    (_ROLE, _trust(Principal=_EC2, Action="s3:GetObject"), "assumeRolePolicy"),
    (_ROLE, _trust(Principal={"AWS": "arn:aws:iam::1111:root"}), "assumeRolePolicy"),
    (_BUCKET, _policy(), "policy"),
    (_BUCKET, _policy("ec2:RunInstances", Principal=_ACCOUNT), "policy"),
    (_KEY, _policy("kms:*"), "policy"),
    (_KEY, _policy("kms:*", Principal={"AWS": "everybody"}), "policy"),
)
# Token, what spoils the specimen's inputs in a world, AWS's code.
REFUSALS: tuple[tuple[str, str, Callable[[World], dict[str, Any]], str], ...] = (
    (
        "key nobody controls",
        _KEY,
        lambda _: _policy("kms:Describe*", Principal=_ACCOUNT),
        "MalformedPolicyDocumentException",
    ),
    (
        "policy for another bucket",
        _BUCKET,
        lambda _: _policy(resource="arn:aws:s3:::elsewhere/*", Principal=_ACCOUNT),
        "MalformedPolicy",
    ),
    ("public policy on a shut bucket", _BUCKET, _opened, "AccessDenied"),
)
