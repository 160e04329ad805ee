"""EFS file systems."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, Support, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Tagger, Text, beyond, inside, tag_pairs, undoing
from bedplate.rehearsal.kinds.policy_document import FILE_SYSTEM as POLICY_DOCUMENT_FILE_SYSTEM
from bedplate.rehearsal.kinds.policy_document import malformed, refuse_strangers
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_LIMITS = {
    "creationToken": Text(1, 64),
    "performanceMode": Choice(("generalPurpose", "maxIO")),
    "throughputMode": Choice(("bursting", "provisioned", "elastic")),
    "provisionedThroughputInMibps": Number(1, 3414),
}
_IDLE = tuple(f"AFTER_{days}" for days in ("1_DAY", *(f"{n}_DAYS" for n in (7, 14, 30, 60, 90, 180, 270, 365))))
_CYCLE = {
    "transitionToArchive": Choice(_IDLE),
    "transitionToIa": Choice(_IDLE),
    "transitionToPrimaryStorageClass": Choice(("AFTER_1_ACCESS",)),
}
_DEFAULT_KEY = "alias/aws/elasticfilesystem"
_APART = ("creationToken", "lifecyclePolicies", "protection", "tags")
EFS_TAGS = Tagger(service="efs", ident="ResourceId")


def _create(aws: Aws, inputs: Props) -> str:
    if inputs.get("kmsKeyId"):
        _find_key(aws, inputs["kmsKeyId"])
    _find_zone(aws, inputs.get("availabilityZoneName"))
    params = placed(aws, ("efs", "create_file_system"), inputs, apart=_APART)
    token = inputs.get("creationToken") or str(uuid4())
    tags = tag_pairs(inputs.get("tags"))
    ident: str = aws.call("efs", "create_file_system", CreationToken=token, Tags=tags, **params)["FileSystemId"]
    with undoing(lambda: _delete(aws, ident, inputs)):
        _cycle(aws, ident, {}, inputs)
    return ident


def _find_zone(aws: Aws, zone: str | None) -> None:
    found = aws.call("ec2", "describe_availability_zones")["AvailabilityZones"] if zone else []
    if zone and zone not in [each["ZoneName"] for each in found]:
        raise Refusal("UnsupportedAvailabilityZone", f"{aws.region} has no zone {zone}", key="availabilityZoneName")


def _find_key(aws: Aws, key: str) -> None:
    found = aws.call("kms", "describe_key", KeyId=key)["KeyMetadata"]
    if not found["Enabled"]:
        raise Refusal("BadRequest", f"{key} is {found['KeyState']}", key="kmsKeyId")


def _cycle(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = old.get("lifecyclePolicies") or [], new.get("lifecyclePolicies") or []
    if before != after:
        params = placed(aws, ("efs", "put_lifecycle_configuration"), {"lifecyclePolicies": after})
        aws.call("efs", "put_lifecycle_configuration", FileSystemId=ident, **params)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _cycle(aws, ident, old, new)
    EFS_TAGS.retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("efs", "describe_file_systems", FileSystemId=ident)["FileSystems"][0]
    key = found.get("KmsKeyId") or ""
    if found["Encrypted"] and not key:
        key = aws.arn("kms", _DEFAULT_KEY)
    return {
        "arn": found["FileSystemArn"],
        "availabilityZoneId": found.get("AvailabilityZoneId") or "",
        "creationToken": found["CreationToken"],
        "dnsName": f"{ident}.efs.{aws.region}.amazonaws.com",
        "encrypted": found["Encrypted"],
        "kmsKeyId": key,
        "name": found.get("Name") or "",
        "numberOfMountTargets": found["NumberOfMountTargets"],
        "ownerId": aws.account,
        "performanceMode": found["PerformanceMode"],
        "protection": inputs.get("protection") or {"replicationOverwrite": "ENABLED"},
        "sizeInBytes": [{"value": 0, "valueInIa": 0, "valueInStandard": 0}],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("efs", "delete_file_system", FileSystemId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from inside(inputs, "lifecyclePolicies", _CYCLE)
    yield from _cycle_complaints(inputs.get("lifecyclePolicies"))
    if inputs.get("performanceMode") == "maxIO" and inputs.get("throughputMode") == "elastic":
        yield Complaint("throughputMode", "elastic throughput is not for the performanceMode maxIO")
    if inputs.get("kmsKeyId") and inputs.get("encrypted") is not True:
        yield Complaint("encrypted", "encrypted must be true when kmsKeyId is given")
    provisioned = inputs.get("throughputMode") == "provisioned"
    if provisioned != (inputs.get("provisionedThroughputInMibps") is not None):
        yield Complaint("provisionedThroughputInMibps", "goes with the throughputMode provisioned, and only so")


def _cycle_complaints(policies: object) -> Iterator[Complaint]:
    """Yield where a transition is there twice, or does not stand in a policy of its own, as EFS wants it."""
    listed = policies if isinstance(policies, list) and is_known(policies) else []
    named = [[key for key, value in each.items() if value] for each in listed]
    if any(len(keys) != 1 for keys in named) or len({*map(tuple, named)}) < len(named):
        yield Complaint("lifecyclePolicies", "each transition stands once, in a policy of its own")


FILE_SYSTEM = Kind(
    token="aws:efs/fileSystem:FileSystem",
    inputs=updates("lifecyclePolicies", "protection", "provisionedThroughputInMibps", "tags")
    | updates("throughputMode")
    | replaces("availabilityZoneName", "creationToken", "encrypted", "kmsKeyId", "performanceMode"),
    defaults={"throughputMode": "bursting"},
    computed=frozenset({"creationToken", "encrypted", "kmsKeyId", "performanceMode", "protection"}),
    naming=Naming(key="creationToken", longest=64),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="moto has no UpdateFileSystem: throughput and protection are kept by the rehearsal",
)


_MOST_GROUPS = 5  # security groups of a mount target: EFS quotas


def _efs_access_create(aws: Aws, inputs: Props) -> str:
    params = placed(aws, ("efs", "create_mount_target"), inputs)
    _refuse_strange_groups(aws, inputs)
    ident: str = aws.call("efs", "create_mount_target", **params)["MountTargetId"]
    return ident


def _efs_access_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    groups = new.get("securityGroups")
    if groups and sorted(groups) != sorted(old.get("securityGroups") or []):
        _refuse_strange_groups(aws, new)
        call = {"MountTargetId": ident, "SecurityGroups": groups}
        aws.call("efs", "modify_mount_target_security_groups", **call)


def _refuse_strange_groups(aws: Aws, inputs: Props) -> None:
    """Refuse security groups that are not there, or not in the subnet's VPC."""
    groups = inputs.get("securityGroups") or []
    try:
        found = aws.call("ec2", "describe_security_groups", GroupIds=groups)["SecurityGroups"] if groups else []
        vpc = aws.call("ec2", "describe_subnets", SubnetIds=[inputs["subnetId"]])["Subnets"][0]["VpcId"]
    except Refusal as error:
        code = "SubnetNotFound" if error.code.startswith("InvalidSubnet") else "SecurityGroupNotFound"
        raise Refusal(code, error.message, key="securityGroups") from None
    for group in found:
        if group["VpcId"] != vpc:
            told = f"{group['GroupId']} is of {group['VpcId']}, not of the subnet's {vpc}"
            raise Refusal("SecurityGroupNotFound", told, key="securityGroups")


