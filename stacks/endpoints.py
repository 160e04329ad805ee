"""Interface endpoints: services of AWS that nodes reach at addresses of their own network, by the services' names."""

import pulumi
from pulumi_aws.ec2.vpc_endpoint import VpcEndpoint, VpcEndpointArgs

from bedplate.plan.door import HTTPS, TCP, Rule
from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.arn import arn
from stacks.network import Network
from stacks.options import inside
from stacks.policy import Statement, policy
from stacks.security_group import Doors
from stacks.tags import named

_ANYBODY = {"AWS": ("*",)}


class ServiceEndpoints(pulumi.ComponentResource):
    """An endpoint a service, with an interface in each zone's nodes' subnet, for the region's own machines."""

    def __init__(self, plan: FleetPlan, region: RegionPlan, network: Network, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-endpoints"
        super().__init__("bedplate:stacks:ServiceEndpoints", name, None, opts)
        doors = Doors(name, "Services of AWS inside the network", network.vpc_id, self)
        doors.let_in(Rule(f"https-from-{region.name}", f"HTTPS from {region.name}", region.block, TCP, HTTPS))
        for service in plan.endpoints:
            label = f"{plan.name}-{service.replace('.', '-')}"
            args = VpcEndpointArgs(
                vpc_id=network.vpc_id,
                vpc_endpoint_type="Interface",
                service_name=f"com.amazonaws.{region.name}.{service}",
                subnet_ids=list(network.node_subnet_ids.values()),
                security_group_ids=[doors.group_id],
                private_dns_enabled=True,
                policy=policy(*users(plan, service)),
                tags=named(label),
            )
            VpcEndpoint(label, args, inside(self))
        self.register_outputs({})


def users(plan: FleetPlan, service: str) -> tuple[Statement, ...]:
    """Return who may use an endpoint, and for what: this account's principals, for the service alone.

    Whoever changes a token of somebody else's for a role of STS is no principal yet, so the role is looked at.
    """
    name = service.partition(".")[0]
    ours = Statement(
        sid="ServeThisAccount",
        principals=_ANYBODY,
        actions=(f"{name}:*",),
        resources=("*",),
        conditions={"StringEquals": {"aws:PrincipalAccount": (plan.account,)}},
    )
    tokens = Statement(
        sid="ChangeTokens",
        principals=_ANYBODY,
        actions=("sts:AssumeRoleWithSAML", "sts:AssumeRoleWithWebIdentity"),
        resources=(arn(plan, "iam", "", "role/*"),),
    )
    return (ours, tokens) if name == "sts" else (ours,)
