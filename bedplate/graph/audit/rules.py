"""The rules of what stacks hold, by code.

S1 what can be reached, S2 encryption, S3 who is the public, S4 clear text and who reaches EFS, S5 permissions,
S6 keeping data, S7 tags, S8 what the autoscaler is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bedplate.checks.catalogue import RULES, Rule
from bedplate.checks.diagnostics import Level

_REACH = (
    Rule(
        "S101",
        "open-to-the-internet",
        "SSH, NFS and whole ranges of ports are for a lab's own addresses; rules of one group add up, however written.",
        "name the addresses that need it: laptop pools, sites, other groups",
    ),
    Rule(
        "S102",
        "open-service",
        "What listens there gives itself away to whoever connects.",
        "let in security groups or the fleet's own blocks alone",
    ),
    Rule(
        "S103",
        "unseen-prefix-list",
        "A prefix list may hold the whole internet.",
        "look into the list, or write its blocks out",
        warns=True,
    ),
    Rule(
        "S104",
        "default-group-in-use",
        "What is launched without a group gets the default one: its rules hold by accident.",
        "empty it, and give what needs rules a group of its own",
        "CIS AWS Foundations Benchmark, VPC default security group",
    ),
    Rule(
        "S105",
        "public-on-launch",
        "A machine with a public address is one wrong rule away from the internet.",
        "launch without one; give what needs one an elastic address by name",
    ),
    Rule(
        "S106",
        "metadata-without-token",
        "A request forwarded by a fooled program reads the machine's credentials (IMDSv1).",
        "require tokens: metadataOptions with httpTokens required",
        "Amazon EC2 user guide, instance metadata",
    ),
    Rule(
        "S107",
        "metadata-hops",
        "With more than one hop a container takes on the machine's role.",
        "write httpPutResponseHopLimit 1; 2 where people log in, tagged bedplate:use ssh",
        "Amazon EC2 user guide, instance metadata",
    ),
)
_ENCRYPTION = (
    Rule("S201", "files-in-clear", "A file system is encrypted from its first day or never.", "write encrypted: true"),
    Rule(
        "S202",
        "bucket-key-unsaid",
        "Which key encrypts a bucket decides who may read it.",
        "add a server-side encryption configuration with a key",
    ),
    Rule("S203", "volume-in-clear", "A snapshot of a volume in clear is readable.", "write encrypted: true"),
    Rule("S204", "parameter-in-clear", "Parameters hold secrets sooner or later.", "write type SecureString"),
)
_PUBLIC = (
    Rule(
        "S301",
        "bucket-not-shut",
        "One policy or one object's ACL makes a bucket public, unless all four switches forbid it.",
        "add a public access block with all four on",
        "Amazon S3 user guide, blocking public access",
    ),
    Rule("S302", "public-acl", "The ACL lets strangers in.", "drop the ACL; enforce the bucket owner's rights"),
    Rule(
        "S303",
        "policy-for-everybody",
        "Whom no principal and no condition names is anybody with an AWS account, or without.",
        "name the principals, or the account or network by a condition",
    ),
    Rule(
        "S304", "publicly-accessible", "A database has no business on the internet.", "write publiclyAccessible: false"
    ),
)
_CLEAR = (
    Rule(
        "S401",
        "bucket-by-http",
        "S3 answers in clear text unless the bucket's policy refuses.",
        "deny s3:* where aws:SecureTransport is false, to everybody, on the bucket and on its objects",
        "Amazon S3 user guide, security best practices",
    ),
    Rule(
        "S402",
        "files-by-clear-mount",
        "NFS goes in clear text unless the file system's policy refuses.",
        "add a policy that denies what comes with aws:SecureTransport false",
        "Amazon EFS user guide, encrypting data in transit",
    ),
    Rule(
        "S403",
        "files-open-to-edge",
        "EFS believes the user ids that a client sends: machines that face the internet must not reach it.",
        "let in the nodes' security group and the blocks of nodes; no block that overlaps a public subnet",
        "Amazon EFS user guide, using VPC security groups",
    ),
)
_PERMISSIONS = (
    Rule("S501", "all-on-all", "Whoever may do everything is the account's owner.", "name actions and resources"),
    Rule("S502", "service-on-all", "A whole service on all resources.", "name the actions, or the resources"),
    Rule(
        "S503", "allowed-by-exception", "What is not named is allowed, what AWS adds later too.", "name what is allowed"
    ),
    Rule(
        "S504",
        "pass-any-role",
        "Whoever may pass any role can start a machine that holds it.",
        "name the roles that may be passed",
        "AWS IAM user guide, granting permission to pass a role",
    ),
    Rule("S505", "trusts-everybody", "Anybody may take on the role.", "name who may, or narrow it by a condition"),
    Rule("S506", "administrator", "The managed policy allows nearly everything.", "write a policy with what is needed"),
)
_KEEPING = (
    Rule("S601", "data-unprotected", "One destroy takes the data with it.", "set protect on it"),
    Rule("S602", "bucket-forced", "A destroy would empty the bucket first.", "leave forceDestroy off"),
    Rule("S603", "bucket-unversioned", "What is overwritten or deleted is gone.", "enable versioning"),
)
_TAGS = (
    Rule("S701", "no-owner", "Nobody knows whom to ask about it, or who pays.", "tag it with an owner"),
    Rule(
        "S702",
        "launched-without-owner",
        "A provider's default tags do not reach what a launch makes.",
        "name the owner in the tag specifications of instances and volumes",
    ),
)
_TOLD = (
    Rule(
        "S801",
        "from-zero-tags",
        "The autoscaler starts a group's first machine by its tags alone: what they leave out never comes, and what "
        "they promise too much comes for ever.",
        "write the node-template tags from the type and the interfaces that the launch template names",
        "cluster-autoscaler, cloudprovider/aws, Scaling a node group to 0",
    ),
)

STACK_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.code: rule
        for table in (_REACH, _ENCRYPTION, _PUBLIC, _CLEAR, _PERMISSIONS, _KEEPING, _TAGS, _TOLD)
        for rule in table
    }
)
# What `bedplate check --explain` knows: the rules of the fleet file, then those of what its stacks hold.
CATALOGUE: Mapping[str, Rule] = MappingProxyType({**RULES, **STACK_RULES})


@dataclass(frozen=True, slots=True)
class StackFault:
    """One fault; `urn` is the resource's, `key` the dotted path of its property, camelCase as registered."""

    code: str
    level: Level
    urn: str
    key: str
    message: str
    fix: str


def fault(code: str, urn: str, key: str, message: str) -> StackFault:
    """Return a fault under the rule of that code."""
    rule = STACK_RULES[code]
    return StackFault(code, rule.level, urn, key, message, rule.fix)
