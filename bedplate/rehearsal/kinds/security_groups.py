"""Security groups and their rules.

A rule is a resource with one source (`aws:vpc`); rules as blocks inside a group are not modelled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, delete_nothing, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import existing
from bedplate.rehearsal.kinds.limits import Text, checks, rollback
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import UNKNOWN, holds_unknown, is_known

# Characters of the description of a rule or group. Source: EC2 API reference, IpRange.
_CHARACTERS = r"[A-Za-z0-9 ._\-:/()#,@\[\]+=&;{}!$*]*"
DESCRIPTION = Text(1, 255, _CHARACTERS, "letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*")
_PROTOCOLS = {"all": "-1", "tcp": "tcp", "udp": "udp", "icmp": "icmp", "icmpv6": "icmpv6"}
_PROTOCOL_NUMBERS = {"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6"}
_MAX_PORT = 65535


def protocol_name(protocol: object) -> str:
    """Return a protocol as EC2 shows it: by name if it has one."""
    name = str(protocol).lower()
    return _PROTOCOLS.get(name) or _PROTOCOL_NUMBERS.get(name) or name


def _permission(rule: Props) -> dict[str, Any]:
    """Return a rule as an IpPermission of EC2."""
    description = {"Description": rule["description"]} if rule.get("description") else {}
    if group := rule.get("referencedSecurityGroupId"):
        source = {"UserIdGroupPairs": [{"GroupId": group, **description}]}
    else:
        source = {"IpRanges": [{"CidrIp": rule["cidrIpv4"], **description}]}
    protocol = protocol_name(rule["ipProtocol"])
    ports = {} if protocol == "-1" else {"FromPort": rule.get("fromPort", -1), "ToPort": rule.get("toPort", -1)}
    return {"IpProtocol": protocol, **ports, **source}


def _revoke_all(aws: Aws, group: str) -> None:
    """Delete all rules of a group."""
    for rule in ec2.matching(aws, ec2.SECURITY_GROUP_RULE, {"group-id": group}):
        _revoke(aws, "egress" if rule["IsEgress"] else "ingress", group, rule["SecurityGroupRuleId"])


def _revoke(aws: Aws, direction: str, group: str, rule: str) -> None:
    aws.call("ec2", f"revoke_security_group_{direction}", GroupId=group, SecurityGroupRuleIds=[rule])


def port_errors(rule: Mapping[str, Any], protocol: str) -> Iterator[str]:
    """Yield an error for an invalid protocol or port range of a rule."""
    name, first, last = protocol_name(protocol), rule.get("fromPort"), rule.get("toPort")
    if holds_unknown([first, last]):
        return
    if name not in (*_PROTOCOLS.values(), *map(str, range(256))):
        yield f"has protocol {protocol!r}: write tcp, udp, icmp, icmpv6, -1 or a number"
    if name in ("tcp", "udp"):
        yield _port_range_error(first, last)


def _port_range_error(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return "requires fromPort and toPort for tcp and udp"
    is_valid = 0 <= first <= last <= _MAX_PORT
    return "" if is_valid else f"has ports {first} to {last}: write an ascending range within 0 to {_MAX_PORT}"


# --- Security groups

_NAME = Text(1, 255, rf"(?!sg-){DESCRIPTION.pattern}", f"{DESCRIPTION.plain}, and must not begin with sg-")
_LIMITS = {"description": DESCRIPTION, "name": _NAME}


def _create_group(aws: Aws, inputs: Props) -> str:
    parameters = {"GroupName": inputs["name"], "Description": inputs["description"]}
    ident: str = aws.call("ec2", "create_security_group", VpcId=_vpc_id(aws, inputs), **parameters)["GroupId"]
    with rollback(lambda: aws.call("ec2", "delete_security_group", GroupId=ident)):
        # A new group in AWS allows all egress. The provider removes that rule.
        _revoke_all(aws, ident)
        return ec2.tag(aws, ident, inputs)


def _vpc_id(aws: Aws, inputs: Props) -> str:
    """Return the id of the VPC of a group, without an input of the default VPC; raise ResourceError if it is absent."""
    if vpc := inputs.get("vpcId"):
        return str(ec2.lasting(aws, ec2.VPC, vpc)["VpcId"])
    vpcs = ec2.matching(aws, ec2.VPC, {"is-default": "true"})
    return str(existing(vpcs, "VPCIdNotSpecified", "No default VPC for this user", "vpcId")["VpcId"])


def _create_default_group(aws: Aws, inputs: Props) -> str:
    """Take over the default group of a VPC, without its rules."""
    (ident,) = ec2.default_groups(aws, _vpc_id(aws, inputs))
    _revoke_all(aws, ident)
    return ec2.tag(aws, ident, inputs)


def _read_group(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    group = ec2.described(aws, ec2.SECURITY_GROUP, ident)
    return {
        "arn": aws.arn("ec2", f"security-group/{ident}"),
        "description": group["Description"],
        "name": group["GroupName"],
        "ownerId": aws.account,
        "vpcId": group["VpcId"],
    }


def _delete_group(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("revokeRulesOnDelete"):
        _revoke_all(aws, ident)
    if _is_used(aws, ident):
        raise ResourceError("DependencyViolation", f"resource {ident} has a dependent object")
    aws.call("ec2", "delete_security_group", GroupId=ident)


def _is_used(aws: Aws, ident: str) -> bool:
    """Tell whether an interface or a rule of another group uses the group; moto would delete it anyway."""
    if ec2.matching(aws, ec2.NETWORK_INTERFACE, {"group-id": ident}):
        return True
    filters = ("ip-permission.group-id", "egress.ip-permission.group-id")
    groups = (group for name in filters for group in ec2.matching(aws, ec2.SECURITY_GROUP, {name: ident}))
    return any(group["GroupId"] != ident for group in groups)


SECURITY_GROUP = ResourceKind(
    token="aws:ec2/securityGroup:SecurityGroup",
    inputs=updates("revokeRulesOnDelete", "tags") | replaces("description", "name", "vpcId"),
    defaults={"description": "Managed by Pulumi", "revokeRulesOnDelete": False},
    computed=frozenset({"vpcId"}),
    naming=Naming(),
    create=_create_group,
    read=_read_group,
    update=ec2.retag,
    delete=_delete_group,
    complaints=checks(_LIMITS),
)
DEFAULT_SECURITY_GROUP = replace(
    SECURITY_GROUP,
    token="aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
    inputs=updates("revokeRulesOnDelete", "tags") | replaces("vpcId"),
    defaults={"revokeRulesOnDelete": False},
    computed=frozenset({"vpcId"}),
    naming=None,
    create=_create_default_group,
    delete=delete_nothing,  # the default group is deleted with its VPC
)


_SOURCES = ("cidrIpv4", "referencedSecurityGroupId")


def _vpc_rule_row(direction: str, token: str) -> ResourceKind:
    """Return the row of the rules for one direction."""
    return ResourceKind(
        token=token,
        inputs=updates(*_SOURCES, "description", "fromPort", "ipProtocol", "tags", "toPort")
        | replaces("securityGroupId"),
        create=partial(_create_vpc_rule, direction),
        read=_read_vpc_rule,
        update=partial(_update_vpc_rule, direction),
        delete=partial(_delete_vpc_rule, direction),
        complaints=_check_vpc_rule,
    )


# --- Rules with one source


def _check_vpc_rule(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    if sum(bool(inputs.get(name)) for name in _SOURCES) != 1:
        yield InvalidInput("cidrIpv4", "or referencedSecurityGroupId must be set, exactly one of the two")
    yield from ec2.check_cidrs(inputs, ["cidrIpv4"])
    if is_known(inputs.get("description")) and (reason := DESCRIPTION.error(inputs["description"])):
        yield InvalidInput("description", reason)
    if is_known(protocol := inputs.get("ipProtocol")):
        yield from (InvalidInput("ipProtocol", error) for error in port_errors(inputs, protocol) if error)
        ports = {inputs.get("fromPort"), inputs.get("toPort")}
        if protocol_name(protocol) == "-1" and not ports <= {None, -1, UNKNOWN}:
            yield InvalidInput("fromPort", "and toPort must not be set for protocol -1")


def _create_vpc_rule(direction: str, aws: Aws, inputs: Props) -> str:
    ec2.require(aws, ec2.SECURITY_GROUP, inputs["securityGroupId"])
    return ec2.tag(aws, _add_vpc_rule(aws, direction, inputs), inputs)


def _add_vpc_rule(aws: Aws, direction: str, inputs: Props) -> str:
    _require_reachable_group(aws, inputs)
    call = {"GroupId": inputs["securityGroupId"], "IpPermissions": [_permission(inputs)]}
    (rule,) = aws.call("ec2", f"authorize_security_group_{direction}", **call)["SecurityGroupRules"]
    return str(rule["SecurityGroupRuleId"])


def _require_reachable_group(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for a group of another VPC, unless the two are peered."""
    other = inputs.get("referencedSecurityGroupId")
    if not other:
        return
    vpcs = {ec2.lasting(aws, ec2.SECURITY_GROUP, group)["VpcId"] for group in (inputs["securityGroupId"], other)}
    if len(vpcs) > 1 and not any(vpcs == peering for peering in _peered_vpcs(aws)):
        raise ResourceError(
            "InvalidGroup.NotFound", "You have specified two resources that belong to different networks."
        )


