"""Security groups of nodes, storage and the control plane. Each rule is a resource, so a new one changes no other."""

from collections.abc import Iterable, Sequence
from typing import Any

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
        args = {"ip_protocol": protocol, "from_port": port, "to_port": port} if port else {}
        name, group_id = description.lower().replace(" ", "-"), other.group_id
        self._rule(SecurityGroupIngressRule, name, description, referenced_security_group_id=group_id, **args)

    def allow_itself(self, members: str) -> None:
        """Allow all traffic between members; EFA requires a rule that refers to the group itself."""
        for rule_type, preposition in ((SecurityGroupIngressRule, "from"), (SecurityGroupEgressRule, "to")):
            name, about = f"{preposition}-{members}", f"All among {members}"
            self._rule(rule_type, name, about, referenced_security_group_id=self.group_id)

    def _declare(self, rule_type: _RuleType, rules: Iterable[FirewallRule]) -> None:
        for rule in rules:
            ports = {"from_port": rule.port, "to_port": rule.last or rule.port}
            protocol, block = rule.protocol or _ALL_PROTOCOLS, str(rule.block)
            self._rule(rule_type, rule.name, rule.about, ip_protocol=protocol, cidr_ipv4=block, **ports)

    def _rule(self, rule_type: _RuleType, name: str, about: str, **args: Any) -> None:  # noqa: ANN401  of the SDK
        """Declare a rule, of all protocols unless the arguments name one."""
        full_name = f"{self._name}-{name}"
        rule_type(
            full_name,
            security_group_id=self.group_id,
            description=about,
            tags=name_tag(full_name),
            opts=child_options(self._parent),
            **{"ip_protocol": _ALL_PROTOCOLS, **args},
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
