"""Route 53: the private zone, its records, reverse zones, and resolver endpoints for laptops, sites and the cluster."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network

import pulumi
from pulumi_aws.iam.role_policy import RolePolicy, RolePolicyArgs
from pulumi_aws.route53._inputs import ResolverEndpointIpAddressArgs, ResolverRuleTargetIpArgs, ZoneVpcArgs
from pulumi_aws.route53.record import Record, RecordArgs
from pulumi_aws.route53.resolver_endpoint import ResolverEndpoint, ResolverEndpointArgs
from pulumi_aws.route53.resolver_rule import ResolverRule, ResolverRuleArgs
from pulumi_aws.route53.resolver_rule_association import ResolverRuleAssociation, ResolverRuleAssociationArgs
from pulumi_aws.route53.zone import Zone, ZoneArgs
from pulumi_aws.route53.zone_association import ZoneAssociation, ZoneAssociationArgs
from pulumi_aws.ssm.parameter import Parameter, ParameterArgs

from bedplate.permissions import HUB, policy, registration_permissions
from bedplate.plan.cluster import cluster_plan
from bedplate.plan.firewall import DNS, DNS_PROTOCOLS, FirewallRule
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.hub import HUB_HOST
from bedplate.plan.links import api_name, forwards_to_cluster, ssh_pools
from stacks.network.firewall import RuleGroup
from stacks.network.transit import RegionStack
from stacks.network.vpc import Network
from stacks.options import child_options, name_tag, output_of


class PrivateZone(pulumi.ComponentResource):
    """The private zone of the fleet, associated with the home VPC; `links` associates the other VPCs."""

    zone_id: pulumi.Output[str]

    def __init__(self, plan: FleetPlan, vpc_id: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:PrivateZone", plan.name, None, opts)
        args = ZoneArgs(
            name=plan.domain,
            comment=f"Names of the fleet {plan.name}",
            vpcs=[ZoneVpcArgs(vpc_id=vpc_id, vpc_region=plan.home.name)],
            tags=name_tag(plan.name),
            # Nodes register records in the zone, and AWS deletes no zone with records.
            force_destroy=True,
        )
        self.zone_id = Zone(plan.name, args, child_options(self, ignore=("vpcs",))).zone_id
        self.register_outputs({"zone_id": self.zone_id})


def associate(
    name: str, zone_id: pulumi.Output[str], stacks: Mapping[str, RegionStack], parent: pulumi.Resource
) -> None:
    """Associate a zone with the VPCs of all regions but the home region."""
    for stack in (stack for stack in stacks.values() if not stack.region.home):
        args = ZoneAssociationArgs(zone_id=zone_id, vpc_id=stack.output("vpc_id"), vpc_region=stack.name)
        ZoneAssociation(f"{name}-{stack.name}", args, child_options(parent))


class ZoneAssociations(pulumi.ComponentResource):
    """Associations of the private zone with the VPCs of all other regions."""

    def __init__(self, plan: FleetPlan, stacks: Mapping[str, RegionStack], opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:ZoneAssociations", plan.name, None, opts)
        associate(plan.name, stacks[plan.home.name].output("zone_id"), stacks, self)
        self.register_outputs({})


TTL_SECONDS = 300
# Clients try all addresses of the API in turn; the short TTL removes an old address within a minute.
API_TTL_SECONDS = 60
Addresses = pulumi.Input[list[pulumi.Input[str]]]


class FleetRecords(pulumi.ComponentResource):
    """A records of machines, gateways and file systems, as `<name>.<place>.<domain>`."""

    def __init__(
        self,
        plan: FleetPlan,
        zone_id: pulumi.Output[str],
        names: Mapping[str, Addresses],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:FleetRecords", plan.name, None, opts)
        for name, addresses in names.items():
            full_name = f"{name}.{plan.domain}"
            ttl = API_TTL_SECONDS if full_name == api_name(plan) else TTL_SECONDS
            args = RecordArgs(zone_id=zone_id, name=full_name, type="A", ttl=ttl, records=addresses)
            Record(f"{plan.name}-{name}", args, child_options(self))
        self.register_outputs({})


def home_records(
    plan: FleetPlan, gateway: pulumi.Output[str] | None, files: Mapping[str, Addresses]
) -> dict[str, Addresses]:
    """Return the addresses by name: those that the plan assigns, and the VPN gateway and file systems of home.

    The EFS name of a file system resolves only in its region, so its record has the addresses of its mount targets.
    """
    names: dict[str, Addresses] = {name: [str(address)] for name, address in plan.addresses.items()}
    if plan.control_plane:
        names[api_name(plan).removesuffix(f".{plan.domain}")] = [
            str(member.address) for member in plan.control_plane.members
        ]
    if plan.hub:
        names[HUB_HOST] = [str(plan.hub.address)]
    if gateway is not None:
        names[f"laptops.{plan.home.name}"] = [gateway]
    return names | {f"{store}.files.{plan.home.name}": addresses for store, addresses in files.items()}


def remote_records(plan: FleetPlan, stacks: Mapping[str, RegionStack]) -> dict[str, Addresses]:
    """Return the addresses of the VPN gateways and file systems of other regions by name."""
    remote = {name: stack for name, stack in stacks.items() if not stack.region.home}
    names: dict[str, Addresses] = {
        f"laptops.{pool.place}": [remote[pool.place].output("laptop_gateway")["private_ip"]]
        for pool in plan.laptops
        if pool.place in remote
    }
    for files in (files for files in plan.files if files.region in remote):
        names[f"{files.store}.files.{files.region}"] = remote[files.region].output("files")[files.store]["addresses"]
    return names


def reverse_names(plan: FleetPlan) -> dict[str, dict[str, str]]:
    """Return the reverse zones of site machines, of 256 addresses each: record label -> host name."""
    zones: dict[str, dict[str, str]] = {}
    for name, address in plan.site_addresses.items():
        label, _, zone = address.reverse_pointer.partition(".")
        zones.setdefault(zone, {})[label] = f"{name}.{plan.domain}"
    return zones


class ReverseZone(pulumi.ComponentResource):
    """One reverse zone, associated with the VPCs of all regions."""

    def __init__(
        self,
        plan: FleetPlan,
        zone: str,
        names: Mapping[str, str],
        stacks: Mapping[str, RegionStack],
        opts: pulumi.ResourceOptions,
    ) -> None:
        name = f"{plan.name}-{zone}"
        super().__init__("bedplate:stacks:ReverseZone", name, None, opts)
        home = stacks[plan.home.name]
        args = ZoneArgs(
            name=zone,
            comment=f"Addresses of the fleet {plan.name}",
            vpcs=[ZoneVpcArgs(vpc_id=home.output("vpc_id"), vpc_region=home.name)],
            tags=name_tag(name),
        )
        zone_id = Zone(name, args, child_options(self, ignore=("vpcs",))).zone_id
        associate(name, zone_id, stacks, self)
        for label, host in names.items():
            record = RecordArgs(zone_id=zone_id, name=f"{label}.{zone}", type="PTR", ttl=TTL_SECONDS, records=[host])
            Record(f"{name}-{label}", record, child_options(self))
        self.register_outputs({})


class NodeNameRegistration(pulumi.ComponentResource):
    """The zone id as an SSM parameter, and who uses the zone: SSH nodes register their names, the hub reads them."""

    def __init__(
        self,
        plan: FleetPlan,
        zone_id: pulumi.Output[str],
        shared: pulumi.StackReference,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("bedplate:stacks:NodeNameRegistration", plan.name, None, opts)
        path = f"/{plan.name}/zone"
        parameter = ParameterArgs(
            name=path,
            type="SecureString",
            key_id=output_of(shared, "parameter_key_arn"),
            value=zone_id,
            tags=name_tag(path),
        )
        Parameter(path.removeprefix("/").replace("/", "-"), parameter, child_options(self))
        hub = {HUB} if plan.hub and plan.hub.region else set()
        for kind in sorted({pool.use.value for pool in ssh_pools(plan)} | hub):
            role = f"{plan.name}-{kind}"
            statements = zone_id.apply(partial(registration_permissions, plan, kind=kind))
            permissions = statements.apply(lambda allowed: policy(*allowed))
            RolePolicy(
                f"{role}-names",
                RolePolicyArgs(name=f"{role}-names", role=role, policy=permissions),
                child_options(self),
            )
        self.register_outputs({})


def inbound_rules(plan: FleetPlan) -> Iterator[FirewallRule]:
    """Yield the firewall rules that accept DNS from laptop pools and sites."""
    laptops = {f"laptops-{pool.place}": pool.block for pool in plan.laptops}
    sites = {f"site-{name}": block for site in plan.sites for name, block in site.networks.items()}
    for source, block in (laptops | sites).items():
        for protocol in DNS_PROTOCOLS:
            yield FirewallRule(f"{protocol}-from-{source}", f"DNS from {source}", block, protocol, DNS)


class InboundResolver(pulumi.ComponentResource):
    """An inbound endpoint with two addresses, in two zones if the region has two."""

    addresses: pulumi.Output[list[str]]

    def __init__(self, plan: FleetPlan, region: RegionPlan, network: Network, opts: pulumi.ResourceOptions) -> None:
        self._name = f"{plan.name}-names"
        super().__init__("bedplate:stacks:InboundResolver", self._name, None, opts)
        args = ResolverEndpointArgs(
            name=self._name,
            direction="INBOUND",
            protocols=["Do53"],
            security_group_ids=[self._firewall(plan, network.vpc_id)],
            ip_addresses=[
                ResolverEndpointIpAddressArgs(subnet_id=subnet_id) for subnet_id in resolver_subnets(region, network)
            ],
            tags=name_tag(self._name),
        )
        endpoint = ResolverEndpoint(self._name, args, child_options(self))
        self.addresses = endpoint.ip_addresses.apply(lambda blocks: sorted(str(block.ip) for block in blocks))
        self.register_outputs({"addresses": self.addresses})

    def _firewall(self, plan: FleetPlan, vpc_id: pulumi.Output[str]) -> pulumi.Output[str]:
        group = RuleGroup(self._name, "Questions for names of the fleet", vpc_id, self)
        group.allow_in(*inbound_rules(plan))
        return group.group_id


def resolver_subnets(region: RegionPlan, network: Network) -> Iterator[pulumi.Output[str]]:
    """Yield two subnets, of the zones assigned first: a new zone moves no address."""
    first, *others = sorted(region.zones, key=lambda zone: zone.nodes)
    yield network.zones[first.name].nodes_id
    yield network.zones[others[0].name].nodes_id if others else network.zones[first.name].edge_id


@dataclass(frozen=True, slots=True)
class ForwardedDomain:
    """A domain that others answer: `name` is that of its rule, `owner` is for people."""

    name: str
    owner: str
    domain: str
    servers: tuple[IPv4Address, ...]


def forwarded_domains(plan: FleetPlan, region: RegionPlan) -> Iterator[ForwardedDomain]:
    """Yield the domains of sites, and in the home region that of the cluster if laptops and sites reach pods."""
    for site in plan.sites:
        if site.dns:
            yield ForwardedDomain(site.name, f"the site {site.name}", site.dns.domain, tuple(site.dns.servers))
    cluster = cluster_plan(plan)
    if cluster and forwards_to_cluster(plan, region):
        # No site can have a name with an underscore.
        yield ForwardedDomain("cluster_pods", "the cluster", cluster.short_domain, (cluster.dns,))


def outbound_rules(domains: Iterable[ForwardedDomain]) -> Iterator[FirewallRule]:
    """Yield the firewall rules that allow DNS to the name servers of forwarded domains."""
    for domain in domains:
        for server in domain.servers:
            for protocol in DNS_PROTOCOLS:
                name, about = f"{protocol}-to-{domain.name}-{server}", f"DNS to {domain.owner}"
                yield FirewallRule(name, about, IPv4Network(server), protocol, DNS)


class OutboundResolver(pulumi.ComponentResource):
    """An outbound endpoint with two addresses, and a forwarding rule for each domain that others answer."""

    def __init__(self, plan: FleetPlan, region: RegionPlan, network: Network, opts: pulumi.ResourceOptions) -> None:
        self._name = f"{plan.name}-forward"
        super().__init__("bedplate:stacks:OutboundResolver", self._name, None, opts)
        domains = tuple(forwarded_domains(plan, region))
        group = RuleGroup(self._name, "Questions for names of the sites", network.vpc_id, self)
        group.allow_out(*outbound_rules(domains))
        args = ResolverEndpointArgs(
            name=self._name,
            direction="OUTBOUND",
            protocols=["Do53"],
            security_group_ids=[group.group_id],
            ip_addresses=[
                ResolverEndpointIpAddressArgs(subnet_id=subnet_id) for subnet_id in resolver_subnets(region, network)
            ],
            tags=name_tag(self._name),
        )
        endpoint_id = ResolverEndpoint(self._name, args, child_options(self)).id
        for domain in domains:
            self._declare_rule(f"{plan.name}-{domain.name}-names", domain, endpoint_id, network.vpc_id)
        self.register_outputs({})

    def _declare_rule(
        self, name: str, forwarded: ForwardedDomain, endpoint_id: pulumi.Output[str], vpc_id: pulumi.Output[str]
    ) -> None:
        args = ResolverRuleArgs(
            name=name,
            domain_name=forwarded.domain,
            rule_type="FORWARD",
            resolver_endpoint_id=endpoint_id,
            target_ips=[ResolverRuleTargetIpArgs(ip=str(server), port=DNS) for server in forwarded.servers],
            tags=name_tag(name),
        )
        rule = ResolverRule(name, args, child_options(self))
        association = ResolverRuleAssociationArgs(name=name, resolver_rule_id=rule.id, vpc_id=vpc_id)
        ResolverRuleAssociation(name, association, child_options(self))
