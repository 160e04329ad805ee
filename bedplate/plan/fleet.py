"""The plan of a fleet as values: regions, zones, sites, pools, stores and accounts, each with its name and address.

Also here: the user and group ids of people, and the zones and addresses of the control plane's machines.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, wraps
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType
from typing import TypeVar, cast

from bedplate.catalog import Catalog
from bedplate.plan.faults import IDS_EXHAUSTED, NAME_RECORDED, PlanFaults
from bedplate.plan.hub import HubPlan
from bedplate.plan.pools import PoolPlan, bucket_name
from bedplate.plan.record import Record
from bedplate.plan.space import fixed_block, site_networks
from bedplate.plan.stores import ISSUER_STORE, NODES_STORE, BucketPlan, ExportPlan, FilesPlan
from bedplate.rules import Fault, fault
from bedplate.spec.fleet import Alarms, Budget, Fleet, Jobs
from bedplate.spec.groups import Image, Ring
from bedplate.spec.network import Egress, Interconnect, TunnelAuth
from bedplate.spec.sites import Dials, Machine, NameServers, Site


class Access(StrEnum):
    """What a person may do on a machine: log in, get tokens of the cluster and nothing else, or nothing."""

    LOGIN = "login"
    TOKENS = "tokens"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Account:
    """A person's account, with the same ids on every node; `uid` is also the id of their private group.

    `access` is that of the node; in the plan of the fleet everybody may log in.
    """

    name: str
    uid: int
    admin: bool
    keys: tuple[str, ...]
    groups: tuple[str, ...] = ()
    access: Access = Access.LOGIN


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of today's file, the ids of their groups, and the ids of removed people and groups, by name."""

    people: tuple[Account, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict)
    departed: Mapping[str, int] = field(default_factory=dict)
    past_groups: Mapping[str, int] = field(default_factory=dict)

    @property
    def uids(self) -> Mapping[str, int]:
        """The user id of each account, by name."""
        return {person.name: person.uid for person in self.people}

    @property
    def administrators(self) -> tuple[str, ...]:
        """The names of the administrators."""
        return tuple(person.name for person in self.people if person.admin)

    @property
    def admin_keys(self) -> tuple[str, ...]:
        """The keys of the administrators, in the order of the file."""
        return tuple(key for person in self.people if person.admin for key in person.keys)

    @property
    def admin_keys_file(self) -> str:
        """The text of the authorized_keys file with the administrators' keys."""
        return "".join(f"{line}\n" for line in ("# Written by bedplate: keys of administrators", *self.admin_keys))

    def having(self, *access: Access) -> tuple[Account, ...]:
        """Return the accounts with one of these kinds of access."""
        return tuple(person for person in self.people if person.access in access)


NO_ACCOUNTS = Accounts()


@dataclass(frozen=True, slots=True)
class ZonePlan:
    """The two subnets of one availability zone."""

    name: str
    edge: IPv4Network
    nodes: IPv4Network


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """One region's VPC block and its zones, in the order of the file."""

    name: str
    home: bool
    block: IPv4Network
    zones: tuple[ZonePlan, ...]


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """A physical machine of a site: its host name, and its entry in the fleet file."""

    label: str
    spec: Machine

    @property
    def address(self) -> IPv4Address:
        """The fixed address of the machine on the LAN."""
        return self.spec.address


@dataclass(frozen=True)
class SitePlan:
    """A site of the fleet file, by its name."""

    name: str
    spec: Site

    @cached_property
    def machines(self) -> Mapping[str, MachinePlan]:
        """The machines by host name, in the order of the file."""
        return MappingProxyType({label: MachinePlan(label, spec) for label, spec in self.spec.machines.items()})

    @cached_property
    def networks(self) -> Mapping[str, IPv4Network]:
        """The blocks of the site's networks by name; the first has that of the site."""
        return site_networks(self.name, self.spec)

    @property
    def public(self) -> IPv4Address:
        """The public address of the gateway."""
        return self.spec.gateway.public

    @property
    def asn(self) -> int:
        """The BGP autonomous system number of the site."""
        return self.spec.gateway.asn

    @property
    def gateway(self) -> str:
        """The host name of the machine that terminates the tunnels."""
        return self.spec.gateway.machine

    @property
    def dials(self) -> Dials:
        """The end that initiates the tunnels to AWS."""
        return self.spec.gateway.dials

    @property
    def dns(self) -> NameServers | None:
        """The site's private domain and its name servers, if any."""
        return self.spec.dns

    def used_blocks(self, *, workers: bool = False) -> tuple[tuple[str, IPv4Network], ...]:
        """Return the name and the address, as a block, of each machine with a use, or of the workers only."""
        return tuple(
            (f"{machine.label}.{self.name}", IPv4Network(machine.address))
            for machine in self.machines.values()
            if (machine.spec.is_worker if workers else machine.spec.use)
        )


