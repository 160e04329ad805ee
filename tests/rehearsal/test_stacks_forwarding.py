"""Names of a site's own domain: every region asks the site's servers, by ways that are there, and asks nobody else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.cli.waves import waves
from bedplate.plan import FleetPlan
from bedplate.plan.fleet import NameServersPlan
from bedplate.reach import Fabric, Packet, read_fabric, trip
from bedplate.rehearsal import urn as urns
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.stack import World, run
from bedplate.rehearsal.step import Op
from bedplate.spec.network import Interconnect
from stacks.forwarding import forwarded
from tests.conftest import DATA
from tests.support.declared import plan_of

JOINED = plan_of(DATA / "fleets" / "joined.yaml")


@dataclass(frozen=True)
class Joined:
    """A fleet with a site's own domain, as it exists in the simulated AWS."""

    plan: FleetPlan
    world: World

    def made(self, region: str, kind: str) -> list[Entry]:
        """Return the resources of a kind in a region."""
        entries = self.world.snapshots[f"join.{region}"].entries.values()
        return [entry for entry in entries if entry.type.endswith(f":{kind}")]

    def asking(self, region: str) -> list[str]:
        """Return the addresses from which a region asks."""
        (endpoint,) = (each for each in self.made(region, "ResolverEndpoint") if each.name == "join-forward")
        return [str(each["ip"]) for each in endpoint.outputs["ipAddresses"]]


@pytest.fixture(scope="module", params=[Interconnect.TRANSIT, Interconnect.PEERING])
def joined(request: pytest.FixtureRequest) -> Iterator[Joined]:
    """Give the fleet with each interconnect in turn: behind transit gateways, and behind virtual private ones."""
    plan = replace(JOINED, interconnect=request.param)
    with running(plan.account) as simulation:
        world = World(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        yield Joined(plan, world)


@pytest.fixture(scope="module")
def fabric(joined: Joined) -> Fabric:
    """Give the network that the stacks made."""
    return read_fabric(
        node for snapshot in joined.world.snapshots.values() for node in graph(snapshot.entries.values())
    )


def _answers(fabric: Fabric, source: str, target: str, protocol: str, port: int) -> bool:
    packet = Packet(int(IPv4Address(source)), int(IPv4Address(target)), protocol, port)
    return trip(fabric, packet).answered


def test_every_region_forwards_the_domain_in_its_own_network(joined: Joined) -> None:
    """An endpoint of two addresses, a rule that names all servers, and its association with the region's VPC."""
    for region in joined.plan.regions:
        (rule,) = joined.made(region.name, "ResolverRule")
        (holds,) = joined.made(region.name, "ResolverRuleAssociation")
        (vpc,) = joined.made(region.name, "Vpc")

        assert (rule.inputs["domainName"], rule.inputs["ruleType"]) == ("cellar.example", "FORWARD")
        assert {each["ip"] for each in rule.inputs["targetIps"]} == {"192.168.40.5", "192.168.41.5"}
        assert holds.inputs["vpcId"] == vpc.ident
        assert len(joined.asking(region.name)) == 2


def test_questions_reach_the_servers_and_are_answered(joined: Joined, fabric: Fabric) -> None:
    """From each address that asks, over UDP and TCP, there and back through the tunnels."""
    for region in joined.plan.regions:
        for source in joined.asking(region.name):
            for server in ("192.168.40.5", "192.168.41.5"):
                assert _answers(fabric, source, server, "udp", 53), (source, server)
                assert _answers(fabric, source, server, "tcp", 53), (source, server)


def test_nothing_but_questions_to_servers_gets_out(joined: Joined, fabric: Fabric) -> None:
    """No other port of a server, no other machine of the site, no node, and not the internet."""
    (source, *_) = joined.asking("us-west-2")

    assert not _answers(fabric, source, "192.168.40.5", "tcp", 22)
    assert not _answers(fabric, source, "192.168.40.1", "udp", 53)
    assert not _answers(fabric, source, "10.65.32.9", "udp", 53)
    assert not _answers(fabric, source, "203.0.113.9", "udp", 53)


def test_the_site_asks_the_resolver_at_home_and_nothing_else_of_it(joined: Joined, fabric: Fabric) -> None:
    """The other direction: names of the fleet, over UDP and TCP, for machines of the site."""
    (inbound,) = (each for each in joined.made("us-west-2", "ResolverEndpoint") if each.name == "join-names")

    for address in (str(each["ip"]) for each in inbound.outputs["ipAddresses"]):
        assert _answers(fabric, "192.168.40.9", address, "udp", 53)
        assert _answers(fabric, "192.168.40.9", address, "tcp", 53)
        assert not _answers(fabric, "192.168.40.9", address, "tcp", 22)


def test_nobody_opens_a_connection_to_what_asks(joined: Joined, fabric: Fabric) -> None:
    """It asks and listens for answers alone, whoever calls."""
    (target, *_) = joined.asking("us-west-2")

    assert not _answers(fabric, "192.168.40.5", target, "udp", 53)
    assert not _answers(fabric, "10.64.32.9", target, "tcp", 53)


def test_a_second_site_with_a_domain_touches_nothing_of_the_first(joined: Joined) -> None:
    """It brings its rule, its association and its way out of the endpoint; nothing is updated, replaced or deleted."""
    cellar = joined.plan.sites[0]
    dns = NameServersPlan("attic.example", (IPv4Address("192.168.60.5"),))
    attic = replace(cellar, name="attic", lan=IPv4Network("192.168.60.0/24"), machines={}, uses={}, dns=dns)
    grown = replace(joined.plan, sites=(cellar, attic))
    stack = next(stack for wave in waves(grown) for stack in wave if stack.name == "join.us-east-1")

    steps = [step for step in run(stack, joined.world, preview=True).steps if step.is_change and step.is_in_cloud]

    assert {step.op for step in steps} == {Op.CREATE}
    assert all("attic" in urns.parse(step.urn).name for step in steps)
    assert len([step for step in steps if "resolverRule" in step.urn]) == 2


def test_a_second_run_changes_nothing(joined: Joined) -> None:
    """Endpoints and rules are in AWS what the program declares."""
    steps = [
        step for wave in waves(joined.plan) for stack in wave for step in run(stack, joined.world, preview=True).steps
    ]

    assert not [step.urn for step in steps if step.is_change]


def test_only_sites_with_a_domain_are_asked() -> None:
    """A site without a `dns` of its own costs no endpoint."""
    (cellar,) = JOINED.sites
    plans: Mapping[str, FleetPlan] = {
        "with": JOINED,
        "without": replace(JOINED, sites=(replace(cellar, dns=None),)),
    }

    assert {name: list(forwarded(plan)) for name, plan in plans.items()} == {"with": ["cellar"], "without": []}
