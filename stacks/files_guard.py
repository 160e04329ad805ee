"""What is laid down on a file system: who may mount it and how, its copies, and the folders that nodes mount."""

import pulumi
from pulumi_aws.efs._inputs import (
    AccessPointRootDirectoryArgs,
    AccessPointRootDirectoryCreationInfoArgs,
    BackupPolicyBackupPolicyArgs,
)
from pulumi_aws.efs.access_point import AccessPoint, AccessPointArgs
from pulumi_aws.efs.backup_policy import BackupPolicy, BackupPolicyArgs
from pulumi_aws.efs.file_system import FileSystem
from pulumi_aws.efs.file_system_policy import FileSystemPolicy, FileSystemPolicyArgs

from stacks.options import inside, kept
from stacks.tags import named
from stacks.transport import mounts_only_by_tls

# Folder of a file system and its mode: one for what is each user's own, one that everybody writes to.
FOLDERS = {"own": "0755", "shared": "1777"}


class FilesGuard(pulumi.ComponentResource):
    """A policy that refuses clear text, daily copies, and an access point for each folder, by its name."""

    access_point_ids: dict[str, pulumi.Output[str]]

    def __init__(self, name: str, system: FileSystem, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:FilesGuard", name, None, opts)
        policy = FileSystemPolicyArgs(file_system_id=system.id, policy=system.arn.apply(mounts_only_by_tls))
        FileSystemPolicy(name, policy, kept(self))
        copies = BackupPolicyBackupPolicyArgs(status="ENABLED")
        BackupPolicy(name, BackupPolicyArgs(file_system_id=system.id, backup_policy=copies), kept(self))
        self.access_point_ids = {folder: self._folder(name, system, folder) for folder in FOLDERS}
        self.register_outputs({"access_point_ids": self.access_point_ids})

    def _folder(self, name: str, system: FileSystem, folder: str) -> pulumi.Output[str]:
        """Make the access point that shows a folder as the root, made on first use; users keep their own ids."""
        made = AccessPointRootDirectoryCreationInfoArgs(owner_uid=0, owner_gid=0, permissions=FOLDERS[folder])
        root = AccessPointRootDirectoryArgs(path=f"/{folder}", creation_info=made)
        label = f"{name}-{folder}"
        args = AccessPointArgs(file_system_id=system.id, root_directory=root, tags=named(label))
        return AccessPoint(label, args, inside(self)).id
