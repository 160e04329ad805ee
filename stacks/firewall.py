"""The security groups of a region: one for nodes, one for storage."""

import pulumi

from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.rule import ANYWHERE, node_rules, storage_rules
from stacks.security_group import Doors


class NodeFirewall(pulumi.ComponentResource):
    """Nodes trust one another, and let in what the plan says. Each rule is its own resource."""

    group_id: pulumi.Output[str]

    def __init__(
        self, plan: FleetPlan, region: RegionPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:NodeFirewall", plan.name, None, opts)
        doors = Doors(f"{plan.name}-nodes", "Nodes of the fleet", vpc_id, self)
        doors.trust_itself("nodes")
        doors.let_out(ANYWHERE)
        doors.let_in(*node_rules(plan, region))
        self.group_id = doors.group_id
        self.register_outputs({"group_id": self.group_id})


class StorageFirewall(pulumi.ComponentResource):
    """Storage answers the fleet's regions, and opens nothing itself."""

    group_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:StorageFirewall", plan.name, None, opts)
        doors = Doors(f"{plan.name}-storage", "Shared storage of the fleet", vpc_id, self)
        doors.let_in(*storage_rules(plan))
        self.group_id = doors.group_id
        self.register_outputs({"group_id": self.group_id})
