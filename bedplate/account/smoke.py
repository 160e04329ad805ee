"""Calls of the smoke test alone: keys of a role; what a fleet leaves behind, and its deletion with all data."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from bedplate.account.bundle import object_versions
from bedplate.account.client import AwsClient, NotThere, ask_regions, is_live, require_all
from bedplate.account.machines import has_terminated

_LISTED_WHEN_DELETED: Mapping[str, str] = MappingProxyType(
    {
        "ec2:natgateway": "NatGateway",
        "ec2:transit-gateway": "TransitGateway",
        "ec2:transit-gateway-attachment": "TransitGatewayAttachment",
    }
)


def role_keys(client: AwsClient, region: str, role: str) -> Mapping[str, str]:
    """Return the keys of a role for an hour, as variables of the environment."""
    keys = client.call("sts", region, "assume_role", RoleArn=role, RoleSessionName="bedplate-smoke")["Credentials"]
    names = {"ACCESS_KEY_ID": "AccessKeyId", "SECRET_ACCESS_KEY": "SecretAccessKey", "SESSION_TOKEN": "SessionToken"}
    return {f"AWS_{name}": str(keys[key]) for name, key in names.items()}


def tagged(client: AwsClient, fleet: str, regions: Iterable[str]) -> Mapping[str, str]:
    """Return what AWS has with the tag of a fleet: regions by ARN, images first. What is ending does not count."""
    query = {"TagFilters": [{"Key": "bedplate:fleet", "Values": [fleet]}]}

    def ask(region: str) -> tuple[str, ...]:
        pages = client.pages("resourcegroupstaggingapi", region, "get_resources", **query)
        arns = (entry["ResourceARN"] for page in pages for entry in page["ResourceTagMappingList"])
        return tuple(sorted(arn for arn in arns if not _is_ending(client, region, *kind_and_name(arn))))

    answers = require_all(ask_regions(regions, ask), "cannot list what the fleet has")
    return {arn: region for region, arns in answers.items() for arn in arns}


def _is_ending(client: AwsClient, region: str, kind: str, name: str) -> bool:
    if kind == "kms:key":
        facts = client.call("kms", region, "describe_key", KeyId=name)["KeyMetadata"]
        return bool(facts["KeyState"] == "PendingDeletion")
    if noun := _LISTED_WHEN_DELETED.get(kind):
        operation = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", f"describe{noun}s").lower()
        found = client.call("ec2", region, operation, **{f"{noun}Ids": [name]})[f"{noun}s"]
        return not any(map(is_live, found))
    return kind == "ec2:instance" and has_terminated(client, region, name)


def kind_and_name(arn: str) -> tuple[str, str]:
    """Return ("ec2:volume", "vol-1") of the ARN of a volume, ("s3", "data") of that of a bucket."""
    service, *_, resource = arn.split(":", 5)[2:]
    kind, slash, name = resource.partition("/")
    return (f"{service}:{kind}", name) if slash else (service, resource)


def remove(client: AwsClient, region: str, arn: str) -> None:
    """Delete an object of a kind in KEPT, with its data."""
    kind, name = kind_and_name(arn)
    service, operation, parameter, more = KEPT[kind]
    with suppress(NotThere):
        for version in object_versions(client, region, name) if kind == "s3" else ():
            client.call("s3", region, "delete_object", Bucket=name, **version)
        value = f"/{name}" if kind == "ssm:parameter" else name
        client.call(service, region, operation, **{parameter: value}, **more)


KEPT: Mapping[str, tuple[str, str, str, Mapping[str, Any]]] = MappingProxyType(
    {
        "ec2:image": ("ec2", "deregister_image", "ImageId", {}),
        "ec2:snapshot": ("ec2", "delete_snapshot", "SnapshotId", {}),
        "ec2:volume": ("ec2", "delete_volume", "VolumeId", {}),
        "elasticfilesystem:file-system": ("efs", "delete_file_system", "FileSystemId", {}),
        "kms:key": ("kms", "schedule_key_deletion", "KeyId", {"PendingWindowInDays": 7}),
        "s3": ("s3", "delete_bucket", "Bucket", {}),
        "ssm:parameter": ("ssm", "delete_parameter", "Name", {}),
    }
)
"""What `destroy` keeps and other commands make, by kind: service, operation and parameters of its deletion."""
