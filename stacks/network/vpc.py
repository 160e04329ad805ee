"""The two subnets of an availability zone: edge, which faces the internet, and nodes, which does not."""

from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_aws.cloudwatch.log_group import LogGroup, LogGroupArgs
from pulumi_aws.cloudwatch.metric_alarm import MetricAlarm, MetricAlarmArgs
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

from bedplate.plan.firewall import HTTPS, TCP, Rule
from bedplate.plan.fleet import FleetPlan, RegionPlan, ZonePlan, fixed_block
from bedplate.spec.network import Egress
from stacks.identity.policy import Errand, Statement, arn, policy, service_role
from stacks.network.firewall import Doors
from stacks.options import inside, named


@dataclass(frozen=True, slots=True)
class VpcParts:
    """What a zone's subnets hang on: the VPC, the table of all edge subnets, the endpoint for S3."""

    vpc_id: pulumi.Output[str]
    edge_table_id: pulumi.Output[str]
    s3_endpoint_id: pulumi.Output[str]


class ZoneSubnets(pulumi.ComponentResource):
    """One zone's subnets and the nodes' own route table; neither subnet gives a machine a public address."""

    edge_id: pulumi.Output[str]
    nodes_id: pulumi.Output[str]
    nodes_table_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, zone: ZonePlan, parts: VpcParts, opts: pulumi.ResourceOptions) -> None:
        self._zone, self._prefix = zone.name, f"{plan.name}-{zone.name}"
        super().__init__("bedplate:stacks:ZoneSubnets", self._prefix, None, opts)
        self.nodes_table_id = self._nodes_table(parts)
        self.edge_id = self._subnet("edge", zone.edge, parts.vpc_id, parts.edge_table_id)
        self.nodes_id = self._subnet("nodes", zone.nodes, parts.vpc_id, self.nodes_table_id)
        self._keep_fixed(zone)
        self.register_outputs({"edge_id": self.edge_id, "nodes_id": self.nodes_id})

    def _nodes_table(self, parts: VpcParts) -> pulumi.Output[str]:
        name = f"{self._prefix}-nodes"
        table = RouteTable(name, RouteTableArgs(vpc_id=parts.vpc_id, tags=named(name)), inside(self))
        to_s3 = VpcEndpointRouteTableAssociationArgs(route_table_id=table.id, vpc_endpoint_id=parts.s3_endpoint_id)
        VpcEndpointRouteTableAssociation(f"{name}-s3", to_s3, inside(self))
        return table.id

    def _keep_fixed(self, zone: ZonePlan) -> None:
        """Keep AWS from handing out, to whatever starts there, the addresses that the plan gives out itself."""
        args = SubnetCidrReservationArgs(
            subnet_id=self.nodes_id,
            cidr_block=str(fixed_block(zone.nodes)),
            reservation_type="explicit",
            description="Fixed addresses",
        )
        SubnetCidrReservation(f"{self._prefix}-nodes-fixed", args, inside(self))

    def _subnet(
        self, tier: str, block: IPv4Network, vpc_id: pulumi.Output[str], table_id: pulumi.Output[str]
    ) -> pulumi.Output[str]:
        name = f"{self._prefix}-{tier}"
        args = SubnetArgs(
            vpc_id=vpc_id,
            availability_zone=self._zone,
            cidr_block=str(block),
            map_public_ip_on_launch=False,
            tags=named(name),
        )
        subnet = Subnet(name, args, inside(self))
        RouteTableAssociation(
            name, RouteTableAssociationArgs(route_table_id=table_id, subnet_id=subnet.id), inside(self)
        )
        return subnet.id


KEPT_DAYS = 30
_WRITE = ("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")


def group_name(plan: FleetPlan) -> str:
    """Return the log group of each region's flows."""
    return f"/{plan.name}/flows"


def role_name(plan: FleetPlan) -> str:
    """Return the name of the role that writes flows: known before `shared` makes it."""
    return f"{plan.name}-flows"


