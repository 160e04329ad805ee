"""Security groups of nodes, storage and the control plane. Each rule is a resource, so a new one changes no other."""

from collections.abc import Iterable, Sequence

import pulumi
from pulumi_aws.ec2.security_group import SecurityGroup, SecurityGroupArgs
from pulumi_aws.vpc.security_group_egress_rule import SecurityGroupEgressRule
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule

from bedplate.plan.firewall import (
    ANYWHERE,
    API,
    NFS,
    TCP,
    WORKER_PORTS,
    FirewallRule,
    control_rules,
    has_workers,
    node_rules,
    pod_rules,
    storage_rules,
)
from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.options import PUBLIC, child_options, name_tag

_ALL_PROTOCOLS = "-1"  # every protocol, every port
_RuleType = type[SecurityGroupIngressRule] | type[SecurityGroupEgressRule]


class RuleGroup:
    """A security group of a component; it allows nothing except the `public` rules and those that are added."""

    group_id: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        description: str,
        vpc_id: pulumi.Output[str],
        parent: pulumi.Resource,
        *,
        public: Sequence[FirewallRule] = (),
    ) -> None:
        self._name, self._parent = name, parent
        ports = {PUBLIC: " ".join(f"{rule.protocol}/{rule.port}" for rule in public)} if public else {}
        args = SecurityGroupArgs(name=name, description=description, vpc_id=vpc_id, tags=name_tag(name) | ports)
        self.group_id = SecurityGroup(name, args, child_options(parent)).id
        self.allow_in(*public)

    def allow_in(self, *rules: FirewallRule) -> None:
        """Allow inbound connections."""
        self._declare(SecurityGroupIngressRule, rules)

    def allow_out(self, *rules: FirewallRule) -> None:
        """Allow outbound connections."""
        self._declare(SecurityGroupEgressRule, rules)

    def allow_from_group(
        self, other: "RuleGroup", description: str, port: int | None = None, protocol: str = TCP
    ) -> None:
        """Allow inbound connections from another group of this VPC; `description` is also the name of the rule."""
        rule_name = f"{self._name}-{description.lower().replace(' ', '-')}"
        SecurityGroupIngressRule(
            rule_name,
            security_group_id=self.group_id,
            ip_protocol=_ALL_PROTOCOLS if port is None else protocol,
            from_port=port,
            to_port=port,
            referenced_security_group_id=other.group_id,
            description=description,
            tags=name_tag(rule_name),
            opts=child_options(self._parent),
        )

    def allow_itself(self, members: str) -> None:
        """Allow all traffic between members; EFA requires a rule that refers to the group itself."""
        for rule_type, preposition in ((SecurityGroupIngressRule, "from"), (SecurityGroupEgressRule, "to")):
            rule_name = f"{self._name}-{preposition}-{members}"
            rule_type(
                rule_name,
                security_group_id=self.group_id,
                ip_protocol=_ALL_PROTOCOLS,
                referenced_security_group_id=self.group_id,
                description=f"All among {members}",
                tags=name_tag(rule_name),
                opts=child_options(self._parent),
            )

    def _declare(self, rule_type: _RuleType, rules: Iterable[FirewallRule]) -> None:
        for rule in rules:
            rule_name = f"{self._name}-{rule.name}"
            rule_type(
                rule_name,
                security_group_id=self.group_id,
                ip_protocol=rule.protocol or _ALL_PROTOCOLS,
                from_port=rule.port,
                to_port=rule.last or rule.port,
                cidr_ipv4=str(rule.block),
                description=rule.about,
                tags=name_tag(rule_name),
                opts=child_options(self._parent),
            )


class NodeFirewall(pulumi.ComponentResource):
    """The security group of nodes: all traffic between nodes, outbound to anywhere, inbound as planned."""

    group: RuleGroup
    group_id: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, region: RegionPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:NodeFirewall", plan.name, None, opts)
        group = RuleGroup(f"{plan.name}-nodes", "Nodes of the fleet", vpc_id, self)
        group.allow_itself("nodes")
        group.allow_out(ANYWHERE)
        group.allow_in(*node_rules(plan, region))
        self.group, self.group_id = group, group.group_id
        self.register_outputs({"group_id": self.group_id})


class StorageFirewall(pulumi.ComponentResource):
    """The security group of storage: NFS from nodes, no outbound connections."""

    group_id: pulumi.Output[str]

    def __init__(
        self,
        plan: FleetPlan,
        region: RegionPlan,
        vpc_id: pulumi.Output[str],
        nodes: NodeFirewall,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:StorageFirewall", plan.name, None, opts)
        group = RuleGroup(f"{plan.name}-storage", "Shared storage of the fleet", vpc_id, self)
        group.allow_in(*storage_rules(plan, region))
        group.allow_from_group(nodes.group, "NFS from nodes", NFS)
        self.group_id = group.group_id
        self.register_outputs({"group_id": self.group_id})


class ControlFirewall(pulumi.ComponentResource):
    """The security group of the control plane: all traffic between members, the API from nodes, laptops and sites."""

    group_id: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, vpc_id: pulumi.Output[str], nodes: NodeFirewall, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:ControlFirewall", plan.name, None, opts)
        group = RuleGroup(f"{plan.name}-control", "Control plane of the fleet", vpc_id, self)
        group.allow_itself("control")
        group.allow_out(ANYWHERE)
        group.allow_in(*control_rules(plan))
        group.allow_from_group(nodes.group, "API from nodes", API)
        for service, protocol, port in WORKER_PORTS if has_workers(plan, plan.home.name) else ():
            group.allow_from_group(nodes.group, f"{service} from nodes", port, protocol)
        # The API server connects to kubelets and webhooks, on any port.
        nodes.group.allow_from_group(group, "All from control")
        self.group_id = group.group_id
        self.register_outputs({"group_id": self.group_id})


class PodsFirewall(pulumi.ComponentResource):
    """A second security group of the pods router: pages of pods for laptops and sites, names of services."""

    group_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:PodsFirewall", plan.name, None, opts)
        group = RuleGroup(f"{plan.name}-pods", "Pods, behind their router", vpc_id, self)
        group.allow_in(*pod_rules(plan))
        self.group_id = group.group_id
        self.register_outputs({"group_id": self.group_id})
