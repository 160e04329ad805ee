"""Packets, address blocks, resources of a graph by type, network ACLs and security groups.

Addresses are integers here: a trace compares thousands of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from typing import Any

EPHEMERAL = 50_000  # a client's port: above 49152 (RFC 6335)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A block of addresses, from its first to its last."""

    first: int
    last: int
    length: int

    def holds(self, address: int) -> bool:
        """Return whether the block contains an address."""
        return self.first <= address <= self.last

    def __str__(self) -> str:
        return f"{IPv4Address(self.first)}/{self.length}"


@lru_cache(maxsize=4096)
def prefix(text: str) -> Prefix:
    """Return the block of a text such as 10.0.0.0/8, with host bits cleared as AWS does."""
    block = IPv4Network(text, strict=False)
    return Prefix(int(block.network_address), int(block.broadcast_address), block.prefixlen)


PRIVATE = tuple(map(prefix, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")))


def is_private(address: int) -> bool:
    """Return whether an address is private."""
    return any(block.holds(address) for block in PRIVATE)


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet; `protocol` is tcp, udp or icmp. `answers` means that it belongs to an established connection."""

    source: int
    target: int
    protocol: str = "tcp"
    port: int = 22
    from_port: int = EPHEMERAL
    answers: bool = False

    @property
    def reply(self) -> "Packet":
        """The reply to the packet."""
        return Packet(self.target, self.source, self.protocol, self.from_port, self.port, answers=True)

    def __str__(self) -> str:
        flow = self.protocol if self.protocol == "icmp" else f"{self.protocol}/{self.port}"
        return f"{IPv4Address(self.source)} to {IPv4Address(self.target)} {flow}"


Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource; `values` are its inputs, overridden by its outputs."""

    type: str
    name: str
    id: str
    values: Values
    region: str = ""
    urn: str = ""
    after: tuple[str, ...] = ()
    """The URNs of its dependencies."""

    @property
    def label(self) -> str:
        """The name and the region: names are unique only within a region."""
        return f"{self.name} ({self.region})" if self.region else self.name

    def text(self, key: str) -> str:
        """Return a string, empty if the value is none."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings of a list."""
        return tuple(item for item in self._list(key) if isinstance(item, str))

    def blocks(self, key: str) -> tuple[Values, ...]:
        """Return the nested blocks of a list."""
        return tuple(item for item in self._list(key) if isinstance(item, Mapping))

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return a boolean, also if it is written as a string."""
        value = self.values.get(key)
        return default if value is None else str(value).lower() == "true"

    def _list(self, key: str) -> list[Any]:
        value = self.values.get(key)
        return value if isinstance(value, list) else [value]


class Resources:
    """All resources of a graph by type."""

    def __init__(self, graph: Iterable[Values]) -> None:
        self._by_type: defaultdict[str, list[Resource]] = defaultdict(list)
        nodes = [node for node in graph if node.get("custom", True)]
        regions = {str(node.get("urn")): (node.get("inputs") or {}).get("region", "") for node in nodes}
        for node in nodes:
            values = {**(node.get("inputs") or {}), **(node.get("outputs") or {})}
            # The value is URN::id.
            provider = str(node.get("provider") or "").rpartition("::")[0]
            region = str(values.get("region") or regions.get(provider, ""))
            resource = Resource(
                str(node["type"]),
                str(node.get("name") or str(node.get("urn")).rpartition("::")[2]),
                str(node.get("id") or ""),
                values,
                region,
                str(node.get("urn") or ""),
                tuple(str(urn) for urn in node.get("dependencies") or ()),
            )
            self._by_type[resource.type].append(resource)

    def of(self, *types: str) -> Iterator[Resource]:
        """Yield the resources of some types, such as `ec2/vpc:Vpc`."""
        for name in types:
            yield from self._by_type.get(f"aws:{name}", ())


_NUMBERS = {"1": "icmp", "6": "tcp", "17": "udp"}
_ALL = ("-1", "all")


@dataclass(frozen=True, slots=True)
class AclRule:
    """One numbered rule."""

    number: int
    allows: bool
    protocol: str
    ports: range
    block: Prefix

    def fits(self, packet: Packet, other: int) -> bool:
        """Return whether the rule matches a packet; `other` is the remote address."""
        if not self.block.holds(other):
            return False
        return self.protocol in _ALL or (
            self.protocol == packet.protocol and (packet.protocol == "icmp" or packet.port in self.ports)
        )


@dataclass(frozen=True, slots=True)
class Acl:
    """A network ACL: its inbound and outbound rules."""

    name: str
    ins: tuple[AclRule, ...]
    outs: tuple[AclRule, ...]

    def admits(self, packet: Packet) -> bool:
        """Return whether the packet may enter the subnet."""
        return _allowed(self.ins, packet, packet.source)

    def releases(self, packet: Packet) -> bool:
        """Return whether the packet may leave the subnet."""
        return _allowed(self.outs, packet, packet.target)


def acls(resources: Resources) -> dict[str, Acl]:
    """Return the network ACLs by subnet. Other subnets have AWS's default ACL, which allows everything."""
    acls_by_subnet = {}
    for resource in resources.of("ec2/networkAcl:NetworkAcl", "ec2/defaultNetworkAcl:DefaultNetworkAcl"):
        acl = Acl(resource.name, _rules(resource.blocks("ingress")), _rules(resource.blocks("egress")))
        acls_by_subnet.update(dict.fromkeys(resource.texts("subnetIds"), acl))
    return acls_by_subnet


def _allowed(rules: tuple[AclRule, ...], packet: Packet, other: int) -> bool:
    return next((rule.allows for rule in rules if rule.fits(packet, other)), False)


def _rules(blocks: Iterable[Mapping[str, Any]]) -> tuple[AclRule, ...]:
    rules = (_rule(values) for values in blocks if values.get("cidrBlock"))
    return tuple(sorted(rules, key=lambda rule: rule.number))


def _rule(values: Mapping[str, Any]) -> AclRule:
    protocol = str(values.get("protocol", "-1"))
    return AclRule(
        number=int(values.get("ruleNo") or 0),
        allows=values.get("action") == "allow",
        protocol=_NUMBERS.get(protocol, protocol),
        ports=range(int(values.get("fromPort") or 0), int(values.get("toPort") or 65535) + 1),
        block=prefix(str(values["cidrBlock"])),
    )


_ALL_PROTOCOLS = "-1"


@dataclass(frozen=True, slots=True)
class Rule:
    """A security group rule: a protocol, ports, and the blocks and groups at the other end."""

    protocol: str
    ports: range
    blocks: tuple[Prefix, ...]
    groups: frozenset[str]

    def passes(self, packet: Packet, other: int, groups: frozenset[str]) -> bool:
        """Return whether the rule allows a packet; `other` is the remote address, `groups` its groups in this VPC."""
        if self.protocol != _ALL_PROTOCOLS and (self.protocol != packet.protocol or not self._opens(packet)):
            return False
        return bool(self.groups & groups) or any(block.holds(other) for block in self.blocks)

    def _opens(self, packet: Packet) -> bool:
        return packet.protocol == "icmp" or packet.port in self.ports


@dataclass(frozen=True, slots=True)
class SecurityGroup:
    """A security group: its inbound and outbound rules."""

    ident: str
    name: str
    ins: tuple[Rule, ...]
    outs: tuple[Rule, ...]


def security_groups(resources: Resources) -> dict[str, SecurityGroup]:
    """Return the security groups by id, with their inline rules and rules that are separate resources."""
    lists = _prefix_lists(resources)
    ins, outs = _lone(resources, lists)
    groups = {}
    for resource in resources.of("ec2/securityGroup:SecurityGroup", "ec2/defaultSecurityGroup:DefaultSecurityGroup"):
        into = (*_inline(resource, "ingress", lists), *ins[resource.id])
        out = (*_inline(resource, "egress", lists), *outs[resource.id])
        groups[resource.id] = SecurityGroup(resource.id, resource.label, into, out)
    return groups


Lists = Mapping[str, tuple[str, ...]]


def _prefix_lists(resources: Resources) -> Lists:
    blocks_by_list = {
        resource.id: [str(entry.get("cidr") or "") for entry in resource.blocks("entries")]
        for resource in resources.of("ec2/managedPrefixList:ManagedPrefixList")
    }
    for resource in resources.of("ec2/managedPrefixListEntry:ManagedPrefixListEntry"):
        blocks_by_list.setdefault(resource.text("prefixListId"), []).append(resource.text("cidr"))
    return {ident: tuple(block for block in blocks if ":" not in block) for ident, blocks in blocks_by_list.items()}


def _lone(resources: Resources, lists: Lists) -> tuple[defaultdict[str, list[Rule]], defaultdict[str, list[Rule]]]:
    ins: defaultdict[str, list[Rule]] = defaultdict(list)
    outs: defaultdict[str, list[Rule]] = defaultdict(list)
    for resource in resources.of("vpc/securityGroupIngressRule:SecurityGroupIngressRule"):
        ins[resource.text("securityGroupId")].append(_single(resource, lists))
    for resource in resources.of("vpc/securityGroupEgressRule:SecurityGroupEgressRule"):
        outs[resource.text("securityGroupId")].append(_single(resource, lists))
    for resource in resources.of("ec2/securityGroupRule:SecurityGroupRule"):
        side = ins if resource.text("type") == "ingress" else outs
        side[resource.text("securityGroupId")].append(
            _several(resource.values, resource.text("securityGroupId"), lists)
        )
    return ins, outs


def _single(resource: Resource, lists: Lists) -> Rule:
    blocks = (resource.text("cidrIpv4"), *lists.get(resource.text("prefixListId"), ()))
    return _group_rule(
        resource.text("ipProtocol"), resource.values, blocks, (resource.text("referencedSecurityGroupId"),)
    )


def _inline(resource: Resource, key: str, lists: Lists) -> Iterator[Rule]:
    for values in resource.blocks(key):
        yield _several(values, resource.id, lists)


def _several(values: Mapping[str, Any], own: str, lists: Lists) -> Rule:
    named = (block for ident in values.get("prefixListIds") or () for block in lists.get(ident, ()))
    groups = [*(values.get("securityGroups") or ()), values.get("sourceSecurityGroupId") or ""]
    if str(values.get("self")).lower() == "true":
        groups.append(own)
    return _group_rule(str(values.get("protocol")), values, (*(values.get("cidrBlocks") or ()), *named), groups)


def _group_rule(protocol: str, values: Mapping[str, Any], blocks: Iterable[str], groups: Iterable[str]) -> Rule:
    first, last = values.get("fromPort"), values.get("toPort")
    ports = range(int(0 if first is None else first), int(65535 if last is None else last) + 1)
    protocol = _ALL_PROTOCOLS if protocol in ("all", _ALL_PROTOCOLS) else _NUMBERS.get(protocol, protocol)
    return Rule(protocol, ports, tuple(map(prefix, filter(None, blocks))), frozenset(filter(None, groups)))
