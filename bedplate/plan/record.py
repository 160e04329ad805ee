"""What fleet.lock remembers: whatever was ever allotted, and what was learnt once and is trusted from then on."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

from bedplate.errors import InputError

NO_ADDRESSES: Mapping[str, IPv4Address] = MappingProxyType({})
NO_IMAGES: Mapping[str, str] = MappingProxyType({})
NO_NUMBERS: Mapping[str, int] = MappingProxyType({})
NO_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType({})
NO_INSTANCES: Mapping[str, str] = MappingProxyType({})
NO_RESOLVERS: Mapping[str, tuple[IPv4Address, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Record:
    """What was decided for good, for today's file and for earlier ones.

    `blocks` by path (`region/us-west-2/zone/us-west-2a/edge`), fixed `addresses` by machine (`control-1.us-west-2`),
    `images` by region and architecture (`us-west-2/x86_64`), user ids of `people` and group ids of `groups` by name,
    public `host_keys` by machine (`ssh-ed25519 AAAA...`), the EC2 `instances` by machine that had those keys, public
    addresses of laptop `gateways` by region, addresses of the `resolvers` that answer laptops and sites by region.
    """

    blocks: Mapping[str, IPv4Network]
    addresses: Mapping[str, IPv4Address] = field(default_factory=lambda: NO_ADDRESSES)
    images: Mapping[str, str] = field(default_factory=lambda: NO_IMAGES)
    people: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    groups: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    host_keys: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NO_KEYS)
    instances: Mapping[str, str] = field(default_factory=lambda: NO_INSTANCES)
    gateways: Mapping[str, IPv4Address] = field(default_factory=lambda: NO_ADDRESSES)
    resolvers: Mapping[str, tuple[IPv4Address, ...]] = field(default_factory=lambda: NO_RESOLVERS)

    def without(self, paths: Container[str]) -> "Record":
        """Return the record without the blocks of these paths and without the addresses that lie in them."""
        gone = [block for path, block in self.blocks.items() if path in paths]
        blocks = {path: block for path, block in self.blocks.items() if path not in paths}
        addresses = {name: one for name, one in self.addresses.items() if not any(one in block for block in gone)}
        return replace(self, blocks=MappingProxyType(blocks), addresses=MappingProxyType(addresses))

    def with_images(self, images: Mapping[str, str]) -> "Record":
        """Return the record with these images beside those it holds; one of the same place gives way."""
        return replace(self, images=MappingProxyType({**self.images, **images}))

    def with_doors(
        self, gateways: Mapping[str, IPv4Address], resolvers: Mapping[str, tuple[IPv4Address, ...]]
    ) -> "Record":
        """Return the record with these gateways and resolvers beside those it holds; one of a region gives way."""
        return replace(
            self,
            gateways=MappingProxyType({**self.gateways, **gateways}),
            resolvers=MappingProxyType({**self.resolvers, **resolvers}),
        )

    def with_host_keys(self, machine: str, keys: tuple[str, ...], instance: str | None = None) -> "Record":
        """Return the record with these public host keys of a machine, and the instance that has them if known."""
        others = {name: one for name, one in self.instances.items() if name != machine}
        return replace(
            self,
            host_keys=MappingProxyType({**self.host_keys, machine: keys}),
            instances=MappingProxyType({**others, machine: instance} if instance else others),
        )


# Name of each rule by its code, as `bedplate check` prints them.
PLAN_RULES: Mapping[str, str] = MappingProxyType(
    {
        "E230": "supernet-exhausted",
        "E231": "renumbers-block",
        "E232": "touches-recorded-block",
        "E233": "outside-supernet",
        "E234": "subnets-do-not-fit",
        "E235": "zone-slots-exhausted",
        "E236": "tunnels-exhausted",
        "E517": "ids-exhausted",
        "E518": "name-recorded",
    }
)


@dataclass(frozen=True, slots=True)
class PlanFault:
    """One refusal; `key` is the dotted path in the fleet file (`regions.us-west-2.block`)."""

    code: str
    key: str
    message: str
    fix: str


class PlanFaults(InputError):
    """A fleet file that its lock or its supernet does not allow; nothing was allotted."""

    def __init__(self, faults: Iterable[PlanFault]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        first, more = self.faults[0], len(self.faults) - 1
        also = f" (and {more} more)" if more else ""
        super().__init__(f"{first.code} {first.message}{also}", where=first.key, fix=first.fix)
