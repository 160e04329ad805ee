"""EFS file systems, their mount targets, file system policies and backup policies."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, Support, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import call_with, copied, creates_setting, deletes
from bedplate.rehearsal.kinds.iam import FILE_SYSTEM_FORM, check_policy, require_principals
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Items,
    Tagger,
    Text,
    check_nested,
    checks,
    rollback,
    tag_pairs,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- File systems

_LIMITS = {
    "creationToken": Text(1, 64),
    "throughputMode": Choice(("bursting", "elastic")),
}
_PERIODS = tuple(f"AFTER_{days}" for days in ("1_DAY", *(f"{n}_DAYS" for n in (7, 14, 30, 60, 90, 180, 270, 365))))
_LIFECYCLE_LIMITS = {
    "transitionToArchive": Choice(_PERIODS),
    "transitionToIa": Choice(_PERIODS),
    "transitionToPrimaryStorageClass": Choice(("AFTER_1_ACCESS",)),
}
_DEFAULT_KEY = "alias/aws/elasticfilesystem"
_SEPARATE = ("creationToken", "lifecyclePolicies", "tags")
EFS_TAGS = Tagger(service="efs", ident="ResourceId")


def _check_file_system(inputs: Props) -> Iterator[InvalidInput]:
    yield from check_nested(inputs, "lifecyclePolicies", _LIFECYCLE_LIMITS)
    yield from _check_lifecycle(inputs.get("lifecyclePolicies"))
    if inputs.get("kmsKeyId") and inputs.get("encrypted") is not True:
        yield InvalidInput("encrypted", "must be true when kmsKeyId is set")


def _check_lifecycle(policies: object) -> Iterator[InvalidInput]:
    """Yield an error when a transition is repeated, or shares a policy: EFS wants one policy for each."""
    items = policies if isinstance(policies, list) and is_known(policies) else []
    transitions = [[key for key, value in item.items() if value] for item in items]
    if any(len(keys) != 1 for keys in transitions) or len({*map(tuple, transitions)}) < len(transitions):
        yield InvalidInput("lifecyclePolicies", "must have one policy for each transition, without duplicates")


def _create_file_system(aws: Aws, inputs: Props) -> str:
    if inputs.get("kmsKeyId"):
        _require_key(aws, inputs["kmsKeyId"])
    token, tags = inputs.get("creationToken") or str(uuid4()), tag_pairs(inputs.get("tags"))
    response = call_with(aws, ("efs", "create_file_system"), inputs, apart=_SEPARATE, CreationToken=token, Tags=tags)
    ident: str = response["FileSystemId"]
    with rollback(lambda: _delete_file_system(aws, ident, inputs)):
        _set_lifecycle(aws, ident, {}, inputs)
    return ident


def _require_key(aws: Aws, key: str) -> None:
    metadata = aws.call("kms", "describe_key", KeyId=key)["KeyMetadata"]
    if not metadata["Enabled"]:
        raise ResourceError("BadRequest", f"{key} is {metadata['KeyState']}", key="kmsKeyId")


def _set_lifecycle(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = old.get("lifecyclePolicies") or [], new.get("lifecyclePolicies") or []
    if before != after:
        call = ("efs", "put_lifecycle_configuration")
        call_with(aws, call, {"lifecyclePolicies": after}, FileSystemId=ident)


def _read_file_system(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    system = aws.call("efs", "describe_file_systems", FileSystemId=ident)["FileSystems"][0]
    default_key = aws.arn("kms", _DEFAULT_KEY) if system["Encrypted"] else ""
    return {
        **copied(system, "availabilityZoneId", "creationToken", "encrypted", "name", "numberOfMountTargets"),
        **copied(system, "ownerId", "performanceMode", arn="FileSystemArn"),
        "dnsName": f"{ident}.efs.{aws.region}.amazonaws.com",
        "kmsKeyId": system.get("KmsKeyId") or default_key,
        "protection": {"replicationOverwrite": "ENABLED"},
        "sizeInBytes": [{"value": 0, "valueInIa": 0, "valueInStandard": 0}],
    }


def _update_file_system(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _set_lifecycle(aws, ident, old, new)
    EFS_TAGS.retag(aws, ident, old, new)


_delete_file_system = deletes("efs", "delete_file_system", "FileSystemId")


FILE_SYSTEM = ResourceKind(
    token="aws:efs/fileSystem:FileSystem",
    inputs=updates("lifecyclePolicies", "tags", "throughputMode") | replaces("creationToken", "encrypted", "kmsKeyId"),
    defaults={"throughputMode": "bursting"},
    computed=frozenset({"creationToken", "encrypted", "kmsKeyId"}),
    naming=Naming(key="creationToken", longest=64),
    create=_create_file_system,
    read=_read_file_system,
    update=_update_file_system,
    delete=_delete_file_system,
    complaints=checks(_LIMITS, _check_file_system),
    note="moto has no UpdateFileSystem: the mode of throughput is taken from the inputs",
)


# --- Mount targets

_MOUNT_TARGET_LIMITS = {"securityGroups": Items(5, "security groups")}  # EFS quotas


def _create_mount_target(aws: Aws, inputs: Props) -> str:
    _require_groups(aws, inputs)
    return str(call_with(aws, ("efs", "create_mount_target"), inputs)["MountTargetId"])


def _require_groups(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for security groups that do not exist, or are not in the VPC of the subnet."""
    groups = inputs.get("securityGroups") or []
    try:
        descriptions = aws.call("ec2", "describe_security_groups", GroupIds=groups)["SecurityGroups"] if groups else []
        vpc = aws.call("ec2", "describe_subnets", SubnetIds=[inputs["subnetId"]])["Subnets"][0]["VpcId"]
    except ResourceError as error:
        code = "SubnetNotFound" if error.code.startswith("InvalidSubnet") else "SecurityGroupNotFound"
        raise ResourceError(code, error.message, key="securityGroups") from None
    for group in descriptions:
        if group["VpcId"] != vpc:
            message = f"{group['GroupId']} belongs to {group['VpcId']}, the subnet to {vpc}"
            raise ResourceError("SecurityGroupNotFound", message, key="securityGroups")