def _groups(aws: Aws, ident: str, subnet: str) -> list[str]:
    """Return the security groups of a mount target: without its own, the default one of its VPC."""
    found = aws.call("efs", "describe_mount_target_security_groups", MountTargetId=ident)["SecurityGroups"]
    if found:
        return sorted(found)
    vpc = aws.call("ec2", "describe_subnets", SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    default = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    groups = aws.call("ec2", "describe_security_groups", Filters=default)["SecurityGroups"]
    return [group["GroupId"] for group in groups]


def _efs_access_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("efs", "describe_mount_targets", MountTargetId=ident)["MountTargets"][0]
    system = found["FileSystemId"]
    dns = f"{system}.efs.{aws.region}.amazonaws.com"
    return {
        "availabilityZoneId": found["AvailabilityZoneId"],
        "availabilityZoneName": found["AvailabilityZoneName"],
        "dnsName": dns,
        "fileSystemArn": aws.arn("elasticfilesystem", f"file-system/{system}"),
        "ipAddress": found["IpAddress"],
        "ipAddressType": inputs.get("ipAddressType") or "IPV4_ONLY",
        "mountTargetDnsName": f"{found['AvailabilityZoneName']}.{dns}",
        "networkInterfaceId": found["NetworkInterfaceId"],
        "ownerId": aws.account,
        "securityGroups": _groups(aws, ident, found["SubnetId"]),
    }


def _efs_access_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("efs", "delete_mount_target", MountTargetId=ident)


def _efs_access_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    groups = inputs.get("securityGroups")
    if is_known(groups) and len(groups) > _MOST_GROUPS:
        yield Complaint("securityGroups", f"a mount target has at most {_MOST_GROUPS} security groups")


MOUNT_TARGET = Kind(
    token="aws:efs/mountTarget:MountTarget",
    inputs=updates("securityGroups")
    | replaces("fileSystemId", "ipAddress", "ipAddressType", "ipv6Address", "subnetId"),
    computed=frozenset({"ipAddress", "ipAddressType", "ipv6Address", "securityGroups"}),
    sets=frozenset({"securityGroups"}),
    create=_efs_access_create,
    read=_efs_access_read,
    update=_efs_access_update,
    delete=_efs_access_delete,
    complaints=_efs_access_complaints,
    delete_first=True,
)


_NO_POLICY = "{}"  # moto has no DeleteFileSystemPolicy: this stands for none


def _put_policy(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["fileSystemId"]
    _update_policy(aws, ident, {}, inputs)
    return ident


def _update_policy(aws: Aws, ident: str, old: Props, new: Props) -> None:
    aws.call("efs", "describe_file_systems", FileSystemId=ident)
    refuse_strangers(aws, new["policy"], "InvalidPolicyException")
    aws.call("efs", "put_file_system_policy", FileSystemId=ident, Policy=new["policy"])


def _read_policy(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    if aws.call("efs", "describe_file_system_policy", FileSystemId=ident)["Policy"] == _NO_POLICY:
        raise Refusal("PolicyNotFound", f"{ident} has no policy")
    return {"fileSystemId": ident}


def _drop_policy(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("efs", "put_file_system_policy", FileSystemId=ident, Policy=_NO_POLICY)


def _policy_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from malformed(inputs, form=POLICY_DOCUMENT_FILE_SYSTEM)


FILE_SYSTEM_POLICY = Kind(
    token="aws:efs/fileSystemPolicy:FileSystemPolicy",
    inputs=updates("bypassPolicyLockoutSafetyCheck", "policy") | replaces("fileSystemId"),
    defaults={"bypassPolicyLockoutSafetyCheck": False},
    create=_put_policy,
    read=_read_policy,
    update=_update_policy,
    delete=_drop_policy,
    complaints=_policy_complaints,
)

_BACKUP = "aws:efs/backupPolicy:BackupPolicy"


def _back_up(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["fileSystemId"]
    aws.call("efs", "describe_file_systems", FileSystemId=ident)
    aws.fakes(_BACKUP)[ident] = dict(inputs)
    return ident


def _read_backup(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call("efs", "describe_file_systems", FileSystemId=ident)
    if ident not in aws.fakes(_BACKUP):
        raise Refusal("PolicyNotFound", f"{ident} has no backup policy")
    return {"backupPolicy": aws.fakes(_BACKUP)[ident]["backupPolicy"], "fileSystemId": ident}


def _update_backup(aws: Aws, ident: str, old: Props, new: Props) -> None:
    aws.fakes(_BACKUP)[ident] = dict(new)


def _drop_backup(aws: Aws, ident: str, outputs: Props) -> None:
    aws.fakes(_BACKUP).pop(ident, None)


def _backup_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from inside(inputs, "backupPolicy", {"status": Choice(("ENABLED", "DISABLED"))})


BACKUP_POLICY = Kind(
    token=_BACKUP,
    inputs=updates("backupPolicy") | replaces("fileSystemId"),
    create=_back_up,
    read=_read_backup,
    update=_update_backup,
    delete=_drop_backup,
    complaints=_backup_complaints,
    support=Support.FAKED,
    note="moto has no PutBackupPolicy",
)
