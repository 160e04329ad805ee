"""Names and words as the fleet file writes them, each with the syntax that its use demands.

Sources: RFC 1123 section 2.1 for host names, AWS's naming rules for tags, `useradd` for user names, EC2's
identifiers as the API returns them.
"""

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from bedplate.spec.account import RESERVED_USERS
from bedplate.spec.domain import check_domain
from bedplate.spec.sshkey import check_key
from bedplate.spec.syntax import Syntax

_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_LABEL_WORDS = "a-z, 0-9 and inner hyphens"
_REGION = r"[a-z]{2}(-[a-z]+)+-[0-9]+"
_NODE = r"/[A-Za-z0-9_-][A-Za-z0-9._-]*"

# Prefix of every resource's name: short, so that what AWS limits to 63 or 64 characters still fits.
FleetName = Annotated[
    str,
    Syntax(
        "E410",
        "fleet name",
        r"(?!aws|ssm)[a-z]([a-z0-9-]*[a-z0-9])",
        "a-z, 0-9 and inner hyphens, a letter first, but not aws or ssm (SSM keeps such parameters)",
        "lab",
        20,
    ),
]
# A word of the file that becomes part of names in AWS and in DNS: a group, a site, a store.
Slug = Annotated[
    str,
    Syntax(
        "E411",
        "name",
        r"[a-z]([a-z0-9-]*[a-z0-9])?",
        "a-z, 0-9 and inner hyphens, a letter first",
        "train",
        32,
    ),
]
AccountId = Annotated[str, Syntax("E412", "AWS account id", r"[0-9]{12}", "twelve digits", "'111122223333'")]
Owner = Annotated[
    str,
    Syntax(
        "E413",
        "owner",
        r"(?!aws:)[A-Za-z0-9_.:/=+@-]([A-Za-z0-9_.:/=+@ -]*[A-Za-z0-9_.:/=+@-])?",
        "letters, digits, inner spaces and _.:/=+-@, not starting with aws: (the rules of AWS tags)",
        "research-infra@lab.example",
        256,
        "an AWS tag",
    ),
]
# One label of a host name. `laptops` is how the pool behind a gateway is called, as in `bedplate reach laptops.cellar`.
HostLabel = Annotated[
    str,
    Syntax(
        "E415",
        "host name",
        f"(?![0-9]+$){_LABEL}",
        f"{_LABEL_WORDS}, not digits alone (RFC 1123)",
        "titan-01",
        63,
        "RFC 1123",
        frozenset({"laptops", "localhost"}),
    ),
]
DomainName = Annotated[
    str,
    AfterValidator(check_domain),
    WithJsonSchema({"type": "string", "maxLength": 253, "examples": ["lab.internal"]}),
]
RegionName = Annotated[
    str, Syntax("E106", "AWS region name", _REGION, "an area, a direction and a number", "us-west-2")
]
ZoneName = Annotated[
    str, Syntax("E106", "zone name", f"{_REGION}[a-z]", "the region's name and one letter", "us-west-2a")
]
InstanceType = Annotated[
    str,
    Syntax("E106", "instance type", r"[a-z0-9-]+\.[a-z0-9-]+", "a family, a dot and a size", "p5.48xlarge", 64),
]
ReservationId = Annotated[
    str,
    Syntax(
        "E106",
        "capacity reservation id",
        r"cr-[0-9a-f]{8,17}",
        "cr- and 8 to 17 of 0-9, a-f",
        "cr-0123456789abcdef0",
    ),
]
Email = Annotated[
    str,
    Syntax(
        "E106",
        "e-mail address",
        r"[A-Za-z0-9._%+-]+@([A-Za-z0-9-]+\.)+[A-Za-z]{2,}",
        "a mailbox, @ and a domain",
        "research-infra@lab.example",
        100,
        "AWS Budgets",
    ),
]
PolicyArn = Annotated[
    str,
    Syntax(
        "E106",
        "ARN of a managed policy",
        r"arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[A-Za-z0-9_+=,.@/-]+",
        "arn:aws:iam::, the account, :policy/ and the policy's name",
        "arn:aws:iam::111122223333:policy/boundary",
        2048,
        "AWS",
    ),
]
RoleArn = Annotated[
    str,
    Syntax(
        "E106",
        "ARN of a role",
        r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+",
        "arn:aws:iam::, the account, :role/ and the role's name, patterns excluded",
        "arn:aws:iam::111122223333:role/analyst",
        2048,
        "AWS",
    ),
]
MountPath = Annotated[
    str,
    Syntax(
        "E402",
        "path",
        f"({_NODE})+",
        "a leading slash and parts of letters, digits, ., _ and -, none of them starting with a dot",
        "/data",
        255,
        "Linux",
    ),
]
# A name that stays with the disk, or with the slot that it sits in; the letters are those that udev leaves in names.
DiskName = Annotated[
    str,
    Syntax(
        "E106",
        "disk",
        r"/dev/disk/by-(id|path)/[A-Za-z0-9#+.:=@_-]+",
        "/dev/disk/by-id/ or /dev/disk/by-path/ and the name there, for sda is another disk at the next boot",
        "/dev/disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS_S64HNE0T300123",
        255,
        "Linux",
    ),
]
UserName = Annotated[
    str,
    Syntax(
        "E503",
        "user name",
        r"[a-z_][a-z0-9_-]*",
        "a-z, 0-9, _ and -, a letter or _ first",
        "ada",
        32,
        "Linux",
        RESERVED_USERS,
    ),
]
# A group of people: one number space with nobody else, so a group may be called neither like a person nor a system's.
GroupName = Annotated[
    str,
    Syntax(
        "E513",
        "group name",
        r"[a-z_][a-z0-9_-]*",
        "a-z, 0-9, _ and -, a letter or _ first",
        "vision",
        32,
        "Linux",
        RESERVED_USERS,
    ),
]
SshKey = Annotated[
    str,
    AfterValidator(check_key),
    WithJsonSchema({"type": "string", "examples": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5... ada@laptop"]}),
]
