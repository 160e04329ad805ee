"""The root model of the fleet file, its smaller sections such as people, Kubernetes and budget, and its JSON Schema."""

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bedplate.rules import Rule
from bedplate.spec.base import (
    ADDED,
    BOTH,
    CHANGED,
    EVERY,
    MOVE_DATA,
    NEW_FLEET,
    RELEASE,
    REMOVED,
    Effect,
    Spec,
    Table,
    entries,
    free,
    invalid,
    new_nodes,
    on_edit,
    refused,
    replaces,
    shown,
    shrinks,
)
from bedplate.spec.groups import Group, Image
from bedplate.spec.network import GATEWAYS, Network, Prefix, Region, Vpn
from bedplate.spec.sites import Site, Store
from bedplate.spec.text import (
    AccountId,
    Days,
    DomainName,
    Duration,
    Email,
    FleetName,
    GroupName,
    HostLabel,
    InstanceType,
    JobImage,
    KubernetesVersion,
    MirrorUrl,
    Owner,
    PolicyArn,
    RegionName,
    RegistryName,
    RegistryUrl,
    RemoteStoreUrl,
    Slug,
    SoftwareName,
    SshKey,
    TagKey,
    TagValue,
    UserName,
)

OTHER_FORMAT = Rule("E601", "Keys can mean something else in another format.", "write `version: 1`")

# AWS allows 50 tags for each resource; bedplate's own machines and images have up to 15.
MOST_TAGS = 35

_ACCOUNTS = "accounts: existing nodes at their next apply, new cloud nodes at boot"


class Alarms(Spec):
    """The recipient of alarms; without one, alarms show only in the AWS console."""

    email: Email = Field(
        title="E-mail address",
        description="Receives an e-mail when an alarm starts or ends. AWS asks for confirmation, once per region.",
        json_schema_extra=on_edit(free("the recipient; alarms do not change")),
    )


class Budget(Spec):
    """A monthly limit with notifications; AWS stops nothing when it is reached."""

    monthly: int = Field(
        ge=1,
        le=100_000_000,
        title="Monthly limit",
        description="US dollars per month.",
        json_schema_extra=on_edit(free("the budget and its notifications")),
    )
    email: Email = Field(
        title="E-mail address",
        description="Receives an e-mail at 80 % of the limit, and when the forecast reaches 100 %.",
        json_schema_extra=on_edit(free("the budget and its notifications")),
    )


class Identity(Spec):
    """Limits of the IAM roles of nodes; bedplate derives their permissions."""

    permissions_boundary: PolicyArn | None = Field(
        default=None,
        title="Permissions boundary",
        description="ARN of a managed policy that bedplate sets on every role it creates. Some accounts require one.",
        json_schema_extra=on_edit(free("the boundary of all roles, at once", *EVERY)),
    )


class ControlPlane(Spec):
    """The machines in the home region that run the API servers and etcd."""

    type: InstanceType = Field(
        title="Instance type",
        examples=["m7i.large"],
        description="EC2 instance type of each machine.",
        json_schema_extra=on_edit(new_nodes("each machine, when it is next replaced")),
    )
    count: int = Field(
        default=3,
        ge=1,
        le=7,
        title="Count",
        description="Number of machines. It must be odd for etcd's quorum.",
        json_schema_extra=on_edit(
            shrinks("the machines with the highest numbers; etcd's volumes are protected", Effect.REFUSED, MOVE_DATA)
        ),
    )


class Kubernetes(Spec):
    """Version, control plane and address space of the cluster."""

    version: KubernetesVersion = Field(
        title="Version",
        description="Minor version, for its newest known patch, or a patch. Quoted: YAML reads 1.36 as a number.",
        json_schema_extra=on_edit(free("nothing in AWS; `kube upgrade` moves the machines")),
    )
    control_plane: ControlPlane = Field(
        title="Control plane", description="Number and type of the control plane's machines."
    )
    pods: Prefix | None = Field(
        default=None,
        title="Pod block size",
        examples=["/16"],
        description="Prefix length of the block for pods. Default: an eighth of the supernet.",
        json_schema_extra=on_edit(
            refused("the pod addresses would change", RELEASE, CHANGED, ADDED),
            free("nothing: the recorded block stays", REMOVED),
        ),
    )
    services: Prefix = Field(
        default=20,
        title="Service block size",
        examples=["/20"],
        description="Prefix length of the block for services.",
        json_schema_extra=on_edit(refused("the service addresses would change", RELEASE)),
    )
    mirrors: Table[RegistryName, MirrorUrl] = Field(
        default_factory=dict,
        validate_default=True,
        title="Mirrors of registries",
        examples=[{"docker.io": "https://mirror.lab.example"}],
        description="Address that machines of the cluster ask for images of a registry, before the registry itself.",
        json_schema_extra=on_edit(free("nothing in AWS; machines ask it from their next apply on")),
    )
    pod_roles: bool = Field(
        default=True,
        title="AWS roles of pods",
        description="Whether pods of people use buckets by roles of their own. Then a bucket has two public objects: "
        "AWS reads the keys of tokens there.",
        json_schema_extra=on_edit(shrinks("the roles of pods and the public objects; running pods lose their access")),
    )


