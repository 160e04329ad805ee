"""Security groups, and the group that a VPC was born with."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.described import SECURITY_GROUP as NOUN
from bedplate.rehearsal.kinds.described import VPC, described
from bedplate.rehearsal.kinds.ec2_tags import retag
from bedplate.rehearsal.kinds.interfaces import interfaces_of
from bedplate.rehearsal.kinds.limits import Text, beyond, together
from bedplate.rehearsal.kinds.security_rules import DESCRIPTION, bring_rules, rule_faults
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import UNKNOWN

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
