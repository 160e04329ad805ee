"""Security groups whose rules are resources of their own: a new rule is added, and none is rewritten."""

from collections.abc import Iterable

import pulumi
from pulumi_aws.ec2.security_group import SecurityGroup, SecurityGroupArgs
from pulumi_aws.vpc.security_group_egress_rule import SecurityGroupEgressRule
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule

from bedplate.plan.door import TCP, Rule
from stacks.options import inside
from stacks.tags import named

_ALL = "-1"  # every protocol, every port
_Way = type[SecurityGroupIngressRule] | type[SecurityGroupEgressRule]


class Doors:
    """A security group of a component, shut but for the rules that are added to it."""

    group_id: pulumi.Output[str]

    def __init__(self, name: str, description: str, vpc_id: pulumi.Output[str], parent: pulumi.Resource) -> None:
        self._name, self._parent = name, parent
        args = SecurityGroupArgs(name=name, description=description, vpc_id=vpc_id, tags=named(name))
        self.group_id = SecurityGroup(name, args, inside(parent)).id

    def let_in(self, *rules: Rule) -> None:
        """Let connections in."""
        self._let(SecurityGroupIngressRule, rules)

    def let_out(self, *rules: Rule) -> None:
        """Let what bears the group open connections."""
        self._let(SecurityGroupEgressRule, rules)

    def let_in_bearers(self, of: "Doors", about: str, port: int | None = None, protocol: str = TCP) -> None:
        """Let in members of another group of this VPC, to one port or to all; `about` names the rule too."""
        title = f"{self._name}-{about.lower().replace(' ', '-')}"
        SecurityGroupIngressRule(
            title,
            security_group_id=self.group_id,
            ip_protocol=_ALL if port is None else protocol,
            from_port=port,
            to_port=port,
            referenced_security_group_id=of.group_id,
            description=about,
            tags=named(title),
            opts=inside(self._parent),
        )

    def trust_itself(self, who: str) -> None:
        """Let what bears the group talk freely; EFA wants a rule to the group itself although others cover it."""
        for way, word in ((SecurityGroupIngressRule, "from"), (SecurityGroupEgressRule, "to")):
            title = f"{self._name}-{word}-{who}"
            way(
                title,
                security_group_id=self.group_id,
                ip_protocol=_ALL,
                referenced_security_group_id=self.group_id,
                description=f"All among {who}",
                tags=named(title),
                opts=inside(self._parent),
            )

    def _let(self, way: _Way, rules: Iterable[Rule]) -> None:
        for rule in rules:
            title = f"{self._name}-{rule.name}"
            way(
                title,
                security_group_id=self.group_id,
                ip_protocol=rule.protocol or _ALL,
                from_port=rule.port,
                to_port=rule.port,
                cidr_ipv4=str(rule.block),
                description=rule.about,
                tags=named(title),
                opts=inside(self._parent),
            )
