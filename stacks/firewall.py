"""The security groups of a region: for nodes, for storage, and at home for the control plane."""

import pulumi

from bedplate.plan.door import (
    ANYWHERE,
    API,
    NFS,
    WORKER_PORTS,
    control_rules,
    has_workers,
    node_rules,
    storage_rules,
)
from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.security_group import Doors


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
