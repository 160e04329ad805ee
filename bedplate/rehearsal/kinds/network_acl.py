"""Network ACLs, and the list that a VPC was born with."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_fault
from bedplate.rehearsal.kinds.described import NETWORK_ACL as NOUN
from bedplate.rehearsal.kinds.described import SUBNET, described, require
from bedplate.rehearsal.kinds.ec2_tags import retag
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import holds_unknown

_SIDES = ("ingress", "egress")
_NUMBERS = {"all": "-1", "icmp": "1", "tcp": "6", "udp": "17", "icmpv6": "58"}
_WITH_PORTS = ("6", "17")
_WITH_TYPES = ("1", "58")
_LAST = 32767  # the rule that denies the rest, which nobody may touch


def _create(aws: Aws, inputs: Props) -> str:
    ident: str = aws.call("ec2", "create_network_acl", VpcId=inputs["vpcId"])["NetworkAcl"]["NetworkAclId"]
    with undoing(lambda: aws.call("ec2", "delete_network_acl", NetworkAclId=ident)):
        _update(aws, ident, {}, inputs)
    return ident


def _adopt(aws: Aws, inputs: Props) -> str:
    """Take over a VPC's first list, with the rules that are named and no others."""
    ident: str = inputs["defaultNetworkAclId"]
    if not described(aws, NOUN, ident)["IsDefault"]:
        raise Refusal("InvalidNetworkAclID.NotFound", f"{ident} is no VPC's default network ACL")
    _update(aws, ident, {}, {"ingress": [], "egress": [], **inputs})
    return ident


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for side in _SIDES:
        if new.get(side) is not None and old.get(side) != new[side]:
            _bring_entries(aws, ident, side == "egress", [_entry(rule) for rule in new[side]])
    if new.get("subnetIds") is not None:
        _bring_subnets(aws, ident, set(new["subnetIds"]))
    retag(aws, ident, old, new)


def _bring_entries(aws: Aws, ident: str, egress: bool, wanted: list[dict[str, Any]]) -> None:  # noqa: FBT001  # EC2's own
    for entry in described(aws, NOUN, ident)["Entries"]:
        if entry["Egress"] is egress and entry["RuleNumber"] != _LAST:
            target = {"NetworkAclId": ident, "RuleNumber": entry["RuleNumber"]}
            aws.call("ec2", "delete_network_acl_entry", Egress=egress, **target)
    for entry in wanted:
        aws.call("ec2", "create_network_acl_entry", NetworkAclId=ident, Egress=egress, **entry)


def _entry(rule: Props) -> dict[str, Any]:
    protocol = _number(rule["protocol"])
    blocks = {"CidrBlock": rule.get("cidrBlock"), "Ipv6CidrBlock": rule.get("ipv6CidrBlock")}
    ports = {"PortRange": {"From": rule["fromPort"], "To": rule["toPort"]}} if protocol in _WITH_PORTS else {}
    icmp = {"Type": rule.get("icmpType") or 0, "Code": rule.get("icmpCode") or 0}
    return {
        "Protocol": protocol,
        "RuleAction": str(rule["action"]).lower(),
        "RuleNumber": rule["ruleNo"],
        **{name: block for name, block in blocks.items() if block},
        **ports,
        **({"IcmpTypeCode": icmp} if protocol in _WITH_TYPES else {}),
    }


def _number(protocol: object) -> str:
    word = str(protocol).lower()
    return _NUMBERS.get(word, word)


def _bring_subnets(aws: Aws, ident: str, wanted: set[str]) -> None:
    """Make the subnets of a list exactly those wanted; those let go fall back to the VPC's first list."""
    found = described(aws, NOUN, ident)
    present = {each["SubnetId"] for each in found["Associations"]}
    require(aws, SUBNET, *sorted(wanted - present))
    for subnet in sorted(wanted - present):
        _move(aws, subnet, ident)
    for subnet in sorted(present - wanted) if not found["IsDefault"] else ():
        _move(aws, subnet, _default(aws, found["VpcId"]))


def _move(aws: Aws, subnet: str, acl: str) -> None:
    theirs = [{"Name": "association.subnet-id", "Values": [subnet]}]
    for found in aws.call("ec2", "describe_network_acls", Filters=theirs)["NetworkAcls"]:
        for each in found["Associations"]:
            if each["SubnetId"] == subnet:
                association = each["NetworkAclAssociationId"]
                aws.call("ec2", "replace_network_acl_association", AssociationId=association, NetworkAclId=acl)


def _default(aws: Aws, vpc: str) -> str:
    ours = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "default", "Values": ["true"]}]
    return str(aws.call("ec2", "describe_network_acls", Filters=ours)["NetworkAcls"][0]["NetworkAclId"])


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    return {
        "arn": aws.arn("ec2", f"network-acl/{ident}"),
        "ownerId": aws.account,
        "subnetIds": sorted(each["SubnetId"] for each in found["Associations"]),
        "vpcId": found["VpcId"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    _bring_subnets(aws, ident, set())
    aws.call("ec2", "delete_network_acl", NetworkAclId=ident)


def _leave(aws: Aws, ident: str, outputs: Props) -> None:
    """Leave the list as it is: it goes with its VPC."""


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    for side in _SIDES:
        given = inputs.get(side)
        rules = given if isinstance(given, list) else []
        numbers = [rule["ruleNo"] for rule in rules if not holds_unknown(rule)]
        if len(set(numbers)) < len(numbers):
            yield Complaint(side, "gives a rule number twice")
        for place, rule in enumerate(rules):
            if not holds_unknown(rule):
                yield from (Complaint(f"{side}[{place}]", fault) for fault in _faults(rule) if fault)


def _faults(rule: Props) -> Iterator[str]:
    protocol = _number(rule["protocol"])
    if protocol not in ("-1", *map(str, range(256))):
        yield f"{rule['protocol']!r} is no protocol"
    if str(rule["action"]).lower() not in ("allow", "deny"):
        yield f"{rule['action']!r} is neither allow nor deny"
    if not 1 <= rule["ruleNo"] < _LAST:
        yield f"rule number {rule['ruleNo']} is out of 1 to {_LAST - 1}"
    if bool(rule.get("cidrBlock")) == bool(rule.get("ipv6CidrBlock")):
        yield "give exactly one of cidrBlock, ipv6CidrBlock"
    for key, version in (("cidrBlock", 4), ("ipv6CidrBlock", 6)):
        yield block_fault(rule[key], version) if rule.get(key) else ""
    if protocol == "-1" and (rule["fromPort"] or rule["toPort"]):
        yield "fromPort and toPort must be 0 with protocol -1"


NETWORK_ACL = Kind(
    token="aws:ec2/networkAcl:NetworkAcl",
    inputs=updates(*_SIDES, "subnetIds", "tags") | replaces("vpcId"),
    computed=frozenset({*_SIDES, "subnetIds"}),
    sets=frozenset({*_SIDES, "subnetIds"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
DEFAULT_NETWORK_ACL = Kind(
    token="aws:ec2/defaultNetworkAcl:DefaultNetworkAcl",
    inputs=updates(*_SIDES, "subnetIds", "tags") | replaces("defaultNetworkAclId"),
    sets=frozenset({*_SIDES, "subnetIds"}),
    create=_adopt,
    read=_read,
    update=_update,
    delete=_leave,
    complaints=_complaints,
)
