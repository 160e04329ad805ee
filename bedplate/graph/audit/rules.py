"""The rules of stack resources by code, and the faults of resources that violate them.

S1 reachability, S2 encryption, S3 public access, S4 clear text and access to EFS, S5 permissions, S6 data protection,
S7 tags, S8 tags for the cluster autoscaler.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar


class Severity(StrEnum):
    """Whether a fault makes the audit fail."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class StackRule:
    """A rule of stack resources; `source` is empty for bedplate's own."""

    code: str
    name: str
    reason: str
    fix: str
    source: str = ""
    warns: bool = False
    allowable: ClassVar[bool] = False
    """A fleet file may allow violations of its own rules, but not of these."""

    @property
    def level(self) -> Severity:
        """The severity of a fault."""
        return Severity.WARNING if self.warns else Severity.ERROR


_REACHABILITY = (
    StackRule(
        "S101",
        "open-to-the-internet",
        "SSH, NFS and wide port ranges must only accept known addresses. The rules of a security group add up.",
        "name the addresses that need access: laptop pools, sites, other security groups",
    ),
    StackRule(
        "S102",
        "open-service",
        "Anyone who can connect to the service controls the machine or reads its data.",
        "allow only security groups or the fleet's own blocks",
    ),
    StackRule(
        "S103",
        "unseen-prefix-list",
        "A prefix list can contain the whole internet.",
        "check the entries of the list, or write its blocks into the rule",
        warns=True,
    ),
    StackRule(
        "S104",
        "default-group-in-use",
        "Resources launched without a security group get the default one, and its rules by accident.",
        "remove its rules, and create a security group for the resources that need them",
        "CIS AWS Foundations Benchmark, VPC default security group",
    ),
    StackRule(
        "S105",
        "public-on-launch",
        "A machine with a public address is one wrong rule away from the internet.",
        "launch without one; attach an elastic IP where one is needed",
    ),
    StackRule(
        "S106",
        "metadata-without-token",
        "With IMDSv1, a program that forwards requests (SSRF) leaks the machine's credentials.",
        "require IMDSv2: `httpTokens: required` in metadataOptions",
        "Amazon EC2 user guide, instance metadata",
    ),
    StackRule(
        "S107",
        "metadata-hops",
        "With a hop limit above 1, a container can use the machine's role.",
        "set `httpPutResponseHopLimit: 1`; 2 for machines with the tag bedplate:use = ssh",
        "Amazon EC2 user guide, instance metadata",
    ),
    StackRule(
        "S108",
        "unnamed-public-port",
        "A port must be open to the internet by intent. A security group's tag `bedplate:public` names such ports.",
        "allow known addresses only, or name the port in the tag: `bedplate:public: PROTOCOL/PORT PROTOCOL/PORT`",
    ),
    StackRule(
        "S109",
        "public-port",
        "The graph is not of bedplate's stacks. The service on the port may be for internal use only.",
        "allow known addresses only, or name the port in the tag: `bedplate:public: PROTOCOL/PORT PROTOCOL/PORT`",
        warns=True,
    ),
)
_ENCRYPTION = (
    StackRule(
        "S201", "files-in-clear", "A file system cannot be encrypted after its creation.", "set `encrypted: true`"
    ),
    StackRule(
        "S202",
        "bucket-key-unsaid",
        "The key that encrypts a bucket decides who can read it.",
        "add a server-side encryption configuration with a key",
    ),
    StackRule("S203", "volume-in-clear", "Snapshots of an unencrypted volume are readable.", "set `encrypted: true`"),
    StackRule(
        "S204", "parameter-in-clear", "Parameters tend to hold secrets sooner or later.", "set `type: SecureString`"
    ),
)
_PUBLIC_ACCESS = (
    StackRule(
        "S301",
        "bucket-not-shut",
        "Without a public access block, one policy or one object's ACL can make the bucket public.",
        "add a public access block with all four settings on",
        "Amazon S3 user guide, blocking public access",
    ),
    StackRule("S302", "public-acl", "The ACL grants access to the public.", "remove the ACL; set BucketOwnerEnforced"),
    StackRule(
        "S303",
        "policy-for-everybody",
        "Without a principal or a condition, the statement applies to anyone, with or without an AWS account.",
        "name the principals, or restrict the account or network by a condition",
    ),
    StackRule(
        "S304",
        "publicly-accessible",
        "A database must not be reachable from the internet.",
        "set `publiclyAccessible: false`",
    ),
)
_CLEAR_TEXT = (
    StackRule(
        "S401",
        "bucket-by-http",
        "S3 accepts plain HTTP unless the bucket policy denies it.",
        "deny s3:* to all principals if aws:SecureTransport is false, on the bucket and its objects",
        "Amazon S3 user guide, security best practices",
    ),
    StackRule(
        "S402",
        "files-by-clear-mount",
        "EFS accepts unencrypted NFS unless the file system policy denies it.",
        "add a policy that denies access if aws:SecureTransport is false",
        "Amazon EFS user guide, encrypting data in transit",
    ),
    StackRule(
        "S403",
        "files-open-to-edge",
        "EFS trusts the user ids that a client sends. Machines that face the internet must not reach it.",
        "allow the nodes' security group and the blocks of node subnets, and no block of a public subnet",
        "Amazon EFS user guide, using VPC security groups",
    ),
)
_PERMISSIONS = (
    StackRule(
        "S501", "all-on-all", "The identity has full control of the account.", "name the actions and the resources"
    ),
    StackRule(
        "S502",
        "service-on-all",
        "The identity has full control of a service.",
        "name the actions, or restrict the resources",
    ),
    StackRule(
        "S503",
        "allowed-by-exception",
        "The statement also allows actions and resources that AWS adds later.",
        "name the allowed actions and resources",
    ),
    StackRule(
        "S504",
        "pass-any-role",
        "An identity that can pass any role can start a machine with any role.",
        "name the roles that may be passed",
        "AWS IAM user guide, granting permission to pass a role",
    ),
    StackRule(
        "S505",
        "trusts-everybody",
        "Anyone with an AWS account can assume the role.",
        "name the principals, or restrict them by a condition",
    ),
    StackRule(
        "S506",
        "administrator",
        "The managed policy allows nearly everything.",
        "write a policy with the actions that are needed",
    ),
)
_DATA = (
    StackRule("S601", "data-unprotected", "A single `pulumi destroy` deletes the data.", "set the option `protect`"),
    StackRule(
        "S602", "bucket-forced", "With forceDestroy, `pulumi destroy` deletes all objects.", "remove forceDestroy"
    ),
    StackRule("S603", "bucket-unversioned", "Overwritten and deleted objects are lost.", "enable versioning"),
)
_TAGS = (
    StackRule("S701", "no-owner", "The tag shows whom to ask about a resource and who pays.", "add the tag owner"),
    StackRule(
        "S702",
        "launched-without-owner",
        "The provider's default tags do not apply to machines and volumes that a launch template creates.",
        "add the tag owner to the tagSpecifications of instances and volumes",
    ),
)
_AUTOSCALER = (
    StackRule(
        "S801",
        "from-zero-tags",
        "The autoscaler knows an empty group's machines only by its tags. A pod waits for ever if they are wrong.",
        "set the node-template tags by the instance types and network interfaces of the launch template",
        "cluster-autoscaler, cloudprovider/aws, Scaling a node group to 0",
    ),
)

_TABLES = (_REACHABILITY, _ENCRYPTION, _PUBLIC_ACCESS, _CLEAR_TEXT, _PERMISSIONS, _DATA, _TAGS, _AUTOSCALER)
STACK_RULES: Mapping[str, StackRule] = MappingProxyType({rule.code: rule for table in _TABLES for rule in table})


@dataclass(frozen=True, slots=True)
class StackFault:
    """One fault of a resource.

    `urn` is the resource's URN, `key` the path of its property in camelCase, such as `ingress.0.cidrBlocks`.
    """

    code: str
    level: Severity
    urn: str
    key: str
    message: str
    fix: str


def fault(code: str, urn: str, key: str, message: str) -> StackFault:
    """Return a fault under the rule with this code."""
    rule = STACK_RULES[code]
    return StackFault(code, rule.level, urn, key, message, rule.fix)
