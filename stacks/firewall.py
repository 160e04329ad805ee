"""The security groups of a region: one for nodes, one for storage."""

import pulumi
from pulumi_aws.ec2.security_group import SecurityGroup, SecurityGroupArgs
from pulumi_aws.vpc.security_group_egress_rule import SecurityGroupEgressRule, SecurityGroupEgressRuleArgs
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule, SecurityGroupIngressRuleArgs

from bedplate.plan.fleet import FleetPlan
from stacks.network import ANYWHERE
from stacks.options import inside
from stacks.rule import Rule, node_rules, storage_rules
from stacks.tags import named

_ALL = "-1"  # every protocol, every port


class Firewall(pulumi.ComponentResource):
    """Nodes trust one another; storage answers nodes and opens nothing. Each rule is its own resource."""

    nodes_id: pulumi.Output[str]
    storage_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:Firewall", plan.name, None, opts)
        nodes, storage = f"{plan.name}-nodes", f"{plan.name}-storage"
        self.nodes_id = self._group(nodes, "Nodes of the fleet", vpc_id)
        self.storage_id = self._group(storage, "Shared storage of the fleet", vpc_id)
        self._trust_each_other(nodes)
        for rule in node_rules(plan):
            self._let_in(nodes, self.nodes_id, rule)
        for rule in storage_rules(plan):
            self._let_in(storage, self.storage_id, rule)
        self.register_outputs({"nodes_id": self.nodes_id, "storage_id": self.storage_id})

    def _group(self, name: str, description: str, vpc_id: pulumi.Output[str]) -> pulumi.Output[str]:
        args = SecurityGroupArgs(name=name, description=description, vpc_id=vpc_id, tags=named(name))
        return SecurityGroup(name, args, inside(self)).id

    def _trust_each_other(self, group: str) -> None:
        """Let nodes talk freely; EFA wants a rule to the group itself although one to anywhere covers it."""
        each_in, each_out, out = f"{group}-from-nodes", f"{group}-to-nodes", f"{group}-to-anywhere"
        SecurityGroupIngressRule(
            each_in,
            SecurityGroupIngressRuleArgs(
                security_group_id=self.nodes_id,
                ip_protocol=_ALL,
                referenced_security_group_id=self.nodes_id,
                tags=named(each_in),
            ),
            inside(self),
        )
        SecurityGroupEgressRule(
            each_out,
            SecurityGroupEgressRuleArgs(
                security_group_id=self.nodes_id,
                ip_protocol=_ALL,
                referenced_security_group_id=self.nodes_id,
                tags=named(each_out),
            ),
            inside(self),
        )
        SecurityGroupEgressRule(
            out,
            SecurityGroupEgressRuleArgs(
                security_group_id=self.nodes_id, ip_protocol=_ALL, cidr_ipv4=ANYWHERE, tags=named(out)
            ),
            inside(self),
        )

    def _let_in(self, group: str, group_id: pulumi.Output[str], rule: Rule) -> None:
        name = f"{group}-{rule.name}"
        args = SecurityGroupIngressRuleArgs(
            security_group_id=group_id,
            ip_protocol="tcp",
            from_port=rule.port,
            to_port=rule.port,
            cidr_ipv4=str(rule.source),
            tags=named(name),
        )
        SecurityGroupIngressRule(name, args, inside(self))
