"""Network ACLs: rules in the order of their numbers, the first that fits decides; answers are judged like questions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.reach.packet import Packet, Prefix, prefix
from bedplate.reach.resource import Resources

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
