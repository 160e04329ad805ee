"""What fleet.lock remembers: every block and address that was ever allotted, and the image of each region."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType

NO_ADDRESSES: Mapping[str, IPv4Address] = MappingProxyType({})
NO_IMAGES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Record:
    """What was decided for good, for today's file and for earlier ones.

    `blocks` by path (`region/us-west-2/zone/us-west-2a/edge`), fixed `addresses` by machine (`control-1.us-west-2`),
    `images` by region and architecture (`us-west-2/x86_64`).
    """

    blocks: Mapping[str, IPv4Network]
    addresses: Mapping[str, IPv4Address] = field(default_factory=lambda: NO_ADDRESSES)
    images: Mapping[str, str] = field(default_factory=lambda: NO_IMAGES)

    def without(self, paths: Container[str]) -> "Record":
        """Return the record without the blocks of these paths and without the addresses that lie in them."""
        gone = [block for path, block in self.blocks.items() if path in paths]
        blocks = {path: block for path, block in self.blocks.items() if path not in paths}
        addresses = {name: one for name, one in self.addresses.items() if not any(one in block for block in gone)}
        return replace(self, blocks=MappingProxyType(blocks), addresses=MappingProxyType(addresses))

    def with_images(self, images: Mapping[str, str]) -> "Record":
        """Return the record with these images beside those it holds; one of the same place gives way."""
        return replace(self, images=MappingProxyType({**self.images, **images}))
