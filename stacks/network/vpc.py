"""The VPC of a region: subnets, route tables, NAT gateways, endpoints and flow logs.

Each zone has two subnets: `edge` routes to the internet gateway, `nodes` to a NAT gateway or not to the internet.
"""

from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_aws.cloudwatch.log_group import LogGroup, LogGroupArgs
from pulumi_aws.ec2.default_route_table import DefaultRouteTable, DefaultRouteTableArgs
from pulumi_aws.ec2.default_security_group import DefaultSecurityGroup, DefaultSecurityGroupArgs
from pulumi_aws.ec2.eip import Eip, EipArgs
from pulumi_aws.ec2.flow_log import FlowLog, FlowLogArgs
from pulumi_aws.ec2.internet_gateway import InternetGateway, InternetGatewayArgs
from pulumi_aws.ec2.nat_gateway import NatGateway, NatGatewayArgs
from pulumi_aws.ec2.route import Route, RouteArgs
from pulumi_aws.ec2.route_table import RouteTable, RouteTableArgs
from pulumi_aws.ec2.route_table_association import RouteTableAssociation, RouteTableAssociationArgs
from pulumi_aws.ec2.subnet import Subnet, SubnetArgs
from pulumi_aws.ec2.subnet_cidr_reservation import SubnetCidrReservation, SubnetCidrReservationArgs
from pulumi_aws.ec2.vpc import Vpc, VpcArgs
from pulumi_aws.ec2.vpc_endpoint import VpcEndpoint, VpcEndpointArgs
from pulumi_aws.ec2.vpc_endpoint_route_table_association import (
    VpcEndpointRouteTableAssociation,
    VpcEndpointRouteTableAssociationArgs,
)

from bedplate.permissions import Statement, arn, policy
from bedplate.plan.firewall import HTTPS, TCP, FirewallRule
from bedplate.plan.fleet import FleetPlan, RegionPlan, ZonePlan
from bedplate.plan.space import fixed_block
from bedplate.spec.network import Egress
from stacks.alarms import AlarmRule
from stacks.identity.policy import EVERYONE, FleetRole, same_account, trust_services
from stacks.network.firewall import RuleGroup
from stacks.options import child_options, name_tag


@dataclass(frozen=True, slots=True)
class ZoneInputs:
    """The resources that the subnets of a zone depend on."""

    vpc_id: pulumi.Output[str]
    edge_table_id: pulumi.Output[str]
    s3_endpoint_id: pulumi.Output[str]


class ZoneSubnets(pulumi.ComponentResource):
    """The two subnets of a zone and the route table of its nodes; neither assigns public addresses."""

    edge_id: pulumi.Output[str]
    nodes_id: pulumi.Output[str]
    nodes_table_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, zone: ZonePlan, inputs: ZoneInputs, opts: pulumi.ResourceOptions) -> None:
        self._zone, self._prefix = zone.name, f"{plan.name}-{zone.name}"
        super().__init__("bedplate:stacks:ZoneSubnets", self._prefix, None, opts)
        self.nodes_table_id = self._nodes_table(inputs)
        self.edge_id = self._subnet("edge", zone.edge, inputs.vpc_id, inputs.edge_table_id)
        nodes_id = self._subnet("nodes", zone.nodes, inputs.vpc_id, self.nodes_table_id)
        self.nodes_id = self._reserve_fixed_addresses(zone, nodes_id)
        self.register_outputs({"edge_id": self.edge_id, "nodes_id": self.nodes_id})

    def _nodes_table(self, inputs: ZoneInputs) -> pulumi.Output[str]:
        name = f"{self._prefix}-nodes"
        table = RouteTable(name, RouteTableArgs(vpc_id=inputs.vpc_id, tags=name_tag(name)), child_options(self))
        to_s3 = VpcEndpointRouteTableAssociationArgs(route_table_id=table.id, vpc_endpoint_id=inputs.s3_endpoint_id)
        VpcEndpointRouteTableAssociation(f"{name}-s3", to_s3, child_options(self))
        return table.id

    def _reserve_fixed_addresses(self, zone: ZonePlan, subnet_id: pulumi.Output[str]) -> pulumi.Output[str]:
        """Reserve the addresses that the plan assigns: AWS gives them to no other interface.

        Returns the id of the subnet: what uses it waits for the reservation.
        """
        args = SubnetCidrReservationArgs(
            subnet_id=subnet_id,
            cidr_block=str(fixed_block(zone.nodes)),
            reservation_type="explicit",
            description="Fixed addresses",
        )
        return SubnetCidrReservation(f"{self._prefix}-nodes-fixed", args, child_options(self)).subnet_id

    def _subnet(
        self, tier: str, block: IPv4Network, vpc_id: pulumi.Output[str], table_id: pulumi.Output[str]
    ) -> pulumi.Output[str]:
        name = f"{self._prefix}-{tier}"
        args = SubnetArgs(
            vpc_id=vpc_id,
            availability_zone=self._zone,
            cidr_block=str(block),
            map_public_ip_on_launch=False,
            tags=name_tag(name),
        )
        subnet = Subnet(name, args, child_options(self))
        RouteTableAssociation(
            name, RouteTableAssociationArgs(route_table_id=table_id, subnet_id=subnet.id), child_options(self)
        )
        return subnet.id