@dataclass(frozen=True, slots=True)
class TunnelPlan:
    """One of the two tunnels between a site and a region; `inside` is its /30."""

    site: str
    region: str
    number: int
    inside: IPv4Network

    @property
    def name(self) -> str:
        """The tunnel's name on the site's gateway."""
        return f"{self.region}-{self.number}"


@dataclass(frozen=True, slots=True)
class SiteTunnelPlan:
    """The tunnel between the gateways of two sites, whose names are sorted; `inside` is its /30."""

    sites: tuple[str, str]
    dials: str
    inside: IPv4Network

    def other(self, site: str) -> str:
        """Return the site at the other end."""
        first, second = self.sites
        return second if site == first else first

    def name(self, site: str) -> str:
        """Return the tunnel's name on a site's gateway; no tunnel to a region has a name with this ending."""
        return f"{self.other(site)}-site"


@dataclass(frozen=True, slots=True)
class LaptopPool:
    """The addresses that one gateway assigns to laptops; `place` is a region or a site.

    With `between`, its laptops reach each other and the laptops of other such pools.
    """

    place: str
    block: IPv4Network
    between: bool = False


@dataclass(frozen=True, slots=True)
class ControlPlaneMember:
    """One control-plane machine, or the hub: its name (`control-1.us-west-2`), its zone and its fixed address."""

    name: str
    zone: str
    address: IPv4Address


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The machines of API servers and etcd, all in the home region, with their version; and mirrors of registries.

    `containerd` is the version on every machine of the cluster. `pod_roles`: whether pods of people get roles in AWS.
    """

    type: str
    version: str
    members: tuple[ControlPlaneMember, ...]
    containerd: str
    mirrors: Mapping[str, str] = field(default_factory=dict)
    pod_roles: bool = True


ViewT = TypeVar("ViewT")


def cached_on_plan(compute: "Callable[[FleetPlan], ViewT]") -> "Callable[[FleetPlan], ViewT]":
    """Return the function with its result cached on the plan: it runs once for each plan."""
    name = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def view(plan: FleetPlan) -> ViewT:
        if name not in plan.views:
            plan.views[name] = compute(plan)
        return cast("ViewT", plan.views[name])

    return view


@dataclass(frozen=True)
class FleetPlan:
    """The plan that stacks, roles and pictures are built from.

    `record` is the lock as it was read, `blocks` every path of today's file, in its order.
    """

    name: str
    account: str
    owner: str
    domain: str
    supernet: IPv4Network
    interconnect: Interconnect
    egress: Egress
    regions: tuple[RegionPlan, ...]
    sites: tuple[SitePlan, ...]
    pods: IPv4Network | None
    services: IPv4Network | None
    laptops: tuple[LaptopPool, ...]
    tunnels: tuple[TunnelPlan, ...]
    pools: tuple[PoolPlan, ...]
    files: tuple[FilesPlan, ...]
    buckets: tuple[BucketPlan, ...]
    record: Record
    blocks: Mapping[str, IPv4Network]
    catalog: Catalog = field(repr=False, compare=False)
    """The facts with which the plan was made."""
    jobs: Jobs = field(default_factory=Jobs)
    budget: Budget | None = None
    max_cost: float | None = None
    alarms: Alarms | None = None
    exports: tuple[ExportPlan, ...] = ()
    endpoints: tuple[str, ...] = ()
    """The AWS services with an interface endpoint in every region, such as `ecr.api`."""
    boundary: str | None = None
    """The ARN of the permissions boundary of every role."""
    control_plane: ControlPlane | None = None
    hub: HubPlan | None = None
    image: Image = field(default_factory=Image)
    """The content of machine images; its driver branch is always set."""
    software: str = ""
    """The name of its set of software versions."""
    accounts: Accounts = NO_ACCOUNTS
    site_tunnels: tuple[SiteTunnelPlan, ...] = ()
    """The tunnels between sites; AWS has no end of them."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The tags of the file for every resource."""
    tunnel_auth: TunnelAuth = TunnelAuth.PSK
    """How the fleet's gateways authenticate to each other."""
    views: dict[str, object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The results of functions under `cached_on_plan`, by the function's name."""

    @cached_property
    def home(self) -> RegionPlan:
        """The home region."""
        return next(region for region in self.regions if region.home)

    @cached_property
    def regions_by_name(self) -> Mapping[str, RegionPlan]:
        """The regions by name, in the order of the file."""
        return MappingProxyType({region.name: region for region in self.regions})

    @cached_property
    def sites_by_name(self) -> Mapping[str, SitePlan]:
        """The sites by name, in the order of the file."""
        return MappingProxyType({site.name: site for site in self.sites})

    @property
    def stores(self) -> tuple[tuple[FilesPlan, ...], tuple[ExportPlan, ...], tuple[BucketPlan, ...]]:
        """The stores by kind. Code that treats each kind unpacks them: mypy then refuses to forget one."""
        return self.files, self.exports, self.buckets

    def nodes_bucket(self, region: str) -> BucketPlan:
        """Return the bucket of a region from which nodes get their bundle, and to which they write their status."""
        return BucketPlan(NODES_STORE, region, bucket_name(self.name, NODES_STORE, self.account, region), None)

    @property
    def issuer_bucket(self) -> BucketPlan:
        """The bucket with the public keys of the cluster's tokens; its address is the issuer in them."""
        home = self.home.name
        return BucketPlan(ISSUER_STORE, home, bucket_name(self.name, ISSUER_STORE, self.account, home), None)

    def ring_parameter(self, ring: Ring) -> str:
        """Return the SSM parameter of each region that names the bundle of a ring."""
        return f"/{self.name}/nodes/{ring.value}"

    def region(self, name: str) -> RegionPlan:
        """Return the region of that name; KeyError when the fleet has none."""
        return self.regions_by_name[name]

    def site_tunnels_of(self, site: str) -> tuple[SiteTunnelPlan, ...]:
        """Return the tunnels between a site and other sites."""
        return tuple(direct for direct in self.site_tunnels if site in direct.sites)

    @cached_property
    def addresses(self) -> Mapping[str, IPv4Address]:
        """The fixed addresses by `machine.place`: of sites' machines, then of the control plane and the hub."""
        return MappingProxyType({**self.site_addresses, **self._assigned_addresses})

    @cached_property
    def site_addresses(self) -> Mapping[str, IPv4Address]:
        """The fixed address of each physical machine, by `machine.place`."""
        machines = ((site.name, machine) for site in self.sites for machine in site.machines.values())
        return MappingProxyType({f"{machine.label}.{site}": machine.address for site, machine in machines})

    @property
    def _assigned_addresses(self) -> dict[str, IPv4Address]:
        members = self.control_plane.members if self.control_plane else ()
        hub = {self.hub.node: self.hub.address} if self.hub and self.hub.region else {}
        return {member.name: member.address for member in members} | hub

    @property
    def new_addresses(self) -> Mapping[str, IPv4Address]:
        """Addresses of control-plane machines and of the hub that the lock does not hold yet, by name."""
        recorded = self.record.addresses
        return {name: address for name, address in self._assigned_addresses.items() if recorded.get(name) != address}

    @property
    def new_people(self) -> Mapping[str, int]:
        """User ids that the lock does not hold yet, by name."""
        return {name: uid for name, uid in self.accounts.uids.items() if name not in self.record.people}

    @property
    def new_groups(self) -> Mapping[str, int]:
        """Group ids that the lock does not hold yet, by name."""
        return {name: gid for name, gid in self.accounts.groups.items() if name not in self.record.groups}

    @property
    def new_blocks(self) -> Mapping[str, IPv4Network]:
        """Blocks that the lock does not hold yet, by path."""
        return {path: block for path, block in self.blocks.items() if path not in self.record.blocks}

    @property
    def retired(self) -> Mapping[str, IPv4Network]:
        """Blocks of the lock that the file no longer uses, by path."""
        return {path: block for path, block in self.record.blocks.items() if path not in self.blocks}

    def recorded(self) -> Record:
        """Return the next record: the previous one with the new blocks, addresses and ids."""
        people, groups = self.accounts.uids, self.accounts.groups
        return self.record.adding(
            blocks=self.new_blocks, addresses=self._assigned_addresses, people=people, groups=groups
        )


# Above the ids that distributions assign (1000-19999 here), below systemd's dynamic ranges (from 60001).
# Source: https://systemd.io/UIDS-GIDS/.
PEOPLE_IDS = range(20000, 50000)
GROUP_IDS = range(50000, 60000)


def number_accounts(fleet: Fleet, record: Record) -> Accounts:
    """Return the accounts of today's file; recorded people and groups keep their ids. Raises PlanFaults."""
    people = {name: f"people.{name}" for name in fleet.people}
    groups = _group_keys(fleet)
    faults = (
        *_recorded_otherwise(people, record.groups, "a group"),
        *_recorded_otherwise(groups, record.people, "a person"),
        *_out_of_ids(people, record.people, PEOPLE_IDS),
        *_out_of_ids(groups, record.groups, GROUP_IDS),
    )
    if faults:
        raise PlanFaults(faults)
    uids = _assign_ids(people, record.people, PEOPLE_IDS)
    departed = {name: uid for name, uid in record.people.items() if name not in people}
    accounts = tuple(
        Account(name, uids[name], person.admin, person.keys, person.groups) for name, person in fleet.people.items()
    )
    past = {name: gid for name, gid in record.groups.items() if name not in groups}
    return Accounts(accounts, _assign_ids(groups, record.groups, GROUP_IDS), departed, past)


def _group_keys(fleet: Fleet) -> Mapping[str, str]:
    """Return each group that has a member, with the key of its first mention."""
    keys: dict[str, str] = {}
    for name, person in fleet.people.items():
        for index, group in enumerate(person.groups):
            keys.setdefault(group, f"people.{name}.groups.{index}")
    return keys


def _recorded_otherwise(names: Mapping[str, str], recorded: Mapping[str, int], noun: str) -> Iterator[Fault]:
    """Yield a fault for each name that the lock records as the other kind."""
    for name, key in names.items():
        if name in recorded:
            message = f"the lock records {name} as {noun}; files with its id may still exist"
            yield fault(NAME_RECORDED, key, message, "choose another name: recorded names and ids are never reused")


def _out_of_ids(names: Mapping[str, str], recorded: Mapping[str, int], ids: range) -> Iterator[Fault]:
    """Yield a fault for the first name for which no id is left."""
    new_names = [name for name in names if name not in recorded]
    free = ids.stop - _next_id(recorded, ids)
    if len(new_names) > free:
        message = f"no id left for {new_names[free]}: all of {ids.start} to {ids.stop - 1} are assigned"
        yield fault(IDS_EXHAUSTED, names[new_names[free]], message, "use a name that the lock records: it keeps its id")


def _assign_ids(names: Iterable[str], recorded: Mapping[str, int], ids: range) -> dict[str, int]:
    """Return an id for each name: the recorded one, or the next above all recorded ones."""
    new_names = (name for name in names if name not in recorded)
    new_ids = dict(zip(new_names, range(_next_id(recorded, ids), ids.stop), strict=False))
    return {name: recorded[name] if name in recorded else new_ids[name] for name in names}


def _next_id(recorded: Mapping[str, int], ids: range) -> int:
    return max(recorded.values(), default=ids.start - 1) + 1


def place_members(
    region: RegionPlan, names: Sequence[str], recorded: Mapping[str, IPv4Address], offering: Container[str]
) -> tuple[ControlPlaneMember, ...]:
    """Return machines with fixed addresses; recorded ones whose zone is in the file keep their address.

    A new one gets the zone with the fewest members among those `offering` its type, else among all zones, and there
    the lowest address that was never used. Ties go to the zone with the lowest subnet.
    """
    zones = sorted(region.zones, key=lambda zone: zone.nodes)
    offering_zones = [zone for zone in zones if zone.name in offering] or zones
    placed = {
        name: ControlPlaneMember(name, zone.name, recorded[name])
        for name, zone in _recorded_zones(names, zones, recorded)
    }
    used = {*recorded.values()}
    for name in (name for name in names if name not in placed):
        placed[name] = _place_member(name, offering_zones, tuple(placed.values()), used)
        used.add(placed[name].address)
    return tuple(placed[name] for name in names)


def member_names(count: int, region: str) -> tuple[str, ...]:
    """Return the names of the control plane's machines."""
    return tuple(member_name(number, region) for number in range(1, count + 1))


def member_name(number: int, region: str) -> str:
    """Return the name of a control-plane machine without the domain, such as `control-1.us-west-2`."""
    return f"control-{number}.{region}"


def _recorded_zones(
    names: Iterable[str], zones: list[ZonePlan], recorded: Mapping[str, IPv4Address]
) -> Iterator[tuple[str, ZonePlan]]:
    for name in names:
        yield from ((name, zone) for zone in zones if name in recorded and recorded[name] in zone.nodes)


def _place_member(
    name: str, zones: list[ZonePlan], others: tuple[ControlPlaneMember, ...], used: set[IPv4Address]
) -> ControlPlaneMember:
    zone = min(zones, key=lambda zone: sum(other.zone == zone.name for other in others))
    return ControlPlaneMember(
        name, zone.name, next(address for address in fixed_block(zone.nodes) if address not in used)
    )
