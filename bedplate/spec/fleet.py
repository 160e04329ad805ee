"""The whole fleet: the single input of every bedplate command."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from bedplate.spec.address import Prefix
from bedplate.spec.base import Spec, Table, refusal, shown
from bedplate.spec.groups import Group, Image
from bedplate.spec.network import Network, Region, Vpn
from bedplate.spec.sites import Site, Store
from bedplate.spec.text import (
    AccountId,
    DomainName,
    Email,
    FleetName,
    GroupName,
    InstanceType,
    KubernetesVersion,
    Owner,
    PolicyArn,
    RegionName,
    Slug,
    SshKey,
    UserName,
)


class Alarms(Spec):
    """Somebody to tell: the alarms stand without, but ring in AWS's console alone."""

    email: Email = Field(
        title="E-mail address",
        description="Who is told when an alarm rings and when it is over; AWS first asks, by mail, once a region.",
    )


class Budget(Spec):
    """A monthly limit: nothing is stopped when it is reached, somebody is told."""

    monthly: int = Field(ge=1, le=100_000_000, title="Monthly limit", description="US dollars a month.")
    email: Email = Field(title="E-mail address", description="Who is told, at 80 % spent and when 100 % is foreseen.")


class Identity(Spec):
    """The roles of nodes: what they may do is derived, and this bounds it."""

    permissions_boundary: PolicyArn | None = Field(
        default=None,
        title="Permissions boundary",
        description="A managed policy of the account, set on every role that bedplate makes; some accounts demand one.",
    )


class ControlPlane(Spec):
    """The machines that run the API servers and etcd, in the home region."""

    type: InstanceType = Field(title="Instance type", description="EC2 instance type of each machine.")
    count: int = Field(
        default=3,
        ge=1,
        le=7,
        title="Count",
        description="How many machines: an odd number, for etcd's quorum.",
    )


class Kubernetes(Spec):
    """Version, control plane and address space of the cluster."""

    version: KubernetesVersion = Field(
        title="Version", description="Minor version, quoted: 1.36 is a number, '1.36' a version."
    )
    control_plane: ControlPlane = Field(title="Control plane", description="The machines that run it.")
    pods: Prefix | None = Field(
        default=None,
        title="Pod block size",
        description="Prefix length for pods; left out, an eighth of the supernet.",
    )
    services: Prefix = Field(
        default=20, title="Service block size", description="Prefix length of the block for services."
    )


VERSION = 1


def check_version(value: object) -> object:
    """Return the version; a refusal says how to migrate from an older or to a newer one."""
    if type(value) is not int:
        raise refusal("E601", f"{shown(value)} is no format version: a whole number is wanted", "write 1")
    if value > VERSION:
        message = f"the file is of format {value}; this bedplate reads format {VERSION}"
        raise refusal("E601", message, "update bedplate; its CHANGELOG says what the newer format changed")
    if value < VERSION:
        message = f"there never was a format {value}; this bedplate reads format {VERSION}"
        raise refusal("E601", message, "compare the file with examples/minimal.yaml, then write 1")
    return value


class Person(Spec):
    """An account on every node."""

    admin: bool = Field(default=False, title="Administrator", description="May become root by sudo.")
    keys: tuple[SshKey, ...] = Field(
        min_length=1, title="SSH keys", description="Public keys, one line each, without options."
    )
    groups: tuple[GroupName, ...] = Field(
        default=(),
        title="Groups",
        description="Groups of the fleet that they belong to, beside their own; made by being named.",
    )


class Fleet(Spec):
    """A deep-learning lab's infrastructure."""

    version: Annotated[Literal[1], BeforeValidator(check_version)] = Field(
        title="Format version", description="Version of this file's format: 1."
    )
    name: FleetName = Field(title="Fleet name", description="Prefix of every resource's name.")
    account: AccountId = Field(
        title="AWS account",
        description="Twelve digits, quoted; every command refuses to act in another account.",
    )
    owner: Owner = Field(title="Owner", description="Who answers for it; tagged on everything.")
    domain: DomainName = Field(
        title="Domain", description="Private DNS zone; a node is <node>.<region or site>.<domain>."
    )
    network: Network = Field(title="Network", description="Address space, interconnection and egress.")
    regions: Table[RegionName, Region] = Field(
        min_length=1, title="Regions", description="AWS regions by name; exactly one is the home."
    )
    sites: Table[Slug, Site] = Field(
        default_factory=dict, validate_default=True, title="Sites", description="Rooms of physical machines."
    )
    groups: Table[Slug, Group] = Field(
        default_factory=dict,
        validate_default=True,
        title="Groups",
        description="Cloud machines, a kind a group.",
    )
    storage: Table[Slug, Store] = Field(
        default_factory=dict, validate_default=True, title="Storage", description="Shared storage by name."
    )
    vpn: Vpn | None = Field(default=None, title="VPN", description="How laptops join, and gateways each other.")
    people: Table[UserName, Person] = Field(
        default_factory=dict, validate_default=True, title="People", description="Accounts by user name."
    )
    kubernetes: Kubernetes | None = Field(default=None, title="Kubernetes", description="The fleet's cluster.")
    budget: Budget | None = Field(default=None, title="Budget", description="What a month may cost, and who is told.")
    alarms: Alarms | None = Field(default=None, title="Alarms", description="Who is told when an alarm rings.")
    identity: Identity = Field(
        default_factory=Identity, title="Identity", description="What bounds the roles of nodes."
    )
    image: Image = Field(
        default_factory=Image, title="Image", description="The machine image that cloud nodes start from."
    )
    allow: Table[str, str] = Field(
        default_factory=dict,
        validate_default=True,
        title="Allowed exceptions",
        description="Rules that this fleet may break, by code, each with the reason.",
    )
