"""Rules of security groups in the older form: one block of sources, ingress or egress by its type."""

import zlib
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import SECURITY_GROUP, require
from bedplate.rehearsal.kinds.limits import Choice, beyond, together
from bedplate.rehearsal.kinds.security_rules import (
    SOURCES,
    authorize,
    permission,
    protocol_name,
    rule_faults,
    rule_ids,
)
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_BLOCKS = ("cidrBlocks", "ipv6CidrBlocks", "prefixListIds")
_LIMITS = {"type": Choice(("ingress", "egress"))}


def _create(aws: Aws, inputs: Props) -> str:
    group, side = inputs["securityGroupId"], inputs["type"]
    require(aws, SECURITY_GROUP, group)
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


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    changed = [permission(_block(new), new["securityGroupId"])]
    operation = f"update_security_group_rule_descriptions_{new['type']}"
    aws.call("ec2", operation, GroupId=new["securityGroupId"], IpPermissions=changed)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    rules = _rules(aws, ident, inputs)
    # One rule of EC2 has one source: with more of them the provider tells no id.
    return {
        "protocol": protocol_name(inputs["protocol"]),
        "securityGroupRuleId": rules[0] if len(rules) == 1 else "",
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    revoked = _rules(aws, ident, outputs)
    operation = f"revoke_security_group_{outputs['type']}"
    aws.call("ec2", operation, GroupId=outputs["securityGroupId"], SecurityGroupRuleIds=revoked)
    aws.fakes("ruleIds").pop(ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
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
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    delete_first=True,
)
