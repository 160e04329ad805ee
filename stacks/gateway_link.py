"""What AWS holds for regions that their own gateways join: doors for IKE from the far end, and routes to the gateway.

The tunnel itself is no resource of AWS: `bedplate vpn tunnels` brings it to both gateways.
"""

import pulumi
from pulumi_aws.ec2.route import Route, RouteArgs
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule, SecurityGroupIngressRuleArgs

from bedplate.plan.beyond import behind
from bedplate.plan.door import joined_rules
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.node_doors import IKE
from stacks.reference import output_of
from stacks.side import Side
from stacks.tags import named

_ALL = "-1"  # every protocol, every port


class JoinedGateway(pulumi.ComponentResource):
    """A region's gateway as far as it is joined to any other: it takes from nodes what it is to carry."""

    side: Side
    public_ip: pulumi.Output[str]
    interface_id: pulumi.Output[str]
    group_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, side: Side) -> None:
        name = f"{plan.name}-{side.name}-laptops"
        super().__init__("bedplate:stacks:JoinedGateway", name)
        told: pulumi.Output[dict[str, str]] = output_of(side.stack, "laptop_gateway")
        self.side = side
        self.public_ip, self.interface_id, self.group_id = told["public_ip"], told["interface_id"], told["group_id"]
        for rule in joined_rules(side.region):
            args = SecurityGroupIngressRuleArgs(
                security_group_id=self.group_id,
                ip_protocol=_ALL,
                cidr_ipv4=str(rule.block),
                description=rule.about,
                tags=named(f"{name}-{rule.name}"),
            )
            SecurityGroupIngressRule(f"{name}-{rule.name}", args, side.inside(self))
        self.register_outputs({})


class GatewayLink(pulumi.ComponentResource):
    """Two regions, joined by their gateways: each lets the other's IKE in, and leads to it what is for the other."""

    def __init__(self, plan: FleetPlan, near: JoinedGateway, far: JoinedGateway) -> None:
        super().__init__("bedplate:stacks:GatewayLink", f"{plan.name}-{near.side.name}-{far.side.name}")
        self._plan = plan
        for here, there in ((near, far), (far, near)):
            self._route(here, there, self._doors(here, there))
        self.register_outputs({})

    def _doors(self, here: JoinedGateway, there: JoinedGateway) -> tuple[pulumi.Resource, ...]:
        """Open IKE to the other gateway's address alone; ESP comes within it, for both addresses are translated."""
        return tuple(self._door(here, there, port) for port in IKE)

    def _door(self, here: JoinedGateway, there: JoinedGateway, port: int) -> SecurityGroupIngressRule:
        name = f"{self._plan.name}-{here.side.name}-laptops-ike-{port}-from-{there.side.name}"
        args = SecurityGroupIngressRuleArgs(
            security_group_id=here.group_id,
            ip_protocol="udp",
            from_port=port,
            to_port=port,
            cidr_ipv4=there.public_ip.apply(lambda address: f"{address}/32"),
            description=f"IKE from the gateway in {there.side.name}",
            tags=named(name),
        )
        return SecurityGroupIngressRule(name, args, here.side.inside(self))

    def _route(self, here: JoinedGateway, there: JoinedGateway, doors: tuple[pulumi.Resource, ...]) -> None:
        """Lead to the gateway here what is for the other region; routes wait for the doors to the gateway there."""
        for each in behind(self._plan, there.side.name):
            for table, table_id in sorted(here.side.table_ids.items()):
                args = RouteArgs(
                    route_table_id=table_id,
                    destination_cidr_block=str(each.block),
                    network_interface_id=here.interface_id,
                )
                name = f"{self._plan.name}-{here.side.name}-{table}-to-{each.name}"
                Route(name, args, here.side.inside(self, after=doors))