class FlowRole(pulumi.ComponentResource):
    """A role that the flow logs of this account take on, to write to the fleet's own groups."""

    def __init__(self, plan: FleetPlan, opts: pulumi.ResourceOptions) -> None:
        name = role_name(plan)
        super().__init__("bedplate:stacks:FlowRole", name, None, opts)
        errand = Errand(
            role=name,
            description=f"Flow logs of the fleet {plan.name}",
            service="vpc-flow-logs.amazonaws.com",
            sid="BeFlowLogs",
            permissions=(finding(plan), writing(plan)),
        )
        service_role(plan, errand, self)
        self.register_outputs({})


def finding(plan: FleetPlan) -> Statement:
    """Return how the role finds its group: AWS asks for the right to list them, which knows no single group."""
    groups = tuple(sorted(arn(plan, "logs", region.name, "log-group:*") for region in plan.regions))
    return Statement(sid="FindGroups", actions=("logs:DescribeLogGroups",), resources=groups)


def writing(plan: FleetPlan) -> Statement:
    """Return what the role may do: write to the group of flows, in each region of the fleet."""
    groups = (arn(plan, "logs", region.name, f"log-group:{group_name(plan)}") for region in plan.regions)
    resources = tuple(sorted(name for group in groups for name in (group, f"{group}:*")))
    return Statement(sid="WriteFlows", actions=_WRITE, resources=resources)


class FlowRecord(pulumi.ComponentResource):
    """Every flow of a VPC, refused ones too, in a log group that forgets."""

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        name = f"{plan.name}-flows"
        super().__init__("bedplate:stacks:FlowRecord", name, None, opts)
        log = LogGroupArgs(name=group_name(plan), retention_in_days=KEPT_DAYS, tags=named(group_name(plan)))
        group = LogGroup(name, log, inside(self))
        args = FlowLogArgs(
            vpc_id=vpc_id,
            traffic_type="ALL",
            log_destination=group.arn,
            iam_role_arn=arn(plan, "iam", "", f"role/{role_name(plan)}"),
            tags=named(name),
        )
        FlowLog(name, args, inside(self))
        self.register_outputs({})


ANYWHERE = "0.0.0.0/0"


