"""The policies of buckets and file systems that shut out clear text and old TLS."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws.efs._inputs import BackupPolicyBackupPolicyArgs, FileSystemLifecyclePolicyArgs
from pulumi_aws.efs.backup_policy import BackupPolicy, BackupPolicyArgs
from pulumi_aws.efs.file_system import FileSystem, FileSystemArgs
from pulumi_aws.efs.file_system_policy import FileSystemPolicy, FileSystemPolicyArgs
from pulumi_aws.efs.mount_target import MountTarget, MountTargetArgs

from bedplate.plan.fleet import FilesPlan, FleetPlan
from stacks.identity.policy import Conditions, Statement, bucket_arn, policy
from stacks.options import inside, kept, named

OLDEST_TLS = "1.2"


def only_by_tls(bucket: str) -> tuple[Statement, Statement]:
    """Return what makes a bucket's policy refuse all but TLS 1.2 or newer."""
    return (
        _deny(bucket, "RefuseClearText", {"Bool": {"aws:SecureTransport": ("false",)}}),
        _deny(bucket, "RefuseOldTls", {"NumericLessThan": {"s3:TlsVersion": (OLDEST_TLS,)}}),
    )


def mounts_only_by_tls(system_arn: str) -> str:
    """Return the policy of a file system that whoever reaches a mount target of it mounts, and nobody in clear text.

    Any policy takes the place of EFS's own, which lets everybody in: what it does not allow is refused. Root stays
    root, for nodes make the homes of people. Source: EFS user guide, "Using IAM to control file system data access".
    """
    everybody, whole = {"AWS": ("*",)}, (system_arn,)
    mounting = Statement(
        sid="MountFromTheNetwork",
        principals=everybody,
        actions=tuple(f"elasticfilesystem:Client{right}" for right in ("Mount", "RootAccess", "Write")),
        resources=whole,
        conditions={"Bool": {"elasticfilesystem:AccessedViaMountTarget": ("true",)}},
    )
    refusal = Statement(
        sid="RefuseClearText",
        effect="Deny",
        principals=everybody,
        actions=("*",),
        resources=whole,
        conditions={"Bool": {"aws:SecureTransport": ("false",)}},
    )
    return policy(mounting, refusal)


def _deny(bucket: str, sid: str, conditions: Conditions) -> Statement:
    return Statement(
        sid=sid,
        effect="Deny",
        principals={"AWS": ("*",)},
        actions=("s3:*",),
        resources=(bucket_arn(bucket), f"{bucket_arn(bucket)}/*"),
        conditions=conditions,
    )


class FilesGuard(pulumi.ComponentResource):
    """A policy that refuses clear text, and daily copies."""

    def __init__(self, name: str, system: FileSystem, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:FilesGuard", name, None, opts)
        policy = FileSystemPolicyArgs(file_system_id=system.id, policy=system.arn.apply(mounts_only_by_tls))
        FileSystemPolicy(name, policy, kept(self))
        copies = BackupPolicyBackupPolicyArgs(status="ENABLED")
        BackupPolicy(name, BackupPolicyArgs(file_system_id=system.id, backup_policy=copies), kept(self))
        self.register_outputs({})


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
