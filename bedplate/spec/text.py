"""Types for the words of the fleet file: names, identifiers, dates, versions, labels and paths, with their syntax.

Sources: RFC 1123 section 2.1 for host names, AWS's naming rules for tags, `useradd` for user names, and the EC2 API for
its identifiers.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from bedplate.rules import Rule
from bedplate.spec.base import Syntax, invalid, shown
from bedplate.spec.sshkey import check_key

BAD_IDENTIFIER = Rule("E106", "AWS and Linux define the form of their identifiers.", "correct it", "EC2 API")
FLEET_NAME = Rule("E410", "The names of all resources start with it.", "write it as lab")
BAD_NAME = Rule("E411", "The name becomes part of names in AWS and DNS.", "write it as train")
ACCOUNT_ID = Rule("E412", "An account id has twelve digits.", "write the twelve digits, quoted", "AWS IAM")
OWNER = Rule(
    "E413", "The owner is a tag of every resource.", "write an e-mail address or a team", "AWS tag naming limits"
)
TAG = Rule(
    "E420", "AWS limits tags; some keys are reserved.", "write it as cost-center: vision", "AWS tag naming limits"
)
DOMAIN = Rule(
    "E414", "Every host has a name in the domain.", "write it as lab.internal", "RFC 1123, RFC 6761, RFC 6762"
)
HOST_NAME = Rule("E415", "The host name is one label of a DNS name.", "write it as titan-01", "RFC 1123")
DRIVER_BRANCH = Rule(
    "E606", "The image pins a branch of NVIDIA's driver.", "write it as '580'", "NVIDIA data center drivers"
)
KERNEL_SERIES = Rule("E617", "Drivers are built for a kernel series.", "write it as '6.8'")
SOFTWARE_NAME = Rule("E620", "A software set has versions that were published together.", "write it as '2026-11'")
_group_rule = partial(Rule, section="groups")
INVALID_DATE = _group_rule("E318", "The calendar has no such day.", "write it as '2027-01-31'")
LABEL_SYNTAX = _group_rule(
    "E320",
    "Kubernetes rejects other labels.",
    "write it as lab.example/team: vision",
    "Kubernetes, Labels and Selectors",
)
TAINT_SYNTAX = _group_rule(
    "E321",
    "Kubernetes rejects other taints.",
    "write it as team=vision:NoSchedule",
    "Kubernetes, Taints and Tolerations",
)
DURATION_SYNTAX = _group_rule(
    "E356", "A duration is a number with one unit: minutes, hours or days.", "write it as 90m, 2h or 1d"
)
_cluster_rule = partial(Rule, section="kubernetes")
CLUSTER_VERSION = _cluster_rule(
    "E605",
    "A minor version stands for its newest known patch; a patch is also accepted.",
    "write it as '1.36' or '1.36.3'",
)
REGISTRY_MIRROR = _cluster_rule(
    "E642",
    "containerd asks a mirror by this address, for the images of this registry.",
    "write it as {docker.io: 'https://mirror.lab.example'}",
)
JOB_IMAGE = Rule(
    "E646",
    "A tag may name another image tomorrow; a digest names the same one for ever.",
    "write repository@sha256:DIGEST, as `docker buildx imagetools inspect` shows it",
    section="jobs",
)
REGISTRY = Rule(
    "E656",
    "An operator pushes images there, and machines of the cluster pull them, by http if the address says so.",
    "write it as http://registry.lab.example:5000",
    section="jobs",
)
REMOTE_STORE = Rule(
    "E660",
    "Prometheus sends samples there by https; the token for it is a secret, which only the hub has.",
    "write it as https://metrics.lab.example/api/v1/write",
    section="monitoring",
)
_people_rule = partial(Rule, section="people")
USER_NAME = _people_rule("E503", "It is an account on every node.", "write it as ada", "useradd(8)")
GROUP_NAME = _people_rule("E513", "It is a group on every node.", "write it as vision", "groupadd(8)")
BAD_PATH = Rule(
    "E402",
    "fstab and exports contain the path without quotes.",
    "write an absolute path of plain characters",
    section="storage",
)

LONGEST = 253
_DOMAIN_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def check_domain(domain: str) -> str:
    """Return the domain; raise a validation error with the violated rule of RFC 1123."""
    for is_violated, message in _domain_rules(domain):
        if is_violated:
            raise invalid(DOMAIN, message, _domain_fix(domain))
    return domain


def _domain_fix(domain: str) -> str:
    """Return the domain in lower case, with valid characters, and below .internal if its last label is invalid."""
    host = re.sub(r"^[a-z]+://", "", domain.lower()).partition("/")[0]
    labels = [label for part in host.split(".") if (label := re.sub(r"[^a-z0-9]+", "-", part).strip("-"))]
    last = labels[-1:]
    if last in (["localhost"], ["local"]):
        labels.pop()
    if len(labels) < 2 or labels[-1].isdecimal():  # noqa: PLR2004  # a domain and its top-level domain
        labels.append("internal")
    near = ".".join(labels)
    is_valid = not any(is_violated for is_violated, _ in _domain_rules(near))
    return f"write {near}" if is_valid else "use labels of a-z, 0-9 and inner hyphens, separated by dots"


def _domain_rules(domain: str) -> tuple[tuple[bool, str], ...]:
    labels = domain.split(".")
    bad = next((label for label in labels if not _DOMAIN_LABEL.fullmatch(label)), None)
    return (
        (len(domain) > LONGEST, f"the domain has {len(domain)} characters; RFC 1123 allows {LONGEST}"),
        (bad == "", f"{shown(domain)} has an empty label"),
        (bad is not None, f"invalid DNS label {shown(bad)}: use 1 to 63 of a-z, 0-9 and inner hyphens (RFC 1123)"),
        (len(labels) == 1, f"{shown(domain)} has one label, at least two required"),
        (labels[-1].isdecimal(), f"the last label of {shown(domain)} has only digits, like an address"),
        (labels[-1] in ("localhost", "local"), f".{labels[-1]} is reserved (RFC 6761, RFC 6762)"),
    )


PERMANENT = "permanent"
_DAY_LENGTH, _MOMENT_LENGTH = len("2027-01-31"), len("2027-01-31T11:30:00Z")


def _check_expiry(word: str) -> str:
    if word != PERMANENT and not _is_day(word):
        message = f"{shown(word)} is neither a date nor {PERMANENT}"
        if word.lower() in ("never", "none", "forever", "no", "unlimited"):
            raise invalid(INVALID_DATE, message, f"write {PERMANENT}")
        raise invalid(INVALID_DATE, message, _near_day(word) or f"write 'YEAR-MONTH-DAY', or {PERMANENT}")
    return word


# A day with the year first; with the month first, as in America; with the day first.
_DAY_ORDERS = (
    r"(?P<year>[0-9]{4})[-/. ](?P<month>[0-9]{1,2})([-/. ](?P<day>[0-9]{1,2}))?",
    r"(?P<month>[0-9]{1,2})/(?P<day>[0-9]{1,2})/(?P<year>[0-9]{4})",
    r"(?P<day>[0-9]{1,2})[-/. ](?P<month>[0-9]{1,2})[-/. ](?P<year>[0-9]{4})",
)


def _near_day(word: str) -> str:
    """Return the fix for a date in another order, without zeros, or after the end of its month; empty if unclear."""
    days: dict[str, None] = {}
    for match in filter(None, (re.fullmatch(order, word) for order in _DAY_ORDERS)):
        year, month = int(match["year"]), int(match["month"])
        with suppress(ValueError):
            day = min(int(match["day"] or 31), monthrange(year, month)[1])
            days[f"'{date(year, month, day)}'"] = None
    return f"write {' or '.join(days)}" if days else ""


def _check_moment(word: str) -> str:
    if not _is_moment(word):
        raise invalid(INVALID_DATE, f"{shown(word)} is not a time in UTC", _near_moment(word))
    return word


def _near_moment(word: str) -> str:
    """Return the fix for a time without seconds, time zone or T; or the form of a time."""
    try:
        moment = datetime.fromisoformat(word.strip())
    except ValueError:
        return "write 'YEAR-MONTH-DAYTHOUR:MINUTE:SECONDZ'"
    utc = moment.astimezone(UTC) if moment.tzinfo else moment
    return f"write '{utc:%Y-%m-%dT%H:%M:%SZ}'"


def _is_day(word: str) -> bool:
    try:
        date.fromisoformat(word)
    except ValueError:
        return False
    return len(word) == _DAY_LENGTH and word.isascii()


def _is_moment(word: str) -> bool:
    try:
        datetime.fromisoformat(word)
    except ValueError:
        return False
    return len(word) == _MOMENT_LENGTH and word.isascii() and word[10] == "T" and word.endswith("Z")


# The last day of a group, or `permanent`.
Expiry = Annotated[
    str,
    AfterValidator(_check_expiry),
    WithJsonSchema({"type": "string", "examples": ["2027-01-31", PERMANENT]}),
]
# A time in UTC with seconds.
Moment = Annotated[
    str,
    AfterValidator(_check_moment),
    WithJsonSchema({"type": "string", "examples": ["2027-01-31T11:30:00Z"]}),
]


_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration such as 30m, 2h or 1d."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


_DURATION_PART = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) *([smhdw]?)[a-z]* *")


def _similar_durations(word: str) -> Iterator[str]:
    """Yield a duration such as `90 min`, 1h30m, PT2H or 2 in the right form, from 10m to 9d."""
    text = re.sub("^p?t?", "", word.lower())
    parts = _DURATION_PART.findall(text)
    if parts and not _DURATION_PART.sub("", text):
        units = (unit or ("m" if float(number) > 24 else "h") for number, unit in parts)  # noqa: PLR2004  hours
        seconds = {"s": 1.0, "w": 7 * 86_400.0, **_SECONDS}
        total = sum(float(number) * seconds[unit] for (number, _), unit in zip(parts, units, strict=True))
        minutes = round(min(max(total / 60, 10), 9 * 1440))
        forms = {"d": minutes / 1440, "h": minutes / 60, "m": float(minutes)}
        yield from (f"{number:.0f}{unit}" for unit, number in forms.items() if number.is_integer())
        yield f"{minutes / 60:.0f}h"
        yield f"{minutes / 1440:.0f}d"


# From 10 minutes to 9 days.
Duration = Annotated[
    str,
    Syntax(
        DURATION_SYNTAX,
        "duration",
        r"([1-9][0-9]{1,2}m|[1-9][0-9]?h|[1-9]d)",
        "a number and m, h or d, from 10m to 9d",
        "2h",
        40,
        similar=_similar_durations,
    ),
]
# From 1 to 3,650 days: Prometheus keeps metrics for so long.
Days = Annotated[
    str,
    Syntax(
        DURATION_SYNTAX,
        "number of days",
        r"([1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|36[0-4][0-9]|3650)d",
        "a number and d, from 1d to 3650d",
        "90d",
        5,
    ),
]
_KUBERNETES_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_KUBERNETES_NAME}"
_LABEL_FORM = "letters, digits and inner -_. (at most 63), optionally after a domain and a slash"
# Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/, "Syntax and character set".
LabelKey = Annotated[
    str, Syntax(LABEL_SYNTAX, "label key", _LABEL_KEY, _LABEL_FORM, "lab.example/team", 317, "Kubernetes")
]
LabelValue = Annotated[
    str,
    Syntax(
        LABEL_SYNTAX,
        "label value",
        f"({_KUBERNETES_NAME})?",
        "letters, digits and inner -_. (at most 63)",
        "vision",
        63,
        "Kubernetes",
    ),
]
Taint = Annotated[
    str,
    Syntax(
        TAINT_SYNTAX,
        "taint",
        rf"{_LABEL_KEY}(=({_KUBERNETES_NAME})?)?:(NoSchedule|PreferNoSchedule|NoExecute)",
        "a label key, = and a value, a colon, and NoSchedule, PreferNoSchedule or NoExecute",
        "team=vision:NoSchedule",
        400,
        "Kubernetes",
    ),
]
KubernetesVersion = Annotated[
    str,
    Syntax(
        CLUSTER_VERSION,
        "Kubernetes version",
        r"1\.[0-9]{1,2}(\.[0-9]{1,2})?",
        "1, a dot and the minor version, optionally a dot and the patch",
        "'1.36'",
    ),
]
_SERVER = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[1-9][0-9]{0,4})?"
_SCHEME = re.compile("^[a-z]*:?//")
RegistryName = Annotated[
    str,
    Syntax(
        REGISTRY_MIRROR,
        "registry",
        _SERVER,
        "the name in front of the first slash of an image",
        "docker.io",
        similar=lambda word: [_SCHEME.sub("", word.lower()).partition("/")[0]],
    ),
]
MirrorUrl = Annotated[
    str,
    Syntax(
        REGISTRY_MIRROR,
        "mirror",
        rf"https://{_SERVER}(/[A-Za-z0-9._~/-]*)?",
        "https://, a name, optionally a port and a path",
        "'https://mirror.lab.example'",
        similar=lambda word: [f"https://{_SCHEME.sub('', word)}"],
    ),
]
RemoteStoreUrl = Annotated[
    str,
    Syntax(
        REMOTE_STORE,
        "address of a store",
        rf"https://{_SERVER}(/[A-Za-z0-9._~/-]*)?",
        "https://, a name, optionally a port and a path",
        "https://metrics.lab.example/api/v1/write",
        similar=lambda word: [f"https://{_SCHEME.sub('', word)}"],
    ),
]
_PUBLIC = r"([^/]*\.)?(amazonaws\.com|ecr\.aws|(docker|gcr|ghcr|k8s|nvcr|quay)\.io|pkg\.dev)"
RegistryUrl = Annotated[
    str,
    Syntax(
        REGISTRY,
        "registry",
        rf"(https|http(?!://{_PUBLIC}(:|$)))://{_SERVER}",
        "https:// or, for a registry of your own, http://; a name or an address, and optionally a port",
        "http://registry.lab.example:5000",
        similar=lambda word: [word.rstrip("/"), f"https://{_SCHEME.sub('', word)}"],
    ),
]
JobImage = Annotated[
    str,
    Syntax(
        JOB_IMAGE,
        "image",
        r"[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{64}",
        "a repository, @sha256: and 64 hexadecimal digits",
        f"registry.lab.example/torch@sha256:{'0' * 64}",
    ),
]
DriverBranch = Annotated[str, Syntax(DRIVER_BRANCH, "driver branch", r"[0-9]{3}", "three digits", "'580'")]
SoftwareName = Annotated[
    str,
    Syntax(
        SOFTWARE_NAME,
        "software set",
        r"20[0-9]{2}-(0[1-9]|1[0-2])",
        "the year and month of the release",
        "'2026-11'",
        similar=lambda word: ["-".join(sorted(re.split("[-/.]", word), reverse=True))],
    ),
]
KernelSeries = Annotated[
    str,
    Syntax(KERNEL_SERIES, "kernel series", r"[1-9][0-9]?\.[0-9]{1,2}", "two numbers and a dot between them", "'6.8'"),
]


# Users and groups of Debian and Ubuntu, of cloud images, and of services.
_NAMES = (
    "root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody",
    "messagebus syslog uuidd tcpdump sshd landscape pollinate lxd chrony dnsmasq",
    "systemd-network systemd-resolve systemd-timesync",
    "ubuntu debian admin ec2-user ssm-user sudo adm wheel dialout",
    "docker kvm etcd kube openvpn strongswan munge slurm nvidia nvidia-persistenced",
    "tty disk kmem fax voice cdrom floppy tape audio dip operator src shadow utmp video sasl plugdev staff",
    "users nogroup input sgx render netdev crontab ssl-cert systemd-journal _ssh _chrony _rpc statd tss polkitd",
    "prometheus stunnel4 efs rdma bedplate sugroup frr frrvty _apt",
    # Certificates of gateways begin with this name; OpenVPN applies a file DEFAULT to all laptops.
    "gateway default",
    # The hub and its services.
    "hub bedplate-hub postgres mlflow nginx",
)
RESERVED_USERS = frozenset(name for line in _NAMES for name in line.split())


_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_LABEL_WORDS = "a-z, 0-9 and inner hyphens"
_REGION = r"[a-z]{2}(-[a-z]+)+-[0-9]+"
_NODE = r"/[A-Za-z0-9_-][A-Za-z0-9._-]*"

# Prefix of every resource's name; short because AWS limits some names to 63 or 64 characters.
LONGEST_FLEET_NAME = 20
FleetName = Annotated[
    str,
    Syntax(
        FLEET_NAME,
        "fleet name",
        r"(?!aws|ssm|xn--|sthree-|amzn-)[a-z]([a-z0-9-]*[a-z0-9])",
        "two or more of a-z, 0-9 and inner hyphens, starting with a letter, but not with aws, ssm, xn--, sthree- or "
        "amzn- (reserved)",
        "lab",
        LONGEST_FLEET_NAME,
    ),
]
# The name of a group, site or store; it becomes part of names in AWS and DNS.
Slug = Annotated[
    str,
    Syntax(
        BAD_NAME,
        "name",
        r"[a-z]([a-z0-9-]*[a-z0-9])?",
        "a-z, 0-9 and inner hyphens, starting with a letter",
        "train",
        32,
        reserved=frozenset({"hub"}),
    ),
]
AccountId = Annotated[
    str,
    Syntax(
        ACCOUNT_ID,
        "AWS account id",
        r"[0-9]{12}",
        "the twelve digits that `aws sts get-caller-identity` prints",
        "'111122223333'",
    ),
]
_TAG = "[A-Za-z0-9_.:/=+@-]([A-Za-z0-9_.:/=+@ -]*[A-Za-z0-9_.:/=+@-])?"
_TAG_FORM = "letters, digits, inner spaces and _.:/=+-@"
# Keys of bedplate, and of programs in the cluster that find their resources by them.
_TAG_OWNERS = r"(aws|bedplate|k8s\.io|kubernetes\.io)"
TagKey = Annotated[
    str,
    Syntax(
        TAG,
        "tag key",
        rf"(?!(?i:{_TAG_OWNERS}[:/])){_TAG}",
        f"{_TAG_FORM}, not starting with aws:, bedplate:, k8s.io/ or kubernetes.io/",
        "cost-center",
        128,
        "an AWS tag",
        frozenset({"Name", "owner", "expires"}),
    ),
]
TagValue = Annotated[str, Syntax(TAG, "tag value", f"({_TAG})?", _TAG_FORM, "vision", 256, "an AWS tag")]
Owner = Annotated[
    str,
    Syntax(
        OWNER,
        "owner",
        r"(?!aws:)[A-Za-z0-9_.:/=+@-]([A-Za-z0-9_.:/=+@ -]*[A-Za-z0-9_.:/=+@-])?",
        "letters, digits, inner spaces and _.:/=+-@, not starting with aws: (the rules of AWS tags)",
        "research-infra@lab.example",
        256,
        "an AWS tag",
    ),
]
# One label of a host name. `laptops` is the name of a gateway's pool, as in `bedplate reach laptops.cellar`.
HostLabel = Annotated[
    str,
    Syntax(
        HOST_NAME,
        "host name",
        f"(?![0-9]+$){_LABEL}",
        f"{_LABEL_WORDS}, but not only digits (RFC 1123)",
        "titan-01",
        63,
        "RFC 1123",
        frozenset({"hub", "laptops", "localhost"}),
    ),
]
DomainName = Annotated[
    str,
    AfterValidator(check_domain),
    WithJsonSchema({"type": "string", "maxLength": 253, "examples": ["lab.internal"]}),
]
RegionName = Annotated[
    str, Syntax(BAD_IDENTIFIER, "AWS region name", _REGION, "an area, a direction and a number", "us-west-2")
]
ZoneName = Annotated[
    str, Syntax(BAD_IDENTIFIER, "zone name", f"{_REGION}[a-z]", "the region's name and one letter", "us-west-2a")
]
InstanceType = Annotated[
    str,
    Syntax(BAD_IDENTIFIER, "instance type", r"[a-z0-9-]+\.[a-z0-9-]+", "a family, a dot and a size", "p5.48xlarge", 64),
]
ReservationId = Annotated[
    str,
    Syntax(
        BAD_IDENTIFIER,
        "capacity reservation id",
        r"cr-[0-9a-f]{8,17}",
        "cr- and 8 to 17 of 0-9, a-f",
        "cr-0123456789abcdef0",
    ),
]
Email = Annotated[
    str,
    Syntax(
        BAD_IDENTIFIER,
        "e-mail address",
        r"[A-Za-z0-9._%+-]+@([A-Za-z0-9-]+\.)+[A-Za-z]{2,}",
        "a mailbox, @ and a domain with a dot",
        "research-infra@lab.example",
        100,
        "AWS Budgets",
        similar=re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+").findall,
    ),
]
PolicyArn = Annotated[
    str,
    Syntax(
        BAD_IDENTIFIER,
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
        BAD_IDENTIFIER,
        "ARN of a role",
        r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+",
        "arn:aws:iam::, the account, :role/ and the role's name, without wildcards",
        "arn:aws:iam::111122223333:role/analyst",
        2048,
        "AWS",
    ),
]
MountPath = Annotated[
    str,
    Syntax(
        BAD_PATH,
        "path",
        f"({_NODE})+",
        "an absolute path of letters, digits, ., _ and -, without a dot at the start of a part",
        "/data",
        255,
        "Linux",
    ),
]
# A name that belongs to the disk or to its slot; these are the characters that udev allows in names.
DiskName = Annotated[
    str,
    Syntax(
        BAD_IDENTIFIER,
        "disk",
        r"/dev/disk/by-(id|path)/[A-Za-z0-9#+.:=@_-]+",
        "a path in /dev/disk/by-id or /dev/disk/by-path, because names like sda change at boot",
        "/dev/disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS_S64HNE0T300123",
        255,
        "Linux",
    ),
]
UserName = Annotated[
    str,
    Syntax(
        USER_NAME,
        "user name",
        r"[a-z_][a-z0-9_-]*",
        "a-z, 0-9, _ and -, starting with a letter or _",
        "ada",
        32,
        "Linux",
        RESERVED_USERS,
    ),
]
# A Linux group of people; it cannot have the name of a person or of a system group.
GroupName = Annotated[
    str,
    Syntax(
        GROUP_NAME,
        "group name",
        r"[a-z_][a-z0-9_-]*",
        "a-z, 0-9, _ and -, starting with a letter or _",
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