FLOW_RETENTION_DAYS = 30
_LOG_ACTIONS = ("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")


def flow_log_group(plan: FleetPlan) -> str:
    """Return the name of the flow log group, the same in each region."""
    return f"/{plan.name}/flows"


def flow_role_name(plan: FleetPlan) -> str:
    """Return the name of the flow log role: fixed, so regions need no output of `shared`."""
    return f"{plan.name}-flows"


class FlowRole(pulumi.ComponentResource):
    """The role with which flow logs write to the log groups of the fleet."""

    def __init__(self, plan: FleetPlan, opts: pulumi.ResourceOptions) -> None:
        name = flow_role_name(plan)
        super().__init__("bedplate:stacks:FlowRole", name, None, opts)
        trust = trust_services("BeFlowLogs", "vpc-flow-logs.amazonaws.com", conditions=same_account(plan))
        permissions = (find_groups_permission(plan), write_flows_permission(plan))
        FleetRole(name, f"Flow logs of the fleet {plan.name}", trust, permissions).declare(plan, self)
        self.register_outputs({})


def find_groups_permission(plan: FleetPlan) -> Statement:
    """Allow the list of log groups, which flow logs require for all groups of a region."""
    groups = tuple(sorted(arn(plan, "logs", region.name, "log-group:*") for region in plan.regions))
    return Statement(sid="FindGroups", actions=("logs:DescribeLogGroups",), resources=groups)


def write_flows_permission(plan: FleetPlan) -> Statement:
    """Allow writes to the flow log group in each region of the fleet."""
    groups = (arn(plan, "logs", region.name, f"log-group:{flow_log_group(plan)}") for region in plan.regions)
    resources = tuple(sorted(name for group in groups for name in (group, f"{group}:*")))
    return Statement(sid="WriteFlows", actions=_LOG_ACTIONS, resources=resources)


class FlowLogs(pulumi.ComponentResource):
    """The flow log of a VPC, of accepted and rejected traffic, in a log group with limited retention."""

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-flows"
        super().__init__("bedplate:stacks:FlowLogs", name, None, opts)
        group_args = LogGroupArgs(
            name=flow_log_group(plan), retention_in_days=FLOW_RETENTION_DAYS, tags=name_tag(flow_log_group(plan))
        )
        group = LogGroup(name, group_args, child_options(self))
        args = FlowLogArgs(
            vpc_id=vpc_id,
            traffic_type="ALL",
            log_destination=group.arn,
            iam_role_arn=arn(plan, "iam", "", f"role/{flow_role_name(plan)}"),
            tags=name_tag(name),
        )
        FlowLog(name, args, child_options(self))
        self.register_outputs({})


ANYWHERE = "0.0.0.0/0"


