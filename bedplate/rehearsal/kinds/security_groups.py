"""Rules of a security group as blocks of five kinds of sources: checked, and made exactly those of a group."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import (
    PREFIX_LIST,
    VPC,
    block_complaints,
    current_id,
    described,
    drop_id,
    interfaces_of,
    keep_id,
    require,
    retag,
    tag,
)
from bedplate.rehearsal.kinds.ec2 import SECURITY_GROUP as EC2_SECURITY_GROUP
from bedplate.rehearsal.kinds.ec2 import SECURITY_GROUP as NOUN
from bedplate.rehearsal.kinds.ec2 import SECURITY_GROUP_RULE as EC2_SECURITY_GROUP_RULE
from bedplate.rehearsal.kinds.limits import Choice, Text, beyond, chosen_name, together, undoing
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import UNKNOWN, holds_unknown, is_known

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


_SIDES = ("ingress", "egress")
_NAME = Text(1, 255, rf"(?!sg-){DESCRIPTION.pattern}", f"{DESCRIPTION.plain}, and not begin with sg-")
_LIMITS = {"description": DESCRIPTION, "name": _NAME}


def _create(aws: Aws, inputs: Props) -> str:
    vpc = inputs.get("vpcId") or _default_vpc(aws)
    described(aws, VPC, vpc)
    told = {"GroupName": chosen_name(inputs), "Description": inputs["description"]}
    ident: str = aws.call("ec2", "create_security_group", VpcId=vpc, **told)["GroupId"]
    with undoing(lambda: aws.call("ec2", "delete_security_group", GroupId=ident)):
        # AWS lets a new group out to everywhere; the provider takes that away, so that it is never used unseen.
        _update(aws, ident, {}, {"ingress": [], "egress": [], **inputs})
    return ident


def _default_vpc(aws: Aws) -> str:
    ours = [{"Name": "is-default", "Values": ["true"]}]
    found = aws.call("ec2", "describe_vpcs", Filters=ours)["Vpcs"]
    if not found:
        raise Refusal("VPCIdNotSpecified", "No default VPC for this user", key="vpcId")
    return str(found[0]["VpcId"])


def _adopt(aws: Aws, inputs: Props) -> str:
    """Take over a VPC's first group, with the rules that are named and no others."""
    vpc = inputs.get("vpcId") or _default_vpc(aws)
    described(aws, VPC, vpc)
    ours = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    ident: str = aws.call("ec2", "describe_security_groups", Filters=ours)["SecurityGroups"][0]["GroupId"]
    _update(aws, ident, {}, {"ingress": [], "egress": [], **inputs})
    return ident


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for side in _SIDES:
        # Rules left out are others' business; an empty list means none.
        if new.get(side) is not None and old.get(side) != new[side]:
            bring_rules(aws, ident, side, new[side])
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    return {
        "arn": aws.arn("ec2", f"security-group/{ident}"),
        "description": found["Description"],
        "name": found["GroupName"],
        "ownerId": aws.account,
        "vpcId": found["VpcId"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    for side in _SIDES if outputs.get("revokeRulesOnDelete") else ():
        bring_rules(aws, ident, side, [])
    if _is_used(aws, ident):
        raise Refusal("DependencyViolation", f"resource {ident} has a dependent object")
    aws.call("ec2", "delete_security_group", GroupId=ident)


def _is_used(aws: Aws, ident: str) -> bool:
    """Whether an interface is in the group or another group's rules name it; moto would delete it all the same."""
    if interfaces_of(aws, "group-id", ident):
        return True
    named = [
        aws.call(
            "ec2",
            "describe_security_groups",
            Filters=[{"Name": f"{side}ip-permission.group-id", "Values": [ident]}],
        )
        for side in ("", "egress.")
    ]
    return any(group["GroupId"] != ident for found in named for group in found["SecurityGroups"])


def _leave(aws: Aws, ident: str, outputs: Props) -> None:
    """Leave the group as it is: it goes with its VPC."""


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from together(inputs, "name", "namePrefix")
    for side in _SIDES:
        rules = inputs.get(side)
        for number, rule in enumerate(rules if isinstance(rules, list) else []):
            faults = rule_faults(rule) if rule is not UNKNOWN else ()
            yield from (Complaint(f"{side}[{number}]", fault) for fault in faults if fault)


SECURITY_GROUP = Kind(
    token="aws:ec2/securityGroup:SecurityGroup",
    inputs=updates(*_SIDES, "revokeRulesOnDelete", "tags") | replaces("description", "name", "namePrefix", "vpcId"),
    defaults={"description": "Managed by Pulumi", "revokeRulesOnDelete": False},
    computed=frozenset({*_SIDES, "name", "namePrefix", "vpcId"}),
    sets=frozenset(_SIDES),
    naming=Naming(),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
DEFAULT_SECURITY_GROUP = Kind(
    token="aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
    inputs=updates(*_SIDES, "revokeRulesOnDelete", "tags") | replaces("vpcId"),
    defaults={"revokeRulesOnDelete": False},
    computed=frozenset({*_SIDES, "vpcId"}),
    sets=frozenset(_SIDES),
    create=_adopt,
    read=_read,
    update=_update,
    delete=_leave,
    complaints=_complaints,
)


_BLOCKS = ("cidrBlocks", "ipv6CidrBlocks", "prefixListIds")
_SECURITY_GROUP_RULE_LIMITS = {"type": Choice(("ingress", "egress"))}


def _security_group_rule_create(aws: Aws, inputs: Props) -> str:
    group, side = inputs["securityGroupId"], inputs["type"]
    require(aws, EC2_SECURITY_GROUP, group)
    before = set(rule_ids(aws, group, side))
    authorize(aws, group, side, [permission(_block(inputs), group)])
    ident = f"sgrule-{zlib.crc32(repr(_identity(inputs)).encode())}"
    aws.fakes("ruleIds")[ident] = {"rules": sorted(set(rule_ids(aws, group, side)) - before)}
    return ident


def _block(inputs: Props) -> dict[str, Any]:
    """Return the inputs as a rule block of a group."""
    source = inputs.get("sourceSecurityGroupId")
    return {**inputs, "securityGroups": [source] if source else []}


def _identity(inputs: Props) -> list[object]:
    names = ("securityGroupId", "type", "protocol", "fromPort", "toPort", "self", "sourceSecurityGroupId")
    return [inputs.get(name) for name in names] + [sorted(inputs.get(name) or []) for name in _BLOCKS]


def _rules(aws: Aws, ident: str, outputs: Props) -> list[str]:
    """Return the ids of the EC2 rules, one a source, that stand for this one."""
    made: list[str] = aws.fakes("ruleIds").get(ident, {}).get("rules", [])
    present = set(rule_ids(aws, outputs["securityGroupId"], outputs["type"]))
    if not made or not present.issuperset(made):
        raise Refusal("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
    return made


def _security_group_rule_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    changed = [permission(_block(new), new["securityGroupId"])]
    operation = f"update_security_group_rule_descriptions_{new['type']}"
    aws.call("ec2", operation, GroupId=new["securityGroupId"], IpPermissions=changed)


def _security_group_rule_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    rules = _rules(aws, ident, inputs)
    # One rule of EC2 has one source: with more of them the provider tells no id.
    return {
        "protocol": protocol_name(inputs["protocol"]),
        "securityGroupRuleId": rules[0] if len(rules) == 1 else "",
    }


def _security_group_rule_delete(aws: Aws, ident: str, outputs: Props) -> None:
    revoked = _rules(aws, ident, outputs)
    operation = f"revoke_security_group_{outputs['type']}"
    aws.call("ec2", operation, GroupId=outputs["securityGroupId"], SecurityGroupRuleIds=revoked)
    aws.fakes("ruleIds").pop(ident)


def _security_group_rule_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _SECURITY_GROUP_RULE_LIMITS)
    given = {name: value for name, value in inputs.items() if value}
    for other in ("cidrBlocks", "ipv6CidrBlocks", "self"):
        yield from together(given, "sourceSecurityGroupId", other)
    for block in ("cidrBlocks", "ipv6CidrBlocks"):
        yield from together(given, "self", block)
    if not any(inputs.get(name) for name in (*_BLOCKS, "self", "sourceSecurityGroupId")):
        yield Complaint("cidrBlocks", f"give one of {', '.join(SOURCES[:3])}, self, sourceSecurityGroupId")
        return
    yield from (Complaint("protocol", fault) for fault in rule_faults(_block(inputs)) if fault)


SECURITY_GROUP_RULE = Kind(
    token="aws:ec2/securityGroupRule:SecurityGroupRule",
    inputs=updates("description")
    | replaces(*_BLOCKS, "fromPort", "protocol", "securityGroupId", "self", "sourceSecurityGroupId", "toPort", "type"),
    defaults={"self": False},
    computed=frozenset({"sourceSecurityGroupId"}),
    create=_security_group_rule_create,
    read=_security_group_rule_read,
    update=_security_group_rule_update,
    delete=_security_group_rule_delete,
    complaints=_security_group_rule_complaints,
    delete_first=True,
)


# Name of the source here, and in the rule blocks of a group.
_SOURCES = {
    "cidrIpv4": "cidrBlocks",
    "cidrIpv6": "ipv6CidrBlocks",
    "prefixListId": "prefixListIds",
    "referencedSecurityGroupId": "securityGroups",
}


def _vpc_security_group_rule_create(side: str, aws: Aws, inputs: Props) -> str:
    require(aws, EC2_SECURITY_GROUP, inputs["securityGroupId"])
    return tag(aws, _authorize(aws, side, inputs), inputs)


def _refuse_strange_group(aws: Aws, inputs: Props) -> None:
    """Refuse a group of another VPC, unless a peering ties the two."""
    other = inputs.get("referencedSecurityGroupId")
    if not other:
        return
    ends = {described(aws, EC2_SECURITY_GROUP, each)["VpcId"] for each in (inputs["securityGroupId"], other)}
    if len(ends) > 1 and not any(ends == pair for pair in _peered(aws)):
        raise Refusal("InvalidGroup.NotFound", "You have specified two resources that belong to different networks.")


def _peered(aws: Aws) -> Iterator[set[str]]:
    for each in aws.call("ec2", "describe_vpc_peering_connections")["VpcPeeringConnections"]:
        if each["Status"]["Code"] == "active":
            yield {each["RequesterVpcInfo"]["VpcId"], each["AccepterVpcInfo"]["VpcId"]}


def _authorize(aws: Aws, side: str, inputs: Props) -> str:
    _refuse_strange_group(aws, inputs)
    group = inputs["securityGroupId"]
    (rule,) = authorize(aws, group, side, [permission(_vpc_security_group_rule_block(inputs), group)])
    return str(rule["SecurityGroupRuleId"])


def _vpc_security_group_rule_block(inputs: Props) -> dict[str, Any]:
    sources = {block: [inputs[name]] for name, block in _SOURCES.items() if inputs.get(name)}
    ports = {name: inputs.get(name, -1) for name in ("fromPort", "toPort")}
    return {"protocol": inputs["ipProtocol"], "description": inputs.get("description"), **ports, **sources}


def _vpc_security_group_rule_update(side: str, aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Change a rule; moto's own call for it knows IPv4 blocks alone, so that a new rule takes the old one's id."""
    present = current_id(aws, ident)
    if _vpc_security_group_rule_block(old) == _vpc_security_group_rule_block(new):
        retag(aws, present, old, new)
        return
    _revoke(aws, side, old["securityGroupId"], present)
    try:
        keep_id(aws, ident, tag(aws, _authorize(aws, side, new), new))
    except Refusal:
        keep_id(aws, ident, tag(aws, _authorize(aws, side, old), old))
        raise


def _revoke(aws: Aws, side: str, group: str, rule: str) -> None:
    aws.call("ec2", f"revoke_security_group_{side}", GroupId=group, SecurityGroupRuleIds=[rule])


def _vpc_security_group_rule_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    described(aws, EC2_SECURITY_GROUP_RULE, current_id(aws, ident))
    return {"arn": aws.arn("ec2", f"security-group-rule/{ident}"), "securityGroupRuleId": ident}


def _vpc_security_group_rule_delete(side: str, aws: Aws, ident: str, outputs: Props) -> None:
    _revoke(aws, side, outputs["securityGroupId"], current_id(aws, ident))
    drop_id(aws, ident)


def _vpc_security_group_rule_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    if sum(bool(inputs.get(name)) for name in _SOURCES) != 1:
        yield Complaint("cidrIpv4", f"give exactly one of {', '.join(_SOURCES)}")
    yield from block_complaints(inputs, ["cidrIpv4"])
    yield from block_complaints(inputs, ["cidrIpv6"], version=6)
    if is_known(inputs.get("description")) and (reason := DESCRIPTION.complaint(inputs["description"])):
        yield Complaint("description", reason)
    if is_known(protocol := inputs.get("ipProtocol")):
        yield from (Complaint("ipProtocol", fault) for fault in port_faults(inputs, protocol) if fault)
        ports = {inputs.get("fromPort"), inputs.get("toPort")}
        if protocol_name(protocol) == "-1" and not ports <= {None, -1, UNKNOWN}:
            yield Complaint("fromPort", "fromPort and toPort are not for the protocol -1")


def _rule(side: str, token: str) -> Kind:
    """Return the row of one side's rules."""
    return Kind(
        token=token,
        inputs=updates(*_SOURCES, "description", "fromPort", "ipProtocol", "tags", "toPort")
        | replaces("securityGroupId"),
        create=partial(_vpc_security_group_rule_create, side),
        read=_vpc_security_group_rule_read,
        update=partial(_vpc_security_group_rule_update, side),
        delete=partial(_vpc_security_group_rule_delete, side),
        complaints=_vpc_security_group_rule_complaints,
    )


VPC_INGRESS_RULE = _rule("ingress", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
VPC_EGRESS_RULE = _rule("egress", "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
