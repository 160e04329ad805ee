"""The security groups of a region: one for nodes, one for storage."""

import pulumi
from pulumi_aws.ec2.security_group import SecurityGroup, SecurityGroupArgs
from pulumi_aws.vpc.security_group_egress_rule import SecurityGroupEgressRule, SecurityGroupEgressRuleArgs
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule, SecurityGroupIngressRuleArgs

from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.network import ANYWHERE
from stacks.options import inside
from stacks.rule import Rule, node_rules, storage_rules
from stacks.tags import named

_ALL = "-1"  # every protocol, every port


class NodeFirewall(pulumi.ComponentResource):
    """Nodes trust one another, and let in what the plan says. Each rule is its own resource."""

    group_id: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, region: RegionPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:NodeFirewall", plan.name, None, opts)
        name = f"{plan.name}-nodes"
        self.group_id = _group(self, name, "Nodes of the fleet", vpc_id)
        self._trust_each_other(name)
        for rule in node_rules(plan, region):
            _let_in(self, name, self.group_id, rule)
        self.register_outputs({"group_id": self.group_id})

    def _trust_each_other(self, name: str) -> None:
        """Let nodes talk freely; EFA wants a rule to the group itself although one to anywhere covers it."""
        each_in, each_out, out = f"{name}-from-nodes", f"{name}-to-nodes", f"{name}-to-anywhere"
        SecurityGroupIngressRule(
            each_in,
            SecurityGroupIngressRuleArgs(
                security_group_id=self.group_id,
                ip_protocol=_ALL,
                referenced_security_group_id=self.group_id,
                tags=named(each_in),
            ),
            inside(self),
        )
        SecurityGroupEgressRule(
            each_out,
            SecurityGroupEgressRuleArgs(
                security_group_id=self.group_id,
                ip_protocol=_ALL,
                referenced_security_group_id=self.group_id,
                tags=named(each_out),
            ),
            inside(self),
        )
        SecurityGroupEgressRule(
            out,
            SecurityGroupEgressRuleArgs(
                security_group_id=self.group_id, ip_protocol=_ALL, cidr_ipv4=ANYWHERE, tags=named(out)
            ),
            inside(self),
        )


class StorageFirewall(pulumi.ComponentResource):
    """Storage answers the fleet's regions, and opens nothing itself."""

    group_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:StorageFirewall", plan.name, None, opts)
        name = f"{plan.name}-storage"
        self.group_id = _group(self, name, "Shared storage of the fleet", vpc_id)
        for rule in storage_rules(plan):
            _let_in(self, name, self.group_id, rule)
        self.register_outputs({"group_id": self.group_id})


def _group(
    parent: pulumi.ComponentResource, name: str, description: str, vpc_id: pulumi.Output[str]
) -> pulumi.Output[str]:
    args = SecurityGroupArgs(name=name, description=description, vpc_id=vpc_id, tags=named(name))
    return SecurityGroup(name, args, inside(parent)).id


def _let_in(parent: pulumi.ComponentResource, group: str, group_id: pulumi.Output[str], rule: Rule) -> None:
    name = f"{group}-{rule.name}"
    args = SecurityGroupIngressRuleArgs(
        security_group_id=group_id,
        ip_protocol=_ALL if rule.port is None else "tcp",
        from_port=rule.port,
        to_port=rule.port,
        cidr_ipv4=str(rule.source),
        tags=named(name),
    )
    SecurityGroupIngressRule(name, args, inside(parent))
