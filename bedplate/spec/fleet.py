"""The whole fleet: the single input of every bedplate command."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from bedplate.spec.alarms import Alarms
from bedplate.spec.base import Spec, Table
from bedplate.spec.budget import Budget
from bedplate.spec.group import Group
from bedplate.spec.identity import Identity
from bedplate.spec.image import Image
from bedplate.spec.kubernetes import Kubernetes
from bedplate.spec.network import Network
from bedplate.spec.person import Person
from bedplate.spec.region import Region
from bedplate.spec.site import Site
from bedplate.spec.storage import Store
from bedplate.spec.text import AccountId, DomainName, FleetName, Owner, RegionName, Slug, UserName
from bedplate.spec.version import check_version
from bedplate.spec.vpn import Vpn


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
