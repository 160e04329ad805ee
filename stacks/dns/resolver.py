"""Route 53 Resolver endpoints: inbound for laptops and sites, outbound for the domains of sites and of the cluster."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

import pulumi
from pulumi_aws.route53._inputs import ResolverEndpointIpAddressArgs, ResolverRuleTargetIpArgs
from pulumi_aws.route53.resolver_endpoint import ResolverEndpoint, ResolverEndpointArgs
from pulumi_aws.route53.resolver_rule import ResolverRule, ResolverRuleArgs
from pulumi_aws.route53.resolver_rule_association import ResolverRuleAssociation, ResolverRuleAssociationArgs

from bedplate.plan.cluster import cluster_plan
from bedplate.plan.firewall import DNS, DNS_PROTOCOLS, FirewallRule
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.plan.links import forwards_to_cluster
from stacks.network.firewall import RuleGroup
from stacks.network.vpc import Network
from stacks.options import child_options, name_tag


def inbound_rules(plan: FleetPlan) -> Iterator[FirewallRule]:
    """Yield the firewall rules that accept DNS from laptop pools and sites."""
    laptops = {f"laptops-{pool.place}": pool.block for pool in plan.laptops}
    for source, block in (laptops | {f"site-{site.name}": site.lan for site in plan.sites}).items():
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