class Network(pulumi.ComponentResource):
    """The VPC at the region's block; its default group and table are emptied: nothing works by accident."""

    vpc_id: pulumi.Output[str]
    edge_table_id: pulumi.Output[str]
    internet_gateway: InternetGateway
    zones: dict[str, ZoneSubnets]

    def __init__(self, plan: FleetPlan, region: RegionPlan, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:Network", plan.name, None, opts)
        vpc = self._vpc(plan, region)
        self.vpc_id = vpc.id
        self._empty_defaults(plan, vpc)
        FlowRecord(plan, self.vpc_id, inside(self))
        self.internet_gateway = self._internet_gateway(plan)
        s3_id = self._s3_endpoint(plan, region)
        self.edge_table_id = self._edge_table(plan, s3_id)
        parts = VpcParts(self.vpc_id, self.edge_table_id, s3_id)
        self.zones = {zone.name: ZoneSubnets(plan, zone, parts, inside(self)) for zone in region.zones}
        self.register_outputs({"vpc_id": self.vpc_id})

    @property
    def node_subnet_ids(self) -> dict[str, pulumi.Output[str]]:
        """The node subnets by zone, in the order of the zones' names."""
        return {zone: self.zones[zone].nodes_id for zone in sorted(self.zones)}

    @property
    def table_ids(self) -> dict[str, pulumi.Output[str]]:
        """The route tables by name: one for all edges, one for each zone's nodes."""
        of_nodes = {f"{zone}-nodes": self.zones[zone].nodes_table_id for zone in sorted(self.zones)}
        return {"edge": self.edge_table_id, **of_nodes}

    def _vpc(self, plan: FleetPlan, region: RegionPlan) -> Vpc:
        args = VpcArgs(
            cidr_block=str(region.block),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=named(plan.name),
        )
        return Vpc(plan.name, args, inside(self))

    def _empty_defaults(self, plan: FleetPlan, vpc: Vpc) -> None:
        name = f"{plan.name}-default"
        DefaultSecurityGroup(name, DefaultSecurityGroupArgs(vpc_id=vpc.id, tags=named(name)), inside(self))
        table = DefaultRouteTableArgs(default_route_table_id=vpc.default_route_table_id, routes=[], tags=named(name))
        DefaultRouteTable(name, table, inside(self))

    def _internet_gateway(self, plan: FleetPlan) -> InternetGateway:
        args = InternetGatewayArgs(vpc_id=self.vpc_id, tags=named(plan.name))
        return InternetGateway(plan.name, args, inside(self))

    def _edge_table(self, plan: FleetPlan, s3_id: pulumi.Output[str]) -> pulumi.Output[str]:
        name = f"{plan.name}-edge"
        table = RouteTable(name, RouteTableArgs(vpc_id=self.vpc_id, tags=named(name)), inside(self))
        outward = RouteArgs(
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=self.internet_gateway.id,
        )
        Route(f"{name}-internet", outward, inside(self))
        to_s3 = VpcEndpointRouteTableAssociationArgs(route_table_id=table.id, vpc_endpoint_id=s3_id)
        VpcEndpointRouteTableAssociation(f"{name}-s3", to_s3, inside(self))
        return table.id

    def _s3_endpoint(self, plan: FleetPlan, region: RegionPlan) -> pulumi.Output[str]:
        """Make the gateway endpoint by which training data reaches nodes without paying a NAT gateway."""
        name = f"{plan.name}-s3"
        args = VpcEndpointArgs(
            vpc_id=self.vpc_id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{region.name}.s3",
            tags=named(name),
        )
        return VpcEndpoint(name, args, inside(self)).id


_ALARM_SECONDS = 300


def gateway_zones(egress: Egress, region: RegionPlan) -> dict[str, str]:
    """Return, for each zone, the zone whose NAT gateway its nodes use; empty when nodes stay inside.

    A shared gateway stands in the zone of the lowest node block: that zone was allotted first, so listing
    zones in another order, or adding one, moves no gateway.
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
    """The gateways of a region, each at a fixed public address, and a default route for each zone's nodes."""

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
        via = gateway_zones(plan.egress, region)
        gateways = {zone: self._gateway(zone) for zone in sorted(set(via.values()))}
        for zone, at in via.items():
            self._route(zone, gateways[at])
        self.register_outputs({"addresses": self.addresses})

    def _gateway(self, zone: str) -> pulumi.Output[str]:
        name = f"{self._prefix}-{zone}-nat"
        ready = inside(self, after=(self._network.internet_gateway,))
        address = Eip(name, EipArgs(domain="vpc", tags=named(name)), ready)
        self.addresses[zone] = address.public_ip
        args = NatGatewayArgs(allocation_id=address.id, subnet_id=self._network.zones[zone].edge_id, tags=named(name))
        gateway_id = NatGateway(name, args, ready).id
        self._watch(name, gateway_id)
        return gateway_id

    def _watch(self, gateway: str, gateway_id: pulumi.Output[str]) -> None:
        """Ring when the gateway has no port left for a connection: nodes then see the internet fail at random."""
        name = f"{gateway}-ports"
        args = MetricAlarmArgs(
            name=name,
            alarm_description=f"{gateway} has no port left for new connections",
            namespace="AWS/NATGateway",
            metric_name="ErrorPortAllocation",
            dimensions={"NatGatewayId": gateway_id},
            statistic="Sum",
            comparison_operator="GreaterThanThreshold",
            threshold=0,
            period=_ALARM_SECONDS,
            evaluation_periods=1,
            treat_missing_data="notBreaching",
            alarm_actions=[self._topic_arn],
            ok_actions=[self._topic_arn],
            tags=named(name),
        )
        MetricAlarm(name, args, inside(self))

    def _route(self, zone: str, gateway: pulumi.Output[str]) -> None:
        args = RouteArgs(
            route_table_id=self._network.zones[zone].nodes_table_id,
            destination_cidr_block=ANYWHERE,
            nat_gateway_id=gateway,
        )
        Route(f"{self._prefix}-{zone}-nodes-internet", args, inside(self))


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