def _peered_vpcs(aws: Aws) -> Iterator[set[str]]:
    for peering in aws.call("ec2", "describe_vpc_peering_connections")["VpcPeeringConnections"]:
        if peering["Status"]["Code"] == "active":
            yield {peering["RequesterVpcInfo"]["VpcId"], peering["AccepterVpcInfo"]["VpcId"]}


def _read_vpc_rule(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    ec2.described(aws, ec2.SECURITY_GROUP_RULE, ec2.current_id(aws, ident))
    return {"arn": aws.arn("ec2", f"security-group-rule/{ident}"), "securityGroupRuleId": ident}


def _update_vpc_rule(direction: str, aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Replace a rule under the same id: the call of moto that modifies rules knows only IPv4 blocks."""
    rule = ec2.current_id(aws, ident)
    if _permission(old) == _permission(new):
        ec2.retag(aws, rule, old, new)
        return
    _revoke(aws, direction, old["securityGroupId"], rule)
    try:
        ec2.map_id(aws, ident, ec2.tag(aws, _add_vpc_rule(aws, direction, new), new))
    except ResourceError:
        ec2.map_id(aws, ident, ec2.tag(aws, _add_vpc_rule(aws, direction, old), old))
        raise


def _delete_vpc_rule(direction: str, aws: Aws, ident: str, outputs: Props) -> None:
    _revoke(aws, direction, outputs["securityGroupId"], ec2.current_id(aws, ident))
    ec2.forget_id(aws, ident)


VPC_INGRESS_RULE = _vpc_rule_row("ingress", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
VPC_EGRESS_RULE = _vpc_rule_row("egress", "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
