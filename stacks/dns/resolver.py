"""Where sites and laptops ask for the fleet's names: a resolver with addresses inside the fleet's own network."""

from collections.abc import Iterator
from ipaddress import IPv4Network

import pulumi
from pulumi_aws.route53._inputs import ResolverEndpointIpAddressArgs, ResolverRuleTargetIpArgs
from pulumi_aws.route53.resolver_endpoint import ResolverEndpoint, ResolverEndpointArgs
from pulumi_aws.route53.resolver_rule import ResolverRule, ResolverRuleArgs
from pulumi_aws.route53.resolver_rule_association import ResolverRuleAssociation, ResolverRuleAssociationArgs

from bedplate.plan.firewall import DNS, DNS_PROTOCOLS, Rule
from bedplate.plan.fleet import FleetPlan, RegionPlan
from bedplate.spec.sites import NameServers
from stacks.network.firewall import Doors
from stacks.network.vpc import Network
from stacks.options import inside, named


def askers(plan: FleetPlan) -> Iterator[Rule]:
    """Yield the rules that let in questions: from laptop pools and sites, nobody else."""
    laptops = {f"laptops-{pool.place}": pool.block for pool in plan.laptops}
    for source, block in (laptops | {f"site-{site.name}": site.lan for site in plan.sites}).items():
        for protocol in DNS_PROTOCOLS:
            yield Rule(f"{protocol}-from-{source}", f"DNS from {source}", block, protocol, DNS)


class InboundResolver(pulumi.ComponentResource):
    """Two addresses that answer sites and laptops, in two zones where the region has them."""

    addresses: pulumi.Output[list[str]]

    def __init__(self, plan: FleetPlan, region: RegionPlan, network: Network, opts: pulumi.ResourceOptions) -> None:
        self._name = f"{plan.name}-names"
        super().__init__("bedplate:stacks:InboundResolver", self._name, None, opts)
        args = ResolverEndpointArgs(
            name=self._name,
            direction="INBOUND",
            protocols=["Do53"],
            security_group_ids=[self._firewall(plan, network.vpc_id)],
            ip_addresses=[ResolverEndpointIpAddressArgs(subnet_id=ident) for ident in two_subnets(region, network)],
            tags=named(self._name),
        )
        endpoint = ResolverEndpoint(self._name, args, inside(self))
        self.addresses = endpoint.ip_addresses.apply(lambda told: sorted(str(one.ip) for one in told))
        self.register_outputs({"addresses": self.addresses})

    def _firewall(self, plan: FleetPlan, vpc_id: pulumi.Output[str]) -> pulumi.Output[str]:
        doors = Doors(self._name, "Questions for names of the fleet", vpc_id, self)
        doors.let_in(*askers(plan))
        return doors.group_id


def two_subnets(region: RegionPlan, network: Network) -> Iterator[pulumi.Output[str]]:
    """Yield two subnets: those of the zones allotted first, so that a new zone moves nothing."""
    first, *more = sorted(region.zones, key=lambda zone: zone.nodes)
    yield network.zones[first.name].nodes_id
    yield network.zones[more[0].name].nodes_id if more else network.zones[first.name].edge_id


def forwarded(plan: FleetPlan) -> dict[str, NameServers]:
    """Return the sites that have a domain of their own, by name, and who answers for it."""
    return {site.name: site.dns for site in plan.sites if site.dns}


def questions(plan: FleetPlan) -> Iterator[Rule]:
    """Yield the rules that let questions out: to the sites' servers, nowhere else."""
    for site, dns in forwarded(plan).items():
        for server in dns.servers:
            for protocol in DNS_PROTOCOLS:
                yield Rule(
                    f"{protocol}-to-{site}-{server}", f"DNS to the site {site}", IPv4Network(server), protocol, DNS
                )


class Forwarding(pulumi.ComponentResource):
    """Two addresses from which a region asks, and a rule for each site's domain that holds in its VPC."""

    def __init__(self, plan: FleetPlan, region: RegionPlan, network: Network, opts: pulumi.ResourceOptions) -> None:
        self._name = f"{plan.name}-forward"
        super().__init__("bedplate:stacks:Forwarding", self._name, None, opts)
        doors = Doors(self._name, "Questions for names of the sites", network.vpc_id, self)
        doors.let_out(*questions(plan))
        args = ResolverEndpointArgs(
            name=self._name,
            direction="OUTBOUND",
            protocols=["Do53"],
            security_group_ids=[doors.group_id],
            ip_addresses=[ResolverEndpointIpAddressArgs(subnet_id=ident) for ident in two_subnets(region, network)],
            tags=named(self._name),
        )
        endpoint_id = ResolverEndpoint(self._name, args, inside(self)).id
        for site, dns in forwarded(plan).items():
            self._forward(f"{plan.name}-{site}-names", dns, endpoint_id, network.vpc_id)
        self.register_outputs({})

    def _forward(
        self, name: str, dns: NameServers, endpoint_id: pulumi.Output[str], vpc_id: pulumi.Output[str]
    ) -> None:
        args = ResolverRuleArgs(
            name=name,
            domain_name=dns.domain,
            rule_type="FORWARD",
            resolver_endpoint_id=endpoint_id,
            target_ips=[ResolverRuleTargetIpArgs(ip=str(server), port=DNS) for server in dns.servers],
            tags=named(name),
        )
        rule = ResolverRule(name, args, inside(self))
        holds = ResolverRuleAssociationArgs(name=name, resolver_rule_id=rule.id, vpc_id=vpc_id)
        ResolverRuleAssociation(name, holds, inside(self))
