"""Specimens of security groups, network ACLs and prefix lists."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import described as nouns
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.simulation import Aws
from tests.support.specimen import Specimen


def told_group(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return a security group with its rules, in an order that does not depend on their making."""
    found = described(aws, nouns.SECURITY_GROUP, ident)
    sides = ("IpPermissions", "IpPermissionsEgress")
    return [found, [sorted(map(str, found[side])) for side in sides]]


def told_rule(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the rules of the group that a rule is of, and its own tags."""
    rules = [{"Name": "group-id", "Values": [inputs["securityGroupId"]]}]
    found = aws.call("ec2", "describe_security_group_rules", Filters=rules)["SecurityGroupRules"]
    return [{key: value for key, value in rule.items() if key != "SecurityGroupRuleId"} for rule in found]


def ssh_from(block: str) -> dict[str, Any]:
    """Return a rule block that lets SSH in from a block of addresses."""
    return {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": [block], "description": "ssh"}


RULES = (
    Specimen(
        "aws:ec2/securityGroup:SecurityGroup",
        inputs=lambda world: {
            "name": "gates",
            "description": "A group",
            "vpcId": world.vpc,
            "ingress": [ssh_from("192.168.40.0/22"), {**ssh_from("10.0.0.0/8"), "self": True}],
            "egress": [
                {"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]},
                {"protocol": "udp", "fromPort": 53, "toPort": 53, "securityGroups": [world.group]},
            ],
        },
        told=told_group,
        changes={"ingress": [ssh_from("192.168.44.0/22")], "egress": []},
        silent=frozenset({"egress", "ingress", "revokeRulesOnDelete"}),
    ),
    Specimen(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        inputs=lambda world: {"vpcId": world.vpc},
        told=told_group,
        changes={"ingress": [ssh_from("10.0.0.0/8")], "egress": [ssh_from("10.0.0.0/8")]},
        silent=frozenset({"revokeRulesOnDelete"}),
        adopted=True,
    ),
    Specimen(
        "aws:ec2/securityGroupRule:SecurityGroupRule",
        inputs=lambda world: {
            "type": "ingress",
            "securityGroupId": world.group,
            "protocol": "tcp",
            "fromPort": 2049,
            "toPort": 2050,
            "cidrBlocks": ["10.20.0.0/16", "10.30.0.0/16"],
            "description": "nfs",
        },
        told=told_rule,
        changes={"description": "storage"},
        silent=frozenset({"type"}),
    ),
    Specimen(
        "aws:ec2/securityGroupRule:SecurityGroupRule",
        form="from another group",
        inputs=lambda world: {
            "type": "egress",
            "securityGroupId": world.group,
            "protocol": "-1",
            "fromPort": 0,
            "toPort": 0,
            "sourceSecurityGroupId": world.other_group,
        },
        told=told_rule,
        silent=frozenset({"fromPort", "toPort", "type"}),
    ),
    Specimen(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        inputs=lambda world: {
            "securityGroupId": world.group,
            "ipProtocol": "tcp",
            "fromPort": 443,
            "toPort": 443,
            "cidrIpv4": "10.30.0.0/16",
            "description": "https",
        },
        told=told_rule,
        changes={
            "description": "web",
            "toPort": 8443,
            "fromPort": 80,
            "ipProtocol": "udp",
            "cidrIpv4": "10.31.0.0/16",
        },
        silent=frozenset({"cidrIpv6", "prefixListId", "referencedSecurityGroupId"}),
    ),
    Specimen(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        inputs=lambda world: {
            "securityGroupId": world.group,
            "ipProtocol": "-1",
            "referencedSecurityGroupId": world.other_group,
        },
        told=told_rule,
        changes=lambda world: {"referencedSecurityGroupId": world.group},
        silent=frozenset({"cidrIpv4", "cidrIpv6", "description", "fromPort", "ipProtocol", "prefixListId", "toPort"}),
    ),
)
