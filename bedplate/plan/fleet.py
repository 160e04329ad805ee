"""The plan of a fleet: regions, zones, sites, pools and stores with every name and address decided."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

from bedplate.plan.pools import PoolPlan
from bedplate.plan.record import NO_NUMBERS, PlanFault, PlanFaults, Record
from bedplate.spec.fleet import Alarms, Budget, Fleet
from bedplate.spec.network import Egress, Interconnect, TunnelAuth
from bedplate.spec.sites import Clients, Dials, Machine, NameServers, Site, Use

# Above what distributions give out (1000-19999 here), below systemd's own ranges (60001 and on).
# Source: https://systemd.io/UIDS-GIDS/.
PEOPLE_IDS = range(20000, 50000)
GROUP_IDS = range(50000, 60000)


@dataclass(frozen=True, slots=True)
class Account:
    """A person on every node: `uid` is also the id of the group of their own."""

    name: str
    uid: int
    admin: bool
    keys: tuple[str, ...]
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accounts:
    """Everybody: who has an account, the groups they belong to with their ids, and who and what is gone, by id."""

    people: tuple[Account, ...] = ()
    groups: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    departed: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    past_groups: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)

    @property
    def uids(self) -> Mapping[str, int]:
        """The user id of everybody who has an account, by name."""
        return {person.name: person.uid for person in self.people}


NO_ACCOUNTS = Accounts()


def accounts(fleet: Fleet, record: Record) -> Accounts:
    """Return the accounts of today's file; whoever the lock knows keeps their id. Raises PlanFaults."""
    people = {name: f"people.{name}" for name in fleet.people}
    groups = _first_named(fleet)
    refused = (
        *_taken(people, record.groups, "a group"),
        *_taken(groups, record.people, "a person"),
        *_too_many(people, record.people, PEOPLE_IDS),
        *_too_many(groups, record.groups, GROUP_IDS),
    )
    if refused:
        raise PlanFaults(refused)
    uids = _numbered(people, record.people, PEOPLE_IDS)
    departed = {name: uid for name, uid in record.people.items() if name not in people}
    having = tuple(
        Account(name, uids[name], person.admin, person.keys, person.groups) for name, person in fleet.people.items()
    )
    past = {name: gid for name, gid in record.groups.items() if name not in groups}
    return Accounts(having, _numbered(groups, record.groups, GROUP_IDS), departed, past)


def _first_named(fleet: Fleet) -> Mapping[str, str]:
    """Return each group that somebody is in, with the key that names it first."""
    found: dict[str, str] = {}
    for person, told in fleet.people.items():
        for place, group in enumerate(told.groups):
            found.setdefault(group, f"people.{person}.groups.{place}")
    return found


def _taken(names: Mapping[str, str], recorded: Mapping[str, int], noun: str) -> Iterator[PlanFault]:
    """Yield the names under which the lock knows somebody of the other kind."""
    for name, key in names.items():
        if name in recorded:
            message = f"the lock knows {name} as {noun}, whose files may still be about"
            yield PlanFault("E518", key, message, "choose another name: names and ids are for ever")


def _too_many(names: Mapping[str, str], recorded: Mapping[str, int], ids: range) -> Iterator[PlanFault]:
    """Yield the first name for which no id is left."""
    fresh = [name for name in names if name not in recorded]
    room = ids.stop - _next(recorded, ids)
    if len(fresh) > room:
        message = f"no id is left for {fresh[room]}: {ids.start} to {ids.stop - 1} were all given before"
        yield PlanFault("E517", names[fresh[room]], message, "take a name that the lock knows: it keeps its id")


def _numbered(names: Iterable[str], recorded: Mapping[str, int], ids: range) -> dict[str, int]:
    """Return an id for each name: the recorded one, or the next above all that were ever given."""
    fresh = (name for name in names if name not in recorded)
    given = dict(zip(fresh, range(_next(recorded, ids), ids.stop), strict=False))
    return {name: recorded[name] if name in recorded else given[name] for name in names}


