"""Security groups whose rules are resources of their own: a new rule is added, and none is rewritten."""

from collections.abc import Iterable

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
    Rule,
    control_rules,
    has_workers,
    node_rules,
    storage_rules,
)
from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.options import inside, named

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


class NodeFirewall(pulumi.ComponentResource):
    """Nodes trust one another, and let in what the plan says. Each rule is its own resource."""

    doors: Doors
    group_id: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, region: RegionPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:NodeFirewall", plan.name, None, opts)
        doors = Doors(f"{plan.name}-nodes", "Nodes of the fleet", vpc_id, self)
        doors.trust_itself("nodes")
        doors.let_out(ANYWHERE)
        doors.let_in(*node_rules(plan, region))
        self.doors, self.group_id = doors, doors.group_id
        self.register_outputs({"group_id": self.group_id})


class StorageFirewall(pulumi.ComponentResource):
    """Storage accepts NFS from nodes of the fleet, and opens no connection."""

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
        doors = Doors(f"{plan.name}-storage", "Shared storage of the fleet", vpc_id, self)
        doors.let_in(*storage_rules(plan, region))
        doors.let_in_bearers(nodes.doors, "NFS from nodes", NFS)
        self.group_id = doors.group_id
        self.register_outputs({"group_id": self.group_id})


class ControlFirewall(pulumi.ComponentResource):
    """Members of the control plane trust one another; nodes, laptops and sites reach the API server."""

    group_id: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, vpc_id: pulumi.Output[str], nodes: NodeFirewall, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:ControlFirewall", plan.name, None, opts)
        doors = Doors(f"{plan.name}-control", "Control plane of the fleet", vpc_id, self)
        doors.trust_itself("control")
        doors.let_out(ANYWHERE)
        doors.let_in(*control_rules(plan))
        doors.let_in_bearers(nodes.doors, "API from nodes", API)
        for what, protocol, port in WORKER_PORTS if has_workers(plan, plan.home.name) else ():
            doors.let_in_bearers(nodes.doors, f"{what} from nodes", port, protocol)
        # The API server calls kubelets and webhooks, which listen on any port.
        nodes.doors.let_in_bearers(doors, "All from control")
        self.group_id = doors.group_id
        self.register_outputs({"group_id": self.group_id})
