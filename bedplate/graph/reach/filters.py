"""Packets and blocks of addresses, as whole numbers: a walk compares them by the thousand."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from typing import Any

EPHEMERAL = 50_000  # the port that a client asks from: above 49152 (RFC 6335)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A block of addresses, from its first to its last."""

    first: int
    last: int
    length: int

    def holds(self, address: int) -> bool:
        """Tell whether an address lies in the block."""
        return self.first <= address <= self.last

    def __str__(self) -> str:
        return f"{IPv4Address(self.first)}/{self.length}"


@lru_cache(maxsize=4096)
def prefix(text: str) -> Prefix:
    """Return the block that a text such as 10.0.0.0/8 names; bits below the prefix count as zeros, as AWS has it."""
    block = IPv4Network(text, strict=False)
    return Prefix(int(block.network_address), int(block.broadcast_address), block.prefixlen)


PRIVATE = tuple(map(prefix, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")))


def is_private(address: int) -> bool:
    """Tell whether the internet has no way to an address."""
    return any(block.holds(address) for block in PRIVATE)


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet; `protocol` is tcp, udp or icmp, and `answers` tells that its connection was let in before."""

    source: int
    target: int
    protocol: str = "tcp"
    port: int = 22
    from_port: int = EPHEMERAL
    answers: bool = False

    @property
    def reply(self) -> "Packet":
        """The packet that answers it."""
        return Packet(self.target, self.source, self.protocol, self.from_port, self.port, answers=True)

    def __str__(self) -> str:
        flow = self.protocol if self.protocol == "icmp" else f"{self.protocol}/{self.port}"
        return f"{IPv4Address(self.source)} to {IPv4Address(self.target)} {flow}"


Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that exists; what it is asked for comes from its outputs, else from its inputs."""

    type: str
    name: str
    id: str
    values: Values
    region: str = ""
    urn: str = ""
    after: tuple[str, ...] = ()
    """The URNs of what it depends on."""

    @property
    def label(self) -> str:
        """Its name and its region: every region may have one of that name."""
        return f"{self.name} ({self.region})" if self.region else self.name

    def text(self, key: str) -> str:
        """Return a value that is a text, or nothing."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the texts of a list."""
        return tuple(each for each in self._list(key) if isinstance(each, str))

    def blocks(self, key: str) -> tuple[Values, ...]:
        """Return the nested blocks of a list."""
        return tuple(each for each in self._list(key) if isinstance(each, Mapping))

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return a value that is true or false, however it is written."""
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
            # A provider is named by its URN and its id.
            provider = str(node.get("provider") or "").rpartition("::")[0]
            region = str(values.get("region") or regions.get(provider, ""))
            found = Resource(
                str(node["type"]),
                str(node.get("name") or str(node.get("urn")).rpartition("::")[2]),
                str(node.get("id") or ""),
                values,
                region,
                str(node.get("urn") or ""),
                tuple(str(urn) for urn in node.get("dependencies") or ()),
            )
            self._by_type[found.type].append(found)

    def of(self, *types: str) -> Iterator[Resource]:
        """Yield the resources of some types, such as `ec2/vpc:Vpc`."""
        for each in types:
            yield from self._by_type.get(f"aws:{each}", ())


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
        """Tell whether the rule speaks of a packet; `other` is the far end."""
        if not self.block.holds(other):
            return False
        return self.protocol in _ALL or (
            self.protocol == packet.protocol and (packet.protocol == "icmp" or packet.port in self.ports)
        )


@dataclass(frozen=True, slots=True)
class Acl:
    """What passes into a subnet, and what out of it."""

    name: str
    ins: tuple[AclRule, ...]
    outs: tuple[AclRule, ...]

    def admits(self, packet: Packet) -> bool:
        """Tell whether a packet may enter."""
        return _allowed(self.ins, packet, packet.source)

    def releases(self, packet: Packet) -> bool:
        """Tell whether a packet may leave."""
        return _allowed(self.outs, packet, packet.target)


def acls(resources: Resources) -> dict[str, Acl]:
    """Return the ACL of each subnet that a graph gives one; the others have AWS's own, which lets all pass."""
    found = {}
    for each in resources.of("ec2/networkAcl:NetworkAcl", "ec2/defaultNetworkAcl:DefaultNetworkAcl"):
        acl = Acl(each.name, _rules(each.blocks("ingress")), _rules(each.blocks("egress")))
        found.update(dict.fromkeys(each.texts("subnetIds"), acl))
    return found


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


_DOOR_ALL = "-1"


@dataclass(frozen=True, slots=True)
class Rule:
    """Connections that a group lets pass: of a protocol, to some ports, with some blocks or members of some groups."""

    protocol: str
    ports: range
    blocks: tuple[Prefix, ...]
    groups: frozenset[str]

    def passes(self, packet: Packet, other: int, groups: frozenset[str]) -> bool:
        """Tell whether a packet passes; `other` is the far end, `groups` what it bears if it stands in this VPC."""
        if self.protocol != _DOOR_ALL and (self.protocol != packet.protocol or not self._opens(packet)):
            return False
        return bool(self.groups & groups) or any(block.holds(other) for block in self.blocks)

    def _opens(self, packet: Packet) -> bool:
        return packet.protocol == "icmp" or packet.port in self.ports


@dataclass(frozen=True, slots=True)
class Door:
    """One security group."""

    ident: str
    name: str
    ins: tuple[Rule, ...]
    outs: tuple[Rule, ...]


def doors(resources: Resources) -> dict[str, Door]:
    """Return the security groups of a graph by id, with rules of their own and rules that name them."""
    lists = _prefix_lists(resources)
    ins, outs = _lone(resources, lists)
    found = {}
    for each in resources.of("ec2/securityGroup:SecurityGroup", "ec2/defaultSecurityGroup:DefaultSecurityGroup"):
        into = (*_inline(each, "ingress", lists), *ins[each.id])
        out = (*_inline(each, "egress", lists), *outs[each.id])
        found[each.id] = Door(each.id, each.label, into, out)
    return found


Lists = Mapping[str, tuple[str, ...]]


def _prefix_lists(resources: Resources) -> Lists:
    found = {
        each.id: [str(entry.get("cidr") or "") for entry in each.blocks("entries")]
        for each in resources.of("ec2/managedPrefixList:ManagedPrefixList")
    }
    for each in resources.of("ec2/managedPrefixListEntry:ManagedPrefixListEntry"):
        found.setdefault(each.text("prefixListId"), []).append(each.text("cidr"))
    return {ident: tuple(block for block in blocks if ":" not in block) for ident, blocks in found.items()}


def _lone(resources: Resources, lists: Lists) -> tuple[defaultdict[str, list[Rule]], defaultdict[str, list[Rule]]]:
    ins: defaultdict[str, list[Rule]] = defaultdict(list)
    outs: defaultdict[str, list[Rule]] = defaultdict(list)
    for each in resources.of("vpc/securityGroupIngressRule:SecurityGroupIngressRule"):
        ins[each.text("securityGroupId")].append(_single(each, lists))
    for each in resources.of("vpc/securityGroupEgressRule:SecurityGroupEgressRule"):
        outs[each.text("securityGroupId")].append(_single(each, lists))
    for each in resources.of("ec2/securityGroupRule:SecurityGroupRule"):
        side = ins if each.text("type") == "ingress" else outs
        side[each.text("securityGroupId")].append(_several(each.values, each.text("securityGroupId"), lists))
    return ins, outs


def _single(each: Resource, lists: Lists) -> Rule:
    blocks = (each.text("cidrIpv4"), *lists.get(each.text("prefixListId"), ()))
    return _door_rule(each.text("ipProtocol"), each.values, blocks, (each.text("referencedSecurityGroupId"),))


def _inline(each: Resource, key: str, lists: Lists) -> Iterator[Rule]:
    for values in each.blocks(key):
        yield _several(values, each.id, lists)


def _several(values: Mapping[str, Any], own: str, lists: Lists) -> Rule:
    named = (block for ident in values.get("prefixListIds") or () for block in lists.get(ident, ()))
    groups = [*(values.get("securityGroups") or ()), values.get("sourceSecurityGroupId") or ""]
    if str(values.get("self")).lower() == "true":
        groups.append(own)
    return _door_rule(str(values.get("protocol")), values, (*(values.get("cidrBlocks") or ()), *named), groups)


def _door_rule(protocol: str, values: Mapping[str, Any], blocks: Iterable[str], groups: Iterable[str]) -> Rule:
    first, last = values.get("fromPort"), values.get("toPort")
    ports = range(int(0 if first is None else first), int(65535 if last is None else last) + 1)
    protocol = _DOOR_ALL if protocol in ("all", _DOOR_ALL) else _NUMBERS.get(protocol, protocol)
    return Rule(protocol, ports, tuple(map(prefix, filter(None, blocks))), frozenset(filter(None, groups)))
