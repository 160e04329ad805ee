"""The plan of a fleet: regions, zones, sites, pools and stores with every name and address decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

from bedplate.plan.accounts import NO_ACCOUNTS, Accounts
from bedplate.plan.pool import PoolPlan
from bedplate.plan.record import Record
from bedplate.spec.network import Egress, Interconnect
from bedplate.spec.site import Dials, Gpus, Use
from bedplate.spec.storage import Clients
from bedplate.spec.vpn import TunnelAuth

NO_GPUS: Mapping[str, Gpus] = MappingProxyType({})
NO_SCRATCH: Mapping[str, tuple[str, ...]] = MappingProxyType({})


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
class NameServersPlan:
    """Who answers for a site's own domain, in the order of the file."""

    domain: str
    servers: tuple[IPv4Address, ...]


@dataclass(frozen=True, slots=True)
class SitePlan:
    """A site's LAN, and the fixed address and the use of each machine on it; None serves the site itself."""

    name: str
    lan: IPv4Network
    public: IPv4Address
    asn: int
    gateway: str
    dials: Dials
    machines: Mapping[str, IPv4Address]
    uses: Mapping[str, Use | None]
    dns: NameServersPlan | None = None
    gpus: Mapping[str, Gpus] = field(default_factory=lambda: NO_GPUS)
    scratch: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NO_SCRATCH)

    def used_for(self, *uses: Use) -> tuple[tuple[str, IPv4Network], ...]:
        """Return the name and the address, as a block, of each machine of these uses."""
        return tuple(
            (f"{label}.{self.name}", IPv4Network(address))
            for label, address in self.machines.items()
            if self.uses[label] in uses
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
    budget: tuple[int, str] | None = None
    """US dollars a month, and the address that is told."""
    alarms: str | None = None
    """The address that is told of alarms."""
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
        return {f"{name}.{site.name}": address for site in self.sites for name, address in site.machines.items()}

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