def _next(recorded: Mapping[str, int], ids: range) -> int:
    return max(recorded.values(), default=ids.start - 1) + 1


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

    @property
    def lan(self) -> IPv4Network:
        """The block of the site's LAN."""
        return self.spec.lan

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
        """The host name of the machine that ends the tunnels."""
        return self.spec.gateway.machine

    @property
    def dials(self) -> Dials:
        """The end that initiates the tunnels to AWS."""
        return self.spec.gateway.dials

    @property
    def dns(self) -> NameServers | None:
        """The site's own domain and its name servers, if any."""
        return self.spec.dns

    def used_for(self, *uses: Use) -> tuple[tuple[str, IPv4Network], ...]:
        """Return the name and the address, as a block, of each machine of these uses."""
        return tuple(
            (f"{machine.label}.{self.name}", IPv4Network(machine.address))
            for machine in self.machines.values()
            if machine.spec.use in uses
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
        """What it is called at its site, whose own it is."""
        return f"{self.region}-{self.number}"


@dataclass(frozen=True, slots=True)
class DirectPlan:
    """The tunnel between the gateways of two sites, in the order of the alphabet; `inside` is its /30."""

    sites: tuple[str, str]
    dials: str
    inside: IPv4Network

    def other(self, site: str) -> str:
        """Return the site at the other end."""
        one, other = self.sites
        return other if site == one else one

    def name(self, site: str) -> str:
        """Return what it is called at a site: no region's name with a number ends so, nor does a unit that dials."""
        return f"{self.other(site)}-site"


@dataclass(frozen=True, slots=True)
class LaptopPool:
    """The addresses that one gateway hands to laptops; `place` is a region or a site.

    `between` tells whether its laptops reach each other, and those of other gateways that do.
    """

    place: str
    block: IPv4Network
    between: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One machine of the control plane, known as `name` (`control-1.us-west-2`): its zone and its fixed address."""

    name: str
    zone: str
    address: IPv4Address


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The machines that run API servers and etcd, all in the home region, and the version of Kubernetes on them."""

    type: str
    version: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """An EFS file system."""

    store: str
    region: str
    mount: str


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """A folder that a site's machine exports over NFS to its clients on the site."""

    store: str
    site: str
    machine: str
    export: str
    mount: str
    clients: Clients = Clients.MACHINES


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """One S3 bucket of a store, in one region; `name` is unique over all AWS accounts."""

    store: str
    region: str
    name: str
    expire_days: int | None
    readers: tuple[str, ...] = ()
    """Roles, by ARN, that may read beside the fleet's own."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Everything that stacks, roles and pictures are made from.

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
    budget: Budget | None = None
    alarms: Alarms | None = None
    exports: tuple[ExportPlan, ...] = ()
    endpoints: tuple[str, ...] = ()
    """The services of AWS that every region has an interface endpoint of, as `ecr.api`."""
    boundary: str | None = None
    """The ARN of the policy that bounds every role of the fleet."""
    control_plane: ControlPlane | None = None
    accounts: Accounts = NO_ACCOUNTS
    directs: tuple[DirectPlan, ...] = ()
    """The tunnels between sites that are not AWS's."""
    tunnel_auth: TunnelAuth = TunnelAuth.PSK
    """By what the fleet's own gateways know each other."""

    def directs_of(self, site: str) -> tuple[DirectPlan, ...]:
        """Return the direct tunnels that end at a site."""
        return tuple(each for each in self.directs if site in each.sites)

    @property
    def home(self) -> RegionPlan:
        """The home region."""
        return next(region for region in self.regions if region.home)

    def region(self, name: str) -> RegionPlan:
        """Return the region of that name; KeyError when the fleet has none."""
        for region in self.regions:
            if region.name == name:
                return region
        raise KeyError(name)

    @property
    def addresses(self) -> Mapping[str, IPv4Address]:
        """The fixed address of each machine that has one, by `machine.place`: of sites, and of the control plane."""
        return {**self.site_addresses, **self._members}

    @property
    def site_addresses(self) -> Mapping[str, IPv4Address]:
        """The fixed address of each physical machine, by `machine.place`."""
        return {
            f"{machine.label}.{site.name}": machine.address for site in self.sites for machine in site.machines.values()
        }

    @property
    def _members(self) -> dict[str, IPv4Address]:
        return {each.name: each.address for each in self.control_plane.members} if self.control_plane else {}

    @property
    def new_addresses(self) -> Mapping[str, IPv4Address]:
        """Addresses given to machines of the cloud that the lock does not hold yet, by name."""
        return {name: one for name, one in self._members.items() if self.record.addresses.get(name) != one}

    @property
    def new_people(self) -> Mapping[str, int]:
        """User ids that the lock does not hold yet, by name."""
        return {name: uid for name, uid in self.accounts.uids.items() if name not in self.record.people}

    @property
    def new_groups(self) -> Mapping[str, int]:
        """Ids of groups that the lock does not hold yet, by name."""
        return {name: gid for name, gid in self.accounts.groups.items() if name not in self.record.groups}

    @property
    def news(self) -> Mapping[str, IPv4Network]:
        """Blocks that the lock does not hold yet, by path."""
        return {path: block for path, block in self.blocks.items() if path not in self.record.blocks}

    @property
    def retired(self) -> Mapping[str, IPv4Network]:
        """Blocks that the lock holds and the file no longer asks for, by path."""
        return {path: block for path, block in self.record.blocks.items() if path not in self.blocks}

    def recorded(self) -> Record:
        """Return what the lock is to hold from now on: all it held, and the news."""
        blocks = MappingProxyType({**self.record.blocks, **self.news})
        addresses = MappingProxyType({**self.record.addresses, **self._members})
        people = MappingProxyType({**self.record.people, **self.accounts.uids})
        groups = MappingProxyType({**self.record.groups, **self.accounts.groups})
        return replace(self.record, blocks=blocks, addresses=addresses, people=people, groups=groups)


FIXED_PREFIX = 28


def fixed_block(nodes: IPv4Network) -> IPv4Network:
    """Return the part of a nodes subnet that is for fixed addresses: clear of the first four, which AWS keeps."""
    size = 1 << (nodes.max_prefixlen - FIXED_PREFIX)
    return IPv4Network((int(nodes.network_address) + size, FIXED_PREFIX))


def members(
    home: RegionPlan, count: int, recorded: Mapping[str, IPv4Address], offering: Container[str]
) -> tuple[Member, ...]:
    """Return the control plane's machines, those first that the lock knows in a zone of today's file.

    A new one stands, of the zones `offering` its type, in the one that has the fewest, the one allotted first among
    equals, at its lowest address that nobody ever had; in any zone where none of them offers it.
    """
    zones = sorted(home.zones, key=lambda zone: zone.nodes)
    fit = [zone for zone in zones if zone.name in offering] or zones
    names = [member_name(number, home.name) for number in range(1, count + 1)]
    found = {name: Member(name, zone.name, recorded[name]) for name, zone in _kept(names, zones, recorded)}
    taken = {*recorded.values()}
    for name in (name for name in names if name not in found):
        found[name] = _placed(name, fit, tuple(found.values()), taken)
        taken.add(found[name].address)
    return tuple(found[name] for name in names)


def member_name(number: int, region: str) -> str:
    """Return the name by which a machine of the control plane is known, without the domain."""
    return f"control-{number}.{region}"


def _kept(
    names: Iterable[str], zones: list[ZonePlan], recorded: Mapping[str, IPv4Address]
) -> Iterator[tuple[str, ZonePlan]]:
    for name in names:
        yield from ((name, zone) for zone in zones if name in recorded and recorded[name] in zone.nodes)


def _placed(name: str, zones: list[ZonePlan], others: tuple[Member, ...], taken: set[IPv4Address]) -> Member:
    def crowd(zone: ZonePlan) -> int:
        return sum(other.zone == zone.name for other in others)

    zone = min(zones, key=crowd)
    return Member(name, zone.name, next(one for one in fixed_block(zone.nodes) if one not in taken))
