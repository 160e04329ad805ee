"""Rules of a security group as blocks of five kinds of sources: checked, and made exactly those of a group."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import PREFIX_LIST, require
from bedplate.rehearsal.kinds.limits import Text
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import holds_unknown, is_known

SOURCES = ("cidrBlocks", "ipv6CidrBlocks", "prefixListIds", "securityGroups", "self")
# EC2 API reference, IpRange: what the description of a rule, and of a group, may hold.
_SIGNS = r"[A-Za-z0-9 ._\-:/()#,@\[\]+=&;{}!$*]*"
DESCRIPTION = Text(1, 255, _SIGNS, "letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*")
_NAMED = {"all": "-1", "tcp": "tcp", "udp": "udp", "icmp": "icmp", "icmpv6": "icmpv6"}
_NUMBERED = {"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6"}
_LAST_PORT = 65535


def protocol_name(given: object) -> str:
    """Return a protocol as EC2 tells it: by name where it has one."""
    word = str(given).lower()
    return _NAMED.get(word) or _NUMBERED.get(word) or word


def permission(rule: Props, group: str) -> dict[str, Any]:
    """Return a rule block as EC2's IpPermission; `group` is what `self` means."""
    told = {"Description": rule["description"]} if rule.get("description") else {}
    groups = [*(rule.get("securityGroups") or []), *([group] if rule.get("self") else [])]
    found = {
        "IpProtocol": protocol_name(rule["protocol"]),
        "IpRanges": [{"CidrIp": block, **told} for block in rule.get("cidrBlocks") or []],
        "Ipv6Ranges": [{"CidrIpv6": block, **told} for block in rule.get("ipv6CidrBlocks") or []],
        "PrefixListIds": [{"PrefixListId": ident, **told} for ident in rule.get("prefixListIds") or []],
        "UserIdGroupPairs": [{"GroupId": ident, **told} for ident in groups],
    }
    ports = {} if found["IpProtocol"] == "-1" else {"FromPort": rule["fromPort"], "ToPort": rule["toPort"]}
    return {key: value for key, value in found.items() if value} | ports


def authorize(aws: Aws, group: str, side: str, permissions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add rules to a group on a side, `ingress` or `egress`; return EC2's description of the last one's rules."""
    for each in permissions:
        require(aws, PREFIX_LIST, *(found["PrefixListId"] for found in each.get("PrefixListIds", [])))
    if not permissions:
        return []
    made = aws.call("ec2", f"authorize_security_group_{side}", GroupId=group, IpPermissions=permissions)
    rules: list[dict[str, Any]] = made["SecurityGroupRules"]
    return rules


def bring_rules(aws: Aws, group: str, side: str, rules: Iterable[Props]) -> None:
    """Make a group's rules on a side exactly those given, whoever made the others."""
    if present := rule_ids(aws, group, side):
        aws.call("ec2", f"revoke_security_group_{side}", GroupId=group, SecurityGroupRuleIds=present)
    authorize(aws, group, side, [permission(rule, group) for rule in rules])


def rule_ids(aws: Aws, group: str, side: str) -> list[str]:
    """Return the ids of a group's rules on a side."""
    ours = [{"Name": "group-id", "Values": [group]}]
    found = aws.call("ec2", "describe_security_group_rules", Filters=ours)["SecurityGroupRules"]
    return [rule["SecurityGroupRuleId"] for rule in found if rule["IsEgress"] is (side == "egress")]


def rule_faults(rule: Props) -> Iterator[str]:
    """Yield what is wrong with a rule block."""
    if not any(rule.get(source) for source in SOURCES):
        yield f"names no source or destination: give one of {', '.join(SOURCES)}"
    for block in block_complaints(rule, ["cidrBlocks"]):
        yield block.reason
    for block in block_complaints(rule, ["ipv6CidrBlocks"], version=6):
        yield block.reason
    if is_known(told := rule.get("description")) and told:
        yield DESCRIPTION.complaint(told)
    if is_known(protocol := rule.get("protocol")):
        yield from port_faults(rule, str(protocol))


def port_faults(rule: Mapping[str, Any], protocol: str) -> Iterator[str]:
    """Yield what is wrong with the protocol and the ports of a rule."""
    name, first, last = protocol_name(protocol), rule.get("fromPort"), rule.get("toPort")
    if holds_unknown([first, last]):
        return
    if name not in (*_NAMED.values(), *map(str, range(256))):
        yield f"{protocol!r} is no protocol: give tcp, udp, icmp, icmpv6, -1 or a number"
    if name == "-1" and (first or last):
        yield f"fromPort ({first}) and toPort ({last}) must both be 0 to use the 'ALL' \"-1\" protocol!"
    if name in ("tcp", "udp"):
        yield _range_fault(first, last)


def _range_fault(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return "Must specify both from and to ports with TCP/UDP."
    fits = 0 <= first <= last <= _LAST_PORT
    return "" if fits else f"ports {first} to {last} are no range within 0 to {_LAST_PORT}"
