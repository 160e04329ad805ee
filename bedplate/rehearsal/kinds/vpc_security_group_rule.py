"""Rules of security groups as EC2 has them now: one source each, an id and tags of their own; in and out."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import SECURITY_GROUP, SECURITY_GROUP_RULE, described, require
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.kept_ids import current_id, drop_id, keep_id
from bedplate.rehearsal.kinds.security_rules import DESCRIPTION, authorize, permission, port_faults, protocol_name
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import UNKNOWN, is_known

# Name of the source here, and in the rule blocks of a group.
_SOURCES = {
    "cidrIpv4": "cidrBlocks",
    "cidrIpv6": "ipv6CidrBlocks",
    "prefixListId": "prefixListIds",
    "referencedSecurityGroupId": "securityGroups",
}


def _create(side: str, aws: Aws, inputs: Props) -> str:
    require(aws, SECURITY_GROUP, inputs["securityGroupId"])
    return tag(aws, _authorize(aws, side, inputs), inputs)


def _refuse_strange_group(aws: Aws, inputs: Props) -> None:
    """Refuse a group of another VPC, unless a peering ties the two."""
    other = inputs.get("referencedSecurityGroupId")
    if not other:
        return
    ends = {described(aws, SECURITY_GROUP, each)["VpcId"] for each in (inputs["securityGroupId"], other)}
    if len(ends) > 1 and not any(ends == pair for pair in _peered(aws)):
        raise Refusal("InvalidGroup.NotFound", "You have specified two resources that belong to different networks.")


def _peered(aws: Aws) -> Iterator[set[str]]:
    for each in aws.call("ec2", "describe_vpc_peering_connections")["VpcPeeringConnections"]:
        if each["Status"]["Code"] == "active":
            yield {each["RequesterVpcInfo"]["VpcId"], each["AccepterVpcInfo"]["VpcId"]}


def _authorize(aws: Aws, side: str, inputs: Props) -> str:
    _refuse_strange_group(aws, inputs)
    group = inputs["securityGroupId"]
    (rule,) = authorize(aws, group, side, [permission(_block(inputs), group)])
    return str(rule["SecurityGroupRuleId"])


def _block(inputs: Props) -> dict[str, Any]:
    sources = {block: [inputs[name]] for name, block in _SOURCES.items() if inputs.get(name)}
    ports = {name: inputs.get(name, -1) for name in ("fromPort", "toPort")}
    return {"protocol": inputs["ipProtocol"], "description": inputs.get("description"), **ports, **sources}


def _update(side: str, aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Change a rule; moto's own call for it knows IPv4 blocks alone, so that a new rule takes the old one's id."""
    present = current_id(aws, ident)
    if _block(old) == _block(new):
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


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    described(aws, SECURITY_GROUP_RULE, current_id(aws, ident))
    return {"arn": aws.arn("ec2", f"security-group-rule/{ident}"), "securityGroupRuleId": ident}


def _delete(side: str, aws: Aws, ident: str, outputs: Props) -> None:
    _revoke(aws, side, outputs["securityGroupId"], current_id(aws, ident))
    drop_id(aws, ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
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
        create=partial(_create, side),
        read=_read,
        update=partial(_update, side),
        delete=partial(_delete, side),
        complaints=_complaints,
    )


VPC_INGRESS_RULE = _rule("ingress", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
VPC_EGRESS_RULE = _rule("egress", "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