_VOLUME = "the hub's volume is protected"
_MESSAGES = on_edit(free("messages about runs, from the next apply of the hub on", *EVERY))
_NEW_PLACE = "the DNS name and the firewalls; the records stay on the old machine: copy /srv/hub first"


class Hub(Spec):
    """One machine with the records of all runs, their code and their logs: an instance, or a machine of a site."""

    region: RegionName | None = Field(
        default=None,
        title="Region",
        description="Region of the instance, which stays when it fails: a new one gets its volume and its address.",
        json_schema_extra=on_edit(refused(_VOLUME, MOVE_DATA, CHANGED, REMOVED), free("the new instance", ADDED)),
    )
    site: Slug | None = Field(
        default=None,
        title="Site",
        examples=["office"],
        description="Site of the machine, instead of a region.",
        json_schema_extra=on_edit(free(_NEW_PLACE, *EVERY)),
    )
    machine: HostLabel | None = Field(
        default=None,
        title="Machine",
        description="The site's machine. It has no `use`: people get tokens there, and nothing else.",
        json_schema_extra=on_edit(free(_NEW_PLACE, *EVERY)),
    )
    type: InstanceType = Field(
        default="m7i.large",
        title="Instance type",
        examples=["m7i.xlarge"],
        description="EC2 instance type, in a region.",
        json_schema_extra=on_edit(new_nodes("the instance, when it is next replaced")),
    )
    disk: int = Field(
        default=200,
        ge=20,
        le=16384,
        title="Disk size",
        description="GiB of the volume with the records, in a region. It outlives the instance.",
        json_schema_extra=on_edit(shrinks("AWS cannot shrink a volume", Effect.REFUSED, MOVE_DATA)),
    )
    backup: Slug | None = Field(
        default=None,
        title="Backup",
        description="At a site: an nfs store of another machine there, for copies. In a region, a bucket has them.",
        json_schema_extra=on_edit(free("the hub and the file server, at their next apply", *EVERY)),
    )
    relay: DomainName | None = Field(
        default=None,
        title="Mail relay",
        examples=["smtp.lab.example"],
        description="Server that takes messages about runs from the hub, at port 587 with STARTTLS.",
        json_schema_extra=_MESSAGES,
    )
    sender: Email | None = Field(
        default=None,
        title="Sender of mail",
        description="E-mail address that messages about runs come from. The relay must accept it.",
        json_schema_extra=_MESSAGES,
    )


_ON_HUB = "the hub, from its next apply on"


class Monitoring(Spec):
    """Metrics and alerts, which the hub keeps and sends."""

    keep: Days = Field(
        default="90d",
        validate_default=True,
        title="Keep",
        description="Days for which the hub keeps metrics, unless a fifth of its disk is used up before.",
        json_schema_extra=on_edit(free(f"{_ON_HUB}; older metrics are deleted")),
    )
    notify: tuple[UserName, ...] = Field(
        default=(),
        title="Recipients",
        examples=[["ada"]],
        description="People who get alerts, by their `notify`. Default: administrators who have one.",
        json_schema_extra=on_edit(free(f"who gets alerts, {_ON_HUB}", *EVERY)),
    )
    remote_write: RemoteStoreUrl | None = Field(
        default=None,
        title="Remote store",
        description="Store of Prometheus's remote write protocol that gets a copy of all samples.",
        json_schema_extra=on_edit(free(_ON_HUB, *EVERY)),
    )


_NEXT_RUN = "what `bp run` does, within some minutes; running jobs stay"
_LIMITS = "what `bp run` does, and which running jobs the hub reports or stops, within some minutes"


