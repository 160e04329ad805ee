"""What is laid down on a file system: who may mount it and how, and its copies."""

import pulumi
from pulumi_aws.efs._inputs import BackupPolicyBackupPolicyArgs
from pulumi_aws.efs.backup_policy import BackupPolicy, BackupPolicyArgs
from pulumi_aws.efs.file_system import FileSystem
from pulumi_aws.efs.file_system_policy import FileSystemPolicy, FileSystemPolicyArgs

from stacks.options import kept
from stacks.transport import mounts_only_by_tls


class FilesGuard(pulumi.ComponentResource):
    """A policy that refuses clear text, and daily copies."""

    def __init__(self, name: str, system: FileSystem, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:FilesGuard", name, None, opts)
        policy = FileSystemPolicyArgs(file_system_id=system.id, policy=system.arn.apply(mounts_only_by_tls))
        FileSystemPolicy(name, policy, kept(self))
        copies = BackupPolicyBackupPolicyArgs(status="ENABLED")
        BackupPolicy(name, BackupPolicyArgs(file_system_id=system.id, backup_policy=copies), kept(self))
        self.register_outputs({})
