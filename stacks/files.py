"""An EFS file system, and a mount target in each zone of its region."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws.efs._inputs import FileSystemLifecyclePolicyArgs
from pulumi_aws.efs.file_system import FileSystem, FileSystemArgs
from pulumi_aws.efs.mount_target import MountTarget, MountTargetArgs

from bedplate.plan.fleet import FilesPlan, FleetPlan
from stacks.files_guard import FilesGuard
from stacks.options import inside, kept
from stacks.tags import named


@dataclass(frozen=True, slots=True)
class FilesParts:
    """What a file system is made with: its key, its mount targets' group, and node subnets by zone."""

    key_arn: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    subnet_ids: Mapping[str, pulumi.Output[str]]


class SharedFiles(pulumi.ComponentResource):
    """A file system that nodes mount, encrypted by the region's data key; it outlives its stack."""

    system_id: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    addresses: list[pulumi.Output[str]]

    def __init__(self, plan: FleetPlan, files: FilesPlan, parts: FilesParts, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-{files.store}"
        super().__init__("bedplate:stacks:SharedFiles", name, None, opts)
        system = FileSystem(name, _file_system(name, parts.key_arn), kept(self))
        self.system_id, self.dns_name = system.id, system.dns_name
        FilesGuard(name, system, inside(self))
        self.addresses = [
            self._target(f"{name}-{zone}", system, subnet_id, parts) for zone, subnet_id in parts.subnet_ids.items()
        ]
        self.register_outputs({"system_id": self.system_id, "dns_name": self.dns_name})

    @property
    def told(self) -> dict[str, object]:
        """What a region's stack exports of it: all that a mount needs."""
        return {"id": self.system_id, "dns_name": self.dns_name, "addresses": self.addresses}

    def _target(
        self, name: str, system: FileSystem, subnet_id: pulumi.Output[str], parts: FilesParts
    ) -> pulumi.Output[str]:
        """Make the mount target of a zone, and return its address."""
        args = MountTargetArgs(file_system_id=system.id, subnet_id=subnet_id, security_groups=[parts.security_group_id])
        return MountTarget(name, args, inside(self)).ip_address


def _file_system(name: str, key_arn: pulumi.Output[str]) -> FileSystemArgs:
    return FileSystemArgs(
        creation_token=name,
        encrypted=True,
        kms_key_id=key_arn,
        throughput_mode="elastic",
        lifecycle_policies=[
            FileSystemLifecyclePolicyArgs(transition_to_ia="AFTER_30_DAYS"),
            FileSystemLifecyclePolicyArgs(transition_to_primary_storage_class="AFTER_1_ACCESS"),
        ],
        tags=named(name),
    )