class IdleJobs(Spec):
    """When a job counts as idle, and what follows."""

    after: Duration = Field(
        default="3h",
        validate_default=True,
        title="Idle time",
        description="Time without use of a processor and without output.",
        json_schema_extra=on_edit(free(_LIMITS)),
    )
    then: Literal["report", "stop"] = Field(
        default="report",
        title="Then",
        description="Send its person a message, or also stop it ten minutes later.",
        json_schema_extra=on_edit(free(_LIMITS)),
    )


class Jobs(Spec):
    """The fleet's defaults for jobs of people, which `bp run` starts."""

    ask_above: float | None = Field(
        default=None,
        gt=0,
        title="Ask above",
        description="US dollars of a job, for its whole time at list prices, above which `bp run` asks. None: never.",
        json_schema_extra=on_edit(free(_NEXT_RUN, *EVERY)),
    )
    images: Table[Slug, JobImage] = Field(
        default_factory=dict,
        validate_default=True,
        title="Images",
        description="Container image of jobs on a group of workers, or on the workers of a site, by its name.",
        json_schema_extra=on_edit(free(_NEXT_RUN)),
    )
    ecr: bool = Field(
        default=False,
        title="Images in ECR",
        description="Whether ECR has repositories of the standard images in each region, copied from home.",
        json_schema_extra=on_edit(shrinks("the repositories are protected", Effect.REFUSED, MOVE_DATA)),
    )
    registries: tuple[RegistryUrl, ...] = Field(
        default=(),
        title="Registries",
        examples=[["http://registry.lab.example:5000"]],
        description="Registries to which an operator pushes the standard images, and from which machines pull them.",
        json_schema_extra=on_edit(free("nothing in AWS; machines pull from them from their next apply on", *EVERY)),
    )
    for_: Duration | None = Field(
        default=None,
        alias="for",
        title="Longest time",
        description="The time of a job that says none, and the longest. None: 24 hours, and 59 days at most.",
        json_schema_extra=on_edit(free(_NEXT_RUN, *EVERY)),
    )
    budgets: Table[UserName, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        title="Budgets",
        description="US dollars of a person's jobs in a calendar month (UTC). `bp run` starts nothing beyond it.",
        json_schema_extra=on_edit(free(_LIMITS)),
    )
    enforce: bool = Field(
        default=False,
        title="Enforce budgets",
        description="Stop the jobs of a person whose budget is used up, with time for a checkpoint.",
        json_schema_extra=on_edit(free(_LIMITS)),
    )
    idle: IdleJobs | None = Field(
        default=None,
        title="Idle jobs",
        description="What happens to jobs that neither use a processor nor print. None: nothing.",
        json_schema_extra=on_edit(free(_LIMITS, *BOTH)),
    )
    shares: Table[UserName, Annotated[float, Field(gt=0, le=1000)]] = Field(
        default_factory=dict,
        validate_default=True,
        title="Shares",
        description="Share of a person in the GPUs of the cluster while others wait, by name. Everybody else has 1.",
        json_schema_extra=on_edit(free("the order of waiting runs, with the next `bedplate kube addons apply`")),
    )
    checkpoints: Slug | None = Field(
        default=None,
        title="Checkpoints",
        description="Store of `storage`, efs or nfs, that has the checkpoints of jobs. None: the homes of people.",
        json_schema_extra=on_edit(free(f"{_NEXT_RUN}, and resume from where they wrote", *EVERY)),
    )


VERSION = 1


def check_version(value: object) -> object:
    """Return the format version; raise a validation error for any other than the current one."""
    if type(value) is not int:
        raise invalid(OTHER_FORMAT, f"format version {shown(value)} is not an integer", f"write {VERSION}")
    if value > VERSION:
        message = f"the file has format {value}; this bedplate reads format {VERSION}"
        raise invalid(OTHER_FORMAT, message, f"update bedplate; its CHANGELOG describes format {value}")
    if value < VERSION:
        message = f"format {value} does not exist; this bedplate reads format {VERSION}"
        raise invalid(OTHER_FORMAT, message, f"compare the file with examples/minimal.yaml, then write {VERSION}")
    return value


