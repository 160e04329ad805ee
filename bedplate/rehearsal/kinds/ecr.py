"""ECR: repositories of container images, and the replication of a registry to other regions."""

from typing import Any

from bedplate.rehearsal.kind import Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import call_with, deletes, existing
from bedplate.rehearsal.kinds.limits import Choice, Text, checks, tag_pairs
from bedplate.rehearsal.simulation import Aws

# --- Repositories

_FORM = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"
_LIMITS = {
    "name": Text(2, 256, _FORM, "lower-case letters, digits and ._-/"),
    "imageTagMutability": Choice(("MUTABLE", "IMMUTABLE")),
}


def _create(aws: Aws, inputs: Props) -> str:
    settings = {"imageTagMutability": inputs["imageTagMutability"], "tags": tag_pairs(inputs.get("tags"))}
    aws.call("ecr", "create_repository", repositoryName=inputs["name"], **settings)
    return str(inputs["name"])


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    (found,) = aws.call("ecr", "describe_repositories", repositoryNames=[ident])["repositories"]
    return {
        "arn": found["repositoryArn"],
        "encryptionConfigurations": [found["encryptionConfiguration"]],
        "name": ident,
        "registryId": found["registryId"],
        "repositoryUrl": found["repositoryUri"],
    }


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    setting = {"imageTagMutability": new["imageTagMutability"]}
    aws.call("ecr", "put_image_tag_mutability", repositoryName=ident, **setting)
    before, after, arn = old.get("tags") or {}, new.get("tags") or {}, aws.arn("ecr", f"repository/{ident}")
    if removed := sorted(before.keys() - after.keys()):
        aws.call("ecr", "untag_resource", resourceArn=arn, tagKeys=removed)
    if added := dict(after.items() - before.items()):
        aws.call("ecr", "tag_resource", resourceArn=arn, tags=tag_pairs(added))


REPOSITORY = ResourceKind(
    token="aws:ecr/repository:Repository",
    inputs=updates("imageTagMutability", "tags") | replaces("name"),
    defaults={"imageTagMutability": "MUTABLE"},
    naming=Naming(longest=256),
    create=_create,
    read=_read,
    update=_update,
    delete=deletes("ecr", "delete_repository", "repositoryName"),
    complaints=checks(_LIMITS),
)


# --- Replication: a setting of the account's registry in a region


def _put(aws: Aws, inputs: Props) -> None:
    call_with(aws, ("ecr", "put_replication_configuration"), inputs)


def _create_replication(aws: Aws, inputs: Props) -> str:
    _put(aws, inputs)
    return aws.account


def _read_replication(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("ecr", "describe_registry")
    rules = found["replicationConfiguration"]["rules"]
    existing(rules, "ResourceNotFoundException", "The registry has no replication configuration")
    return {"registryId": found["registryId"]}


REPLICATION = ResourceKind(
    token="aws:ecr/replicationConfiguration:ReplicationConfiguration",
    inputs=updates("replicationConfiguration"),
    create=_create_replication,
    read=_read_replication,
    update=lambda aws, _ident, _old, new: _put(aws, new),
    delete=lambda aws, _ident, _last: _put(aws, {"replicationConfiguration": {"rules": []}}),
    note="one for each region of an account",
)