def _read_mount_target(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    target = aws.call("efs", "describe_mount_targets", MountTargetId=ident)["MountTargets"][0]
    system_id = target["FileSystemId"]
    dns = f"{system_id}.efs.{aws.region}.amazonaws.com"
    return {
        **copied(target, "availabilityZoneId", "availabilityZoneName", "ipAddress", "networkInterfaceId", "ownerId"),
        "dnsName": dns,
        "fileSystemArn": aws.arn("elasticfilesystem", f"file-system/{system_id}"),
        "ipAddressType": "IPV4_ONLY",
        "mountTargetDnsName": f"{target['AvailabilityZoneName']}.{dns}",
        "securityGroups": _effective_groups(aws, ident, target["SubnetId"]),
    }


def _effective_groups(aws: Aws, ident: str, subnet: str) -> list[str]:
    """Return the security groups of a mount target; with none set, the default group of its VPC applies."""
    reply = aws.call("efs", "describe_mount_target_security_groups", MountTargetId=ident)
    if group_ids := reply.get("SecurityGroups"):
        return sorted(group_ids)
    vpc = aws.call("ec2", "describe_subnets", SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    return ec2.default_groups(aws, vpc)


def _update_mount_target(aws: Aws, ident: str, old: Props, new: Props) -> None:
    groups = new.get("securityGroups")
    if groups and sorted(groups) != sorted(old.get("securityGroups") or []):
        _require_groups(aws, new)
        call = {"MountTargetId": ident, "SecurityGroups": groups}
        aws.call("efs", "modify_mount_target_security_groups", **call)


MOUNT_TARGET = ResourceKind(
    token="aws:efs/mountTarget:MountTarget",
    inputs=updates("securityGroups") | replaces("fileSystemId", "subnetId"),
    computed=frozenset({"securityGroups"}),
    sets=frozenset({"securityGroups"}),
    create=_create_mount_target,
    read=_read_mount_target,
    update=_update_mount_target,
    delete=deletes("efs", "delete_mount_target", "MountTargetId"),
    complaints=checks(_MOUNT_TARGET_LIMITS),
    delete_first=True,
)


# --- File system policies

_NO_POLICY = "{}"  # moto has no DeleteFileSystemPolicy: this document means no policy


def _read_policy(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    if aws.call("efs", "describe_file_system_policy", FileSystemId=ident)["Policy"] == _NO_POLICY:
        raise ResourceError("PolicyNotFound", f"{ident} has no policy")
    return {"fileSystemId": ident}


def _update_policy(aws: Aws, ident: str, old: Props, new: Props) -> None:
    aws.call("efs", "describe_file_systems", FileSystemId=ident)
    require_principals(aws, new["policy"], "InvalidPolicyException")
    aws.call("efs", "put_file_system_policy", FileSystemId=ident, Policy=new["policy"])


def _delete_policy(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("efs", "put_file_system_policy", FileSystemId=ident, Policy=_NO_POLICY)


FILE_SYSTEM_POLICY = ResourceKind(
    token="aws:efs/fileSystemPolicy:FileSystemPolicy",
    inputs=updates("policy") | replaces("fileSystemId"),
    create=creates_setting("fileSystemId", _update_policy),
    read=_read_policy,
    update=_update_policy,
    delete=_delete_policy,
    complaints=checks({}, partial(check_policy, form=FILE_SYSTEM_FORM)),
)


# --- Backup policies

_BACKUP_POLICY = "aws:efs/backupPolicy:BackupPolicy"
_BACKUP_LIMITS = {"status": Choice(("ENABLED", "DISABLED"))}


def _read_backup_policy(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call("efs", "describe_file_systems", FileSystemId=ident)
    if ident not in aws.fakes(_BACKUP_POLICY):
        raise ResourceError("PolicyNotFound", f"{ident} has no backup policy")
    return {"backupPolicy": aws.fakes(_BACKUP_POLICY)[ident]["backupPolicy"], "fileSystemId": ident}


def _update_backup_policy(aws: Aws, ident: str, old: Props, new: Props) -> None:
    aws.call("efs", "describe_file_systems", FileSystemId=ident)
    aws.fakes(_BACKUP_POLICY)[ident] = dict(new)


def _delete_backup_policy(aws: Aws, ident: str, outputs: Props) -> None:
    aws.fakes(_BACKUP_POLICY).pop(ident, None)


BACKUP_POLICY = ResourceKind(
    token=_BACKUP_POLICY,
    inputs=updates("backupPolicy") | replaces("fileSystemId"),
    create=creates_setting("fileSystemId", _update_backup_policy),
    read=_read_backup_policy,
    update=_update_backup_policy,
    delete=_delete_backup_policy,
    complaints=checks({}, partial(check_nested, path="backupPolicy", limits=_BACKUP_LIMITS)),
    support=Support.FAKED,
    note="moto has no PutBackupPolicy",
)
