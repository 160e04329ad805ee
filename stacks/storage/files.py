"""EFS file systems with mount targets, policy and backups; and the policies that require TLS, for S3 too."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pulumi
from pulumi_aws.efs._inputs import BackupPolicyBackupPolicyArgs, FileSystemLifecyclePolicyArgs
from pulumi_aws.efs.backup_policy import BackupPolicy, BackupPolicyArgs
from pulumi_aws.efs.file_system import FileSystem, FileSystemArgs
from pulumi_aws.efs.file_system_policy import FileSystemPolicy, FileSystemPolicyArgs
from pulumi_aws.efs.mount_target import MountTarget, MountTargetArgs

from bedplate.permissions import Statement, bucket_arn, policy
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.stores import FilesPlan
from stacks.identity.policy import CLEAR_TEXT, EVERYONE, deny_everyone
from stacks.options import child_options, name_tag, retained_options

OLDEST_TLS = "1.2"


def require_tls(bucket: str) -> tuple[Statement, Statement]:
    """Return the statements that deny access to a bucket without TLS 1.2 or newer."""
    deny = partial(deny_everyone, actions=("s3:*",), resources=(bucket_arn(bucket), f"{bucket_arn(bucket)}/*"))
    return (
        deny("RefuseClearText", conditions=CLEAR_TEXT),
        deny("RefuseOldTls", conditions={"NumericLessThan": {"s3:TlsVersion": (OLDEST_TLS,)}}),
    )


def mount_policy(system_arn: str) -> str:
    """Return the policy of a file system: any client of a mount target may mount it, only with TLS.

    A policy replaces the default of EFS, which allows everything. Root access is allowed because nodes create home
    directories. Source: EFS user guide, "Using IAM to control file system data access".
    """
    allow = Statement(
        sid="MountFromTheNetwork",
        principals=EVERYONE,
        actions=tuple(f"elasticfilesystem:Client{right}" for right in ("Mount", "RootAccess", "Write")),
        resources=(system_arn,),
        conditions={"Bool": {"elasticfilesystem:AccessedViaMountTarget": ("true",)}},
    )
    return policy(allow, deny_everyone("RefuseClearText", ("*",), (system_arn,), CLEAR_TEXT))


class FileSystemPolicies(pulumi.ComponentResource):
    """The policy of a file system, which requires TLS, and its daily backups."""

    def __init__(self, name: str, system: FileSystem, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:FileSystemPolicies", name, None, opts)
        policy = FileSystemPolicyArgs(file_system_id=system.id, policy=system.arn.apply(mount_policy))
        FileSystemPolicy(name, policy, retained_options(self))
        backups = BackupPolicyBackupPolicyArgs(status="ENABLED")
        BackupPolicy(name, BackupPolicyArgs(file_system_id=system.id, backup_policy=backups), retained_options(self))
        self.register_outputs({})


@dataclass(frozen=True, slots=True)
class FileSystemInputs:
    """The resources that a file system depends on: key, security group, and node subnets by zone."""

    key_arn: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    subnet_ids: Mapping[str, pulumi.Output[str]]


class SharedFileSystem(pulumi.ComponentResource):
    """A file system encrypted with the data key of the region, with a mount target in each zone; retained."""

    system_id: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    addresses: list[pulumi.Output[str]]

    def __init__(
        self, plan: FleetPlan, files: FilesPlan, inputs: FileSystemInputs, opts: pulumi.ResourceOptions
    ) -> None:
        name = f"{plan.name}-{files.store}"
        super().__init__("bedplate:stacks:SharedFileSystem", name, None, opts)
        system = FileSystem(name, _file_system(name, inputs.key_arn), retained_options(self))
        self.system_id, self.dns_name = system.id, system.dns_name
        FileSystemPolicies(name, system, child_options(self))
        self.addresses = [
            self._target(f"{name}-{zone}", system, subnet_id, inputs) for zone, subnet_id in inputs.subnet_ids.items()
        ]
        self.register_outputs({"system_id": self.system_id, "dns_name": self.dns_name})

    @property
    def outputs(self) -> dict[str, object]:
        """The outputs of the region's stack about the file system."""
        return {"id": self.system_id, "dns_name": self.dns_name, "addresses": self.addresses}

    def _target(
        self, name: str, system: FileSystem, subnet_id: pulumi.Output[str], inputs: FileSystemInputs
    ) -> pulumi.Output[str]:
        """Declare the mount target of a zone; return its address."""
        args = MountTargetArgs(
            file_system_id=system.id, subnet_id=subnet_id, security_groups=[inputs.security_group_id]
        )
        return MountTarget(name, args, child_options(self)).ip_address


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
        tags=name_tag(name),
    )
