"""What is laid down on an EFS file system: who may use it, and whether AWS Backup copies it."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, Support, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, inside
from bedplate.rehearsal.kinds.policy_document import FILE_SYSTEM, malformed, refuse_strangers
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

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
    yield from malformed(inputs, form=FILE_SYSTEM)


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
