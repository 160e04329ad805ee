"""Security groups: who may open a connection to what bears them, and to whom it may open one itself."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.reach.packet import Packet, Prefix, prefix
from bedplate.reach.resource import Resource, Resources

_NUMBERS = {"1": "icmp", "6": "tcp", "17": "udp"}
_ALL = "-1"


@dataclass(frozen=True, slots=True)
class Rule:
    """Connections that a group lets pass: of a protocol, to some ports, with some blocks or members of some groups."""

    protocol: str
    ports: range
    blocks: tuple[Prefix, ...]
    groups: frozenset[str]

    def passes(self, packet: Packet, other: int, groups: frozenset[str]) -> bool:
        """Tell whether a packet passes; `other` is the far end, `groups` what it bears if it stands in this VPC."""
        if self.protocol != _ALL and (self.protocol != packet.protocol or not self._opens(packet)):
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
    return _rule(each.text("ipProtocol"), each.values, blocks, (each.text("referencedSecurityGroupId"),))


def _inline(each: Resource, key: str, lists: Lists) -> Iterator[Rule]:
    for values in each.blocks(key):
        yield _several(values, each.id, lists)


def _several(values: Mapping[str, Any], own: str, lists: Lists) -> Rule:
    named = (block for ident in values.get("prefixListIds") or () for block in lists.get(ident, ()))
    groups = [*(values.get("securityGroups") or ()), values.get("sourceSecurityGroupId") or ""]
    if str(values.get("self")).lower() == "true":
        groups.append(own)
    return _rule(str(values.get("protocol")), values, (*(values.get("cidrBlocks") or ()), *named), groups)


def _rule(protocol: str, values: Mapping[str, Any], blocks: Iterable[str], groups: Iterable[str]) -> Rule:
    first, last = values.get("fromPort"), values.get("toPort")
    ports = range(int(0 if first is None else first), int(65535 if last is None else last) + 1)
    protocol = _ALL if protocol in ("all", _ALL) else _NUMBERS.get(protocol, protocol)
    return Rule(protocol, ports, tuple(map(prefix, filter(None, blocks))), frozenset(filter(None, groups)))