class Person(Spec):
    """A user account on every node."""

    admin: bool = Field(
        default=False,
        title="Administrator",
        description="May become root with sudo.",
        json_schema_extra=on_edit(free(_ACCOUNTS)),
    )
    keys: tuple[SshKey, ...] = Field(
        min_length=1,
        title="SSH keys",
        description="SSH public keys, one line each, without options.",
        json_schema_extra=on_edit(free(_ACCOUNTS, *EVERY)),
    )
    groups: tuple[GroupName, ...] = Field(
        default=(),
        title="Groups",
        description="Additional Linux groups of this person. A group exists if at least one person lists it.",
        json_schema_extra=on_edit(free("group membership, at the next apply; a group keeps its id", *EVERY)),
    )
    email: Email | None = Field(
        default=None,
        title="E-mail address",
        description="Receives messages about this person's runs, with `notify: mail`.",
        json_schema_extra=_MESSAGES,
    )
    notify: Literal["mail", "webhook"] | None = Field(
        default=None,
        title="Messages",
        description="Messages about runs: by mail, or by webhook to a chat, whose secret address only the hub has.",
        json_schema_extra=_MESSAGES,
    )


class Fleet(Spec):
    """The infrastructure of a deep-learning lab."""

    version: Annotated[Literal[1], BeforeValidator(check_version)] = Field(
        title="Format version",
        description="Version of the file format: 1.",
        json_schema_extra=on_edit(refused("it defines the meaning of all keys", "keep it, and update bedplate")),
    )
    name: FleetName = Field(
        title="Fleet name",
        description="Prefix of the names of all resources.",
        json_schema_extra=on_edit(refused("the lock, the stacks and all names belong to the old fleet", NEW_FLEET)),
    )
    account: AccountId = Field(
        title="AWS account",
        description="Twelve digits, quoted. Every command refuses to run in another account.",
        json_schema_extra=on_edit(refused("the stacks may act in the old account only", NEW_FLEET)),
    )
    owner: Owner = Field(
        title="Owner",
        description="Contact for the fleet, as a tag on every resource.",
        json_schema_extra=on_edit(new_nodes("all tags; new tags make a new version of each launch template")),
    )
    domain: DomainName = Field(
        title="Domain",
        description="Private DNS zone. A node is <node>.<region or site>.<domain>.",
        json_schema_extra=on_edit(replaces("the private zone and every name in it")),
    )
    network: Network = Field(title="Network", description="Address space, connections between regions, and egress.")
    regions: Table[RegionName, Region] = Field(
        min_length=1,
        title="Regions",
        description="AWS regions by name. Exactly one is the home region.",
        json_schema_extra=on_edit(
            entries(
                "a region, and routes and permissions of the others for it",
                "everything in the region except data, and routes and permissions of the others for it",
            )
        ),
    )
    sites: Table[Slug, Site] = Field(
        default_factory=dict,
        validate_default=True,
        title="Sites",
        description="Locations with physical machines, by name.",
        json_schema_extra=on_edit(
            entries("VPN connections; no other is affected", "its VPN connections and their keys")
        ),
    )
    groups: Table[Slug, Group] = Field(
        default_factory=dict,
        validate_default=True,
        title="Groups",
        description="Groups of equal cloud machines, by name.",
        json_schema_extra=on_edit(entries("its pools", "its pools and their machines")),
    )
    storage: Table[Slug, Store] = Field(
        default_factory=dict,
        validate_default=True,
        title="Storage",
        description="Shared storage, by name.",
        json_schema_extra=on_edit(
            free("the new store", ADDED), refused("stores with data are protected", MOVE_DATA, REMOVED)
        ),
    )
    vpn: Vpn | None = Field(
        default=None,
        title="VPN",
        description="VPN gateways for laptops, and tunnels between the fleet's gateways.",
        json_schema_extra=GATEWAYS,
    )
    people: Table[UserName, Person] = Field(
        default_factory=dict,
        validate_default=True,
        title="People",
        description="User accounts, by user name.",
        json_schema_extra=on_edit(free(f"{_ACCOUNTS}; the AWS role of their pods", *BOTH)),
    )
    kubernetes: Kubernetes | None = Field(
        default=None,
        title="Kubernetes",
        description="The Kubernetes cluster of the fleet.",
        json_schema_extra=on_edit(
            free("the control plane", ADDED), refused("etcd's volumes are protected", MOVE_DATA, REMOVED)
        ),
    )
    hub: Hub | None = Field(
        default=None,
        title="Hub",
        description="The machine with the records of runs.",
        json_schema_extra=on_edit(free("the hub", ADDED), refused(_VOLUME, MOVE_DATA, REMOVED)),
    )
    monitoring: Monitoring = Field(
        default_factory=Monitoring, title="Monitoring", description="Metrics and alerts of the hub."
    )
    jobs: Jobs = Field(default_factory=Jobs, title="Jobs", description="Defaults for jobs of people.")
    budget: Budget | None = Field(
        default=None,
        title="Budget",
        description="A monthly limit, and the recipient of its notifications.",
        json_schema_extra=on_edit(free("the budget and its notifications", *BOTH)),
    )
    max_cost: float | None = Field(
        default=None,
        gt=0,
        le=10_000_000,
        title="Maximum cost",
        description="Of all Kubernetes workers: US dollars per hour at list prices, above which no machine starts.",
        json_schema_extra=on_edit(free("which machines the capacity controller starts", *EVERY)),
    )
    alarms: Alarms | None = Field(
        default=None,
        title="Alarms",
        description="The recipient of alarms.",
        json_schema_extra=on_edit(free("the recipient; alarms do not change", *BOTH)),
    )
    identity: Identity = Field(
        default_factory=Identity, title="Identity", description="Limits of the IAM roles of nodes."
    )
    image: Image = Field(
        default_factory=Image, title="Image", description="The machine image that cloud nodes start from."
    )
    software: SoftwareName | None = Field(
        default=None,
        title="Software",
        description="Software versions for machines with GPUs or EFA, by the month of the set. Default: the newest.",
        json_schema_extra=on_edit(
            free("the driver, DCGM and the EFA software of machines, at their next apply", *EVERY)
        ),
    )
    tags: Table[TagKey, TagValue] = Field(
        default_factory=dict,
        validate_default=True,
        max_length=MOST_TAGS,
        title="Tags",
        examples=[{"cost-center": "vision"}],
        description="Tags of every resource, machine and volume, in addition to bedplate's own.",
        json_schema_extra=on_edit(new_nodes("all tags; new tags make a new version of each launch template")),
    )
    allow: Table[str, str] = Field(
        default_factory=dict,
        validate_default=True,
        title="Allowed exceptions",
        description="Rules that this fleet may violate, by code, each with its reason.",
        json_schema_extra=on_edit(free("which checks fail; no resource")),
    )


DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


@cache
def fleet_schema() -> Schema:
    """Return the schema, with title, description, default, limits and effects of edits of every key."""
    schema = Fleet.model_json_schema()
    return {"$schema": DIALECT} | {name: _simplified(part) for name, part in schema.items()}


def schema_at(path: tuple[str | int, ...], kind: object = None) -> Schema:
    """Return the schema of the value at `path`, empty if there is none; `kind` selects the kind of store."""
    schema = fleet_schema()
    for part in path:
        schema = _child(_resolved(schema, kind), part)
    return schema | _resolved(schema, kind)


def _simplified(part: object) -> object:
    """Return a part without null as a type, with one pattern for the keys of a table, and prefix lengths as text."""
    if isinstance(part, list | tuple):
        return [_simplified(item) for item in part]
    if not isinstance(part, dict):
        return part
    simplified: Schema = {name: _simplified(item) for name, item in part.items() if (name, item) != ("default", None)}
    choices = simplified.pop("anyOf", None)
    if choices is not None:
        simplified = choices[0] | simplified
    if simplified.get("type") == "string" and isinstance(simplified.get("default"), int):
        simplified["default"] = f"/{simplified['default']}"
    for pattern, item in simplified.pop("patternProperties", {}).items():
        simplified["additionalProperties"] = item
        simplified["propertyNames"]["pattern"] = pattern
    return simplified


def _child(schema: Schema, part: str | int) -> Schema:
    """Return the schema of a key or of the items of a list; empty if there is none."""
    if isinstance(part, int):
        child = schema.get("items", {})
    else:
        child = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return child if isinstance(child, dict) else {}


def _resolved(schema: Schema, kind: object) -> Schema:
    """Return the schema behind a reference, or the alternative for a kind of store."""
    if "discriminator" in schema:
        kinds = schema["discriminator"]["mapping"]
        schema = {"$ref": kinds[kind]} if kind in kinds else {}
    return definition(schema["$ref"]) if "$ref" in schema else schema


def definition(reference: str) -> Schema:
    """Return the model behind a `$ref` of the schema."""
    model: Schema = fleet_schema()["$defs"][reference.rpartition("/")[2]]
    return model