class Network(pulumi.ComponentResource):
    """The VPC of a region with its subnets; its default security group and route table are emptied."""

    vpc_id: pulumi.Output[str]
    edge_table_id: pulumi.Output[str]
    internet_gateway: InternetGateway
    zones: dict[str, ZoneSubnets]

    def __init__(self, plan: FleetPlan, region: RegionPlan, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:Network", plan.name, None, opts)
        vpc = self._vpc(plan, region)
        self.vpc_id = vpc.id
        self._empty_defaults(plan, vpc)
        FlowLogs(plan, self.vpc_id, child_options(self))
        self.internet_gateway = self._internet_gateway(plan)
        s3_id = self._s3_endpoint(plan, region)
        self.edge_table_id = self._edge_table(plan, s3_id)
        inputs = ZoneInputs(self.vpc_id, self.edge_table_id, s3_id)
        self.zones = {zone.name: ZoneSubnets(plan, zone, inputs, child_options(self)) for zone in region.zones}
        self.register_outputs({"vpc_id": self.vpc_id})

    @property
    def node_subnet_ids(self) -> dict[str, pulumi.Output[str]]:
        """The ids of the node subnets by zone, sorted by name."""
        return {zone: self.zones[zone].nodes_id for zone in sorted(self.zones)}

    @property
    def table_ids(self) -> dict[str, pulumi.Output[str]]:
        """The route tables by name: one for all edge subnets, one for the nodes of each zone."""
        node_tables = {f"{zone}-nodes": self.zones[zone].nodes_table_id for zone in sorted(self.zones)}
        return {"edge": self.edge_table_id, **node_tables}

    def _vpc(self, plan: FleetPlan, region: RegionPlan) -> Vpc:
        args = VpcArgs(
            cidr_block=str(region.block),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=name_tag(plan.name),
        )
        return Vpc(plan.name, args, child_options(self))

    def _empty_defaults(self, plan: FleetPlan, vpc: Vpc) -> None:
        name = f"{plan.name}-default"
        DefaultSecurityGroup(name, DefaultSecurityGroupArgs(vpc_id=vpc.id, tags=name_tag(name)), child_options(self))
        table = DefaultRouteTableArgs(default_route_table_id=vpc.default_route_table_id, routes=[], tags=name_tag(name))
        DefaultRouteTable(name, table, child_options(self))

    def _internet_gateway(self, plan: FleetPlan) -> InternetGateway:
        args = InternetGatewayArgs(vpc_id=self.vpc_id, tags=name_tag(plan.name))
        return InternetGateway(plan.name, args, child_options(self))

    def _edge_table(self, plan: FleetPlan, s3_id: pulumi.Output[str]) -> pulumi.Output[str]:
        name = f"{plan.name}-edge"
        table = RouteTable(name, RouteTableArgs(vpc_id=self.vpc_id, tags=name_tag(name)), child_options(self))
        internet = RouteArgs(
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=self.internet_gateway.id,
        )
        Route(f"{name}-internet", internet, child_options(self))
        to_s3 = VpcEndpointRouteTableAssociationArgs(route_table_id=table.id, vpc_endpoint_id=s3_id)
        VpcEndpointRouteTableAssociation(f"{name}-s3", to_s3, child_options(self))
        return table.id

    def _s3_endpoint(self, plan: FleetPlan, region: RegionPlan) -> pulumi.Output[str]:
        """Declare the S3 gateway endpoint: traffic to S3 costs no NAT gateway fee."""
        name = f"{plan.name}-s3"
        args = VpcEndpointArgs(
            vpc_id=self.vpc_id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{region.name}.s3",
            tags=name_tag(name),
        )
        return VpcEndpoint(name, args, child_options(self)).id


_NO_PORTS = "AWS/NATGateway:ErrorPortAllocation"


def nat_gateway_zones(egress: Egress, region: RegionPlan) -> dict[str, str]:
    """Return for each zone the zone of its NAT gateway; empty without egress.

    A shared gateway is in the zone with the lowest node block. That zone was assigned first, so adding or reordering
    zones moves no gateway.
    """
    zones = [zone.name for zone in region.zones]
    match egress:
        case Egress.PER_ZONE:
            return {zone: zone for zone in zones}
        case Egress.SHARED:
            first = min(region.zones, key=lambda zone: zone.nodes)
            return dict.fromkeys(zones, first.name)
        case Egress.NONE:
            return {}


class NatEgress(pulumi.ComponentResource):
    """The NAT gateways of a region with fixed public addresses, and the default routes of nodes."""

    addresses: dict[str, pulumi.Output[str]]

    def __init__(
        self,
        plan: FleetPlan,
        region: RegionPlan,
        network: Network,
        topic_arn: pulumi.Output[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:NatEgress", plan.name, None, opts)
        self._prefix, self._network, self._topic_arn = plan.name, network, topic_arn
        self.addresses = {}
        gateway_zones = nat_gateway_zones(plan.egress, region)
        gateways = {zone: self._gateway(zone) for zone in sorted(set(gateway_zones.values()))}
        for zone, gateway_zone in gateway_zones.items():
            self._route(zone, gateways[gateway_zone])
        self.register_outputs({"addresses": self.addresses})

    def _gateway(self, zone: str) -> pulumi.Output[str]:
        name = f"{self._prefix}-{zone}-nat"
        options = child_options(self, after=(self._network.internet_gateway,))
        address = Eip(name, EipArgs(domain="vpc", tags=name_tag(name)), options)
        self.addresses[zone] = address.public_ip
        args = NatGatewayArgs(
            allocation_id=address.id, subnet_id=self._network.zones[zone].edge_id, tags=name_tag(name)
        )
        gateway_id = NatGateway(name, args, options).id
        # Exhausted ports make connections fail at random.
        rule, about = AlarmRule(_NO_PORTS, {"NatGatewayId": gateway_id}), f"{name} has no port left for new connections"
        rule.declare(f"{name}-ports", about, self._topic_arn, child_options(self))
        return gateway_id

    def _route(self, zone: str, gateway: pulumi.Output[str]) -> None:
        args = RouteArgs(
            route_table_id=self._network.zones[zone].nodes_table_id,
            destination_cidr_block=ANYWHERE,
            nat_gateway_id=gateway,
        )
        Route(f"{self._prefix}-{zone}-nodes-internet", args, child_options(self))


class ServiceEndpoints(pulumi.ComponentResource):
    """Interface endpoints of AWS services in all node subnets, for the machines of the region."""

    def __init__(self, plan: FleetPlan, region: RegionPlan, network: Network, opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-endpoints"
        super().__init__("bedplate:stacks:ServiceEndpoints", name, None, opts)
        group = RuleGroup(name, "Services of AWS inside the network", network.vpc_id, self)
        group.allow_in(FirewallRule(f"https-from-{region.name}", f"HTTPS from {region.name}", region.block, TCP, HTTPS))
        for service in plan.endpoints:
            endpoint_name = f"{plan.name}-{service.replace('.', '-')}"
            args = VpcEndpointArgs(
                vpc_id=network.vpc_id,
                vpc_endpoint_type="Interface",
                service_name=f"com.amazonaws.{region.name}.{service}",
                subnet_ids=list(network.node_subnet_ids.values()),
                security_group_ids=[group.group_id],
                private_dns_enabled=True,
                policy=policy(*endpoint_statements(plan, service)),
                tags=name_tag(endpoint_name),
            )
            VpcEndpoint(endpoint_name, args, child_options(self))
        self.register_outputs({})


def endpoint_statements(plan: FleetPlan, service: str) -> tuple[Statement, ...]:
    """Return the policy of an endpoint: principals of this account may use the service.

    AssumeRoleWithWebIdentity and AssumeRoleWithSAML have no principal yet: for these the role must be in this account.
    """
    name = service.partition(".")[0]
    same_account = Statement(
        sid="ServeThisAccount",
        principals=EVERYONE,
        actions=(f"{name}:*",),
        resources=("*",),
        conditions={"StringEquals": {"aws:PrincipalAccount": (plan.account,)}},
    )
    tokens = Statement(
        sid="ChangeTokens",
        principals=EVERYONE,
        actions=("sts:AssumeRoleWithSAML", "sts:AssumeRoleWithWebIdentity"),
        resources=(arn(plan, "iam", "", "role/*"),),
    )
    return (same_account, tokens) if name == "sts" else (same_account,)
