"""The content of fleet.lock: every block, address and id ever assigned, plus trusted facts such as host keys."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from types import MappingProxyType
from typing import Any

FORMING = "forming"
"""In place of the id of the etcd cluster: its first start has begun."""


@dataclass(frozen=True, slots=True)
class Record:
    """The permanent decisions for today's fleet file and earlier ones.

    `blocks` by path (`region/us-west-2/zone/us-west-2a/edge`), fixed `addresses` by machine (`control-1.us-west-2`),
    `images` by region and architecture (`us-west-2/x86_64`), `baked` images by region and kind
    (`us-west-2/worker-x86_64`), user ids of `people` and group ids of `groups` by name,
    public `host_keys` by machine (`ssh-ed25519 AAAA...`), the EC2 `instances` with those keys by machine, public
    addresses of laptop `gateways` by region, addresses of the `resolvers` for laptops and sites by region.
    """

    blocks: Mapping[str, IPv4Network]
    addresses: Mapping[str, IPv4Address] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    people: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    host_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    instances: Mapping[str, str] = field(default_factory=dict)
    gateways: Mapping[str, IPv4Address] = field(default_factory=dict)
    resolvers: Mapping[str, tuple[IPv4Address, ...]] = field(default_factory=dict)
    baked: Mapping[str, str] = field(default_factory=dict)
    authority: str = ""
    """The certificate of the Kubernetes cluster's authority in PEM; empty before `bedplate kube init`."""
    etcd: str = ""
    """The id of the fleet's only etcd cluster, 16 hexadecimal digits; empty, or FORMING, before it has started."""
    account_keys: tuple[str, ...] = ()
    """The public keys of the cluster's service account tokens, each as base64 of its DER; the first one signs."""

    def without(self, paths: Container[str]) -> "Record":
        """Return the record without the blocks of these paths and the addresses in them."""
        removed = [block for path, block in self.blocks.items() if path in paths]
        blocks = {path: block for path, block in self.blocks.items() if path not in paths}
        addresses = {
            name: address for name, address in self.addresses.items() if not any(address in block for block in removed)
        }
        return replace(self, blocks=MappingProxyType(blocks), addresses=MappingProxyType(addresses))

    def adding(self, **entries: Mapping[str, Any]) -> "Record":
        """Return the record with these entries in mappings, by field; they replace those of the same names."""
        fields: dict[str, Any] = {name: {**getattr(self, name), **values} for name, values in entries.items()}
        return replace(self, **fields)

    def with_host_keys(self, machine: str, keys: tuple[str, ...], instance: str | None = None) -> "Record":
        """Return the record with the public host keys of a machine, and its instance if known."""
        others = {name: recorded for name, recorded in self.instances.items() if name != machine}
        return replace(
            self,
            host_keys=MappingProxyType({**self.host_keys, machine: keys}),
            instances=MappingProxyType({**others, machine: instance} if instance else others),
        )
