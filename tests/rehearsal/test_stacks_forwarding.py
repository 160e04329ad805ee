"""DNS between the fleet and a site: outbound forwarding rules in each region, and the inbound resolver at home."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.graph.reach import Fabric, Packet, read_fabric, trip
from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan
from bedplate.rehearsal import state as urns
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, graph, run
from bedplate.rehearsal.state import Entry, Op
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import NameServers
from stacks.dns import forwarded_domains
from tests.conftest import DATA
from tests.testlab.fleets.variants import with_settings
from tests.testlab.rehearsal.programs import plan_of

PLAN = plan_of(DATA / "fleets" / "joined.yaml")


@dataclass(frozen=True)
class SiteFleet:
    """A deployed fleet with a site that has a DNS domain."""

    plan: FleetPlan
    world: SharedState

    def resources(self, region: str, kind: str) -> list[Entry]:
        """Return the resources of a type in a region."""
        entries = self.world.snapshots[f"join.{region}"].entries.values()
        return [entry for entry in entries if entry.type.endswith(f":{kind}")]

    def resolver_addresses(self, region: str) -> list[str]:
        """Return the addresses of the outbound endpoint of a region."""
        (endpoint,) = (
            endpoint for endpoint in self.resources(region, "ResolverEndpoint") if endpoint.name == "join-forward"
        )
        return [str(endpoint["ip"]) for endpoint in endpoint.outputs["ipAddresses"]]


@pytest.fixture(scope="module", params=[Interconnect.TRANSIT, Interconnect.PEERING])
def fleet(request: pytest.FixtureRequest) -> Iterator[SiteFleet]:
    """Return the deployed fleet, with transit gateways and with virtual private gateways."""
    plan = replace(PLAN, interconnect=request.param)
    with running(plan.account) as simulation:
        world = SharedState(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        yield SiteFleet(plan, world)


@pytest.fixture(scope="module")
def fabric(fleet: SiteFleet) -> Fabric:
    """Return the network of the deployed resources."""
    return read_fabric(node for snapshot in fleet.world.snapshots.values() for node in graph(snapshot.entries.values()))


def _answers(fabric: Fabric, source: str, target: str, protocol: str, port: int) -> bool:
    packet = Packet(int(IPv4Address(source)), int(IPv4Address(target)), protocol, port)
    return trip(fabric, packet).answered


def test_every_region_has_a_forwarding_rule(fleet: SiteFleet) -> None:
    """An outbound endpoint with two addresses, a rule with all name servers, and its association with the VPC."""
    for region in fleet.plan.regions:
        (rule,) = fleet.resources(region.name, "ResolverRule")
        (association,) = fleet.resources(region.name, "ResolverRuleAssociation")
        (vpc,) = fleet.resources(region.name, "Vpc")

        assert (rule.inputs["domainName"], rule.inputs["ruleType"]) == ("cellar.example", "FORWARD")
        assert {target["ip"] for target in rule.inputs["targetIps"]} == {"192.168.40.5", "192.168.41.5"}
        assert association.inputs["vpcId"] == vpc.ident
        assert len(fleet.resolver_addresses(region.name)) == 2


def test_queries_reach_the_name_servers(fleet: SiteFleet, fabric: Fabric) -> None:
    """From each endpoint address, with UDP and TCP, and back through the tunnels."""
    for region in fleet.plan.regions:
        for source in fleet.resolver_addresses(region.name):
            for server in ("192.168.40.5", "192.168.41.5"):
                assert _answers(fabric, source, server, "udp", 53), (source, server)
                assert _answers(fabric, source, server, "tcp", 53), (source, server)


def test_the_endpoint_reaches_only_dns_of_name_servers(fleet: SiteFleet, fabric: Fabric) -> None:
    """No other port or machine of the site, no node, and not the internet."""
    (source, *_) = fleet.resolver_addresses("us-west-2")

    assert not _answers(fabric, source, "192.168.40.5", "tcp", 22)
    assert not _answers(fabric, source, "192.168.40.1", "udp", 53)
    assert not _answers(fabric, source, "10.65.32.9", "udp", 53)
    assert not _answers(fabric, source, "203.0.113.9", "udp", 53)


def test_the_site_reaches_only_dns_of_the_inbound_resolver(fleet: SiteFleet, fabric: Fabric) -> None:
    """Machines of the site query names of the fleet with UDP and TCP."""
    (inbound,) = (item for item in fleet.resources("us-west-2", "ResolverEndpoint") if item.name == "join-names")

    for address in (str(item["ip"]) for item in inbound.outputs["ipAddresses"]):
        assert _answers(fabric, "192.168.40.9", address, "udp", 53)
        assert _answers(fabric, "192.168.40.9", address, "tcp", 53)
        assert not _answers(fabric, "192.168.40.9", address, "tcp", 22)


def test_the_outbound_endpoint_accepts_no_connections(fleet: SiteFleet, fabric: Fabric) -> None:
    """Neither from the site nor from nodes."""
    (target, *_) = fleet.resolver_addresses("us-west-2")

    assert not _answers(fabric, "192.168.40.5", target, "udp", 53)
    assert not _answers(fabric, "10.64.32.9", target, "tcp", 53)


def test_a_second_site_with_a_domain_changes_nothing_of_the_first(fleet: SiteFleet) -> None:
    """Its rule, association and firewall rules are created; nothing is updated, replaced or deleted."""
    cellar = fleet.plan.sites[0]
    dns = NameServers.model_validate({"domain": "attic.example", "servers": ("192.168.60.5",)})
    attic = with_settings(cellar, lan=IPv4Network("192.168.60.0/24"), machines={}, dns=dns)
    attic = replace(attic, name="attic")
    grown = replace(fleet.plan, sites=(cellar, attic))
    stack = next(stack for wave in waves(grown) for stack in wave if stack.name == "join.us-east-1")

    steps = [step for step in run(stack, fleet.world, preview=True).steps if step.is_change and step.is_in_cloud]

    assert {step.op for step in steps} == {Op.CREATE}
    assert all("attic" in urns.parse_urn(step.urn).name for step in steps)
    assert len([step for step in steps if "resolverRule" in step.urn]) == 2


def test_a_second_run_changes_nothing(fleet: SiteFleet) -> None:
    """Endpoints and rules in AWS match the program."""
    steps = [
        step for wave in waves(fleet.plan) for stack in wave for step in run(stack, fleet.world, preview=True).steps
    ]

    assert not [step.urn for step in steps if step.is_change]


def test_only_sites_with_a_domain_need_an_endpoint() -> None:
    """A site without `dns` needs no endpoint."""
    (cellar,) = PLAN.sites
    plans: Mapping[str, FleetPlan] = {
        "with": PLAN,
        "without": replace(PLAN, sites=(with_settings(cellar, dns=None),)),
    }

    domains = {name: [item.name for item in forwarded_domains(plan, plan.home)] for name, plan in plans.items()}
    assert domains == {"with": ["cellar"], "without": []}
