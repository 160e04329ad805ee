"""What ties regions together: each pair by itself, so that a region that comes or goes touches only its own pairs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from itertools import permutations

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.stacks import waves
from bedplate.graph.reach import Fabric, Packet, read_fabric, trip, walk
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.links import asks_here, transit_asn
from bedplate.plan.reachability import Kind, spots
from bedplate.rehearsal import state as urns
from bedplate.rehearsal.rehearse import Phase, Report, document, rehearse
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World, graph, run
from bedplate.rehearsal.state import Entry, Op
from bedplate.rehearsal.wire import masked
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import Dials, NameServers
from stacks.dns.resolver import forwarded
from tests.conftest import DATA
from tests.testlab.fleets.sketch import ZONES, laptops, sketch
from tests.testlab.fleets.variants import with_gateways, with_settings
from tests.testlab.rehearsal.programs import EXAMPLES, Declared, declared, declared_of
from tests.testlab.rehearsal.programs import plan_of as programs_plan_of

FOURTH = {**ZONES, "ap-south-1": ("ap-south-1a",)}
NOTHING = Record({})
_WAYS = {"transitGatewayId", "vpcPeeringConnectionId", "networkInterfaceId"}
GATEWAY = {"public_ip": "198.51.100.9", "private_ip": "10.67.0.9", "interface_id": "eni-9", "group_id": "sg-9"}


def plan_of(regions: Mapping[str, tuple[str, ...]], interconnect: str, record: Record = NOTHING) -> FleetPlan:
    """Return the plan of a fleet of those regions; without AWS's links, each has a gateway that joins it to others."""
    gateways = {"vpn": laptops(*({"region": name} for name in regions))} if interconnect == "none" else {}
    fleet = sketch(regions, network={"interconnect": interconnect}, **gateways)
    return plan_fleet(fleet, record, load_catalog())


@pytest.fixture(scope="module", params=["transit", "peering", "none"])
def linked(request: pytest.FixtureRequest) -> Iterator[tuple[FleetPlan, World]]:
    """Give three regions and the links between them, as they exist."""
    plan = plan_of(ZONES, request.param)
    with running(plan.account) as simulation:
        world = World(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        yield plan, world


def test_a_second_run_changes_nothing(linked: tuple[FleetPlan, World]) -> None:
    """Peerings, options and routes are in AWS what the program declares."""
    plan, world = linked

    steps = [step for wave in waves(plan) for stack in wave for step in run(stack, world, preview=True).steps]

    assert not [step.urn for step in steps if step.is_change]


def test_every_two_regions_are_led_to_each_other(linked: tuple[FleetPlan, World]) -> None:
    """However they are tied together: what answers a connection gets from every node subnet to every other."""
    plan, world = linked
    entries = (entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values())
    fabric = read_fabric(graph(entries))
    nodes = [int(spot.address) for spot in spots(plan) if spot.kind is Kind.NODES]

    answers = [walk(fabric, Packet(*pair).reply) for pair in permutations(nodes, 2)]

    assert [each.end for each in answers if not each.delivered] == []


def test_a_fourth_region_touches_no_link_of_the_other_three(linked: tuple[FleetPlan, World]) -> None:
    """It brings its own pairs and everybody's routes to it; nothing is updated, replaced or deleted."""
    plan, world = linked
    grown = plan_of(FOURTH, plan.interconnect.value, plan.recorded())
    world.exports |= {
        stack.full_name: {"vpc_id": "vpc-9", "transit_gateway_id": "tgw-9", "transit_table_id": "tgw-rtb-9"}
        | {"edge_table_id": "rtb-9", "node_table_ids": {"ap-south-1a": "rtb-8"}, "laptop_gateway": GATEWAY}
        for wave in waves(grown, ["ap-south-1"])
        for stack in wave
        if stack.name == "lab.ap-south-1"
    }
    links = next(stack for stack in waves(grown)[-1] if stack.name == "lab.links")

    steps = [step for step in run(links, world, preview=True).steps if step.is_change and step.is_in_cloud]

    assert steps
    assert {step.op for step in steps} == {Op.CREATE}
    assert all("ap-south-1" in urns.parse(step.urn).name for step in steps)


def test_a_region_that_goes_takes_only_its_own_links(linked: tuple[FleetPlan, World]) -> None:
    """The link between the two that stay, and the two themselves, are as they were but for routes to it."""
    plan, world = linked
    left = plan_of({name: ZONES[name] for name in list(ZONES)[:2]}, plan.interconnect.value, plan.recorded())
    gone = list(ZONES)[2]

    changes = [
        step
        for wave in waves(left)[1:]
        for stack in wave
        for step in run(stack, world, preview=True).steps
        if step.is_change and step.is_in_cloud
    ]

    assert {step.op for step in changes} == {Op.DELETE}
    assert all(gone in urns.parse(step.urn).name for step in changes)


def test_numbers_of_transit_gateways_follow_from_blocks_alone() -> None:
    """Each region has its own number, and keeps it whoever else is there."""
    three, four = plan_of(ZONES, "transit"), plan_of(FOURTH, "transit")
    numbers = {region.name: transit_asn(region) for region in four.regions}

    assert len(set(numbers.values())) == 4
    assert {region.name: transit_asn(region) for region in three.regions}.items() <= numbers.items()


def test_no_route_leads_further_than_the_fleet(linked: tuple[FleetPlan, World]) -> None:
    """Each table leads to the other regions' blocks, to its own, to the internet where it should, and nowhere else."""
    plan, world = linked
    blocks = {
        str(block) for block in (*(region.block for region in plan.regions), *(one.block for one in plan.laptops))
    }
    entries = [entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values()]
    lone = [entry.inputs for entry in entries if entry.type == "aws:ec2/route:Route"]

    beyond = [one["destinationCidrBlock"] for one in lone if one.keys() & _WAYS]
    inside = [entry.inputs for entry in entries if entry.type == "aws:ec2transitgateway/route:Route"]

    # Gateways lead to both blocks behind each other one, and to the pool behind themselves.
    assert len(beyond) == 3 * 4 * (5 if plan.laptops else 2)
    assert {*beyond, *(one["destinationCidrBlock"] for one in inside)} == blocks
    assert {one["destinationCidrBlock"] for one in lone} == {*blocks, "0.0.0.0/0"}


LAB = programs_plan_of(EXAMPLES / "lab.yaml")
CONNECTION = "aws:ec2/vpnConnection:VpnConnection"


def _links(plan: FleetPlan, kind: str) -> dict[str, Entry]:
    return {entry.name: entry for entry in declared(plan)["lab.links"] if entry.type == kind}


@pytest.fixture(scope="module")
def connections() -> dict[str, Entry]:
    """Give the connections of the larger example, by name."""
    return _links(LAB, CONNECTION)


def test_a_site_has_a_connection_to_each_region(connections: dict[str, Entry]) -> None:
    """Whatever becomes of one region, the site reaches the others."""
    assert set(connections) == {f"lab-cellar-{region.name}" for region in LAB.regions}


@pytest.mark.parametrize("number", [1, 2])
def test_both_tunnels_take_only_what_is_strong(number: int, connections: dict[str, Entry]) -> None:
    """AWS takes the weakest of what it is allowed, so nothing weak is allowed; and it tells what it does."""
    inputs = connections["lab-cellar-eu-north-1"].inputs

    told = {key.removeprefix(f"tunnel{number}"): value for key, value in inputs.items() if key.startswith("tunnel")}

    for phase in ("Phase1", "Phase2"):
        assert told[f"{phase}EncryptionAlgorithms"] == ["AES256-GCM-16"]
        assert told[f"{phase}IntegrityAlgorithms"] == ["SHA2-384", "SHA2-512"]
        assert told[f"{phase}DhGroupNumbers"] == [19, 20, 21]
    assert told["IkeVersions"] == ["ikev2"]
    assert (told["DpdTimeoutAction"], told["DpdTimeoutSeconds"]) == ("restart", 30)
    assert told["LogOptions"]["cloudwatchLogOptions"]["logEnabled"] is True


def test_the_inside_addresses_are_the_plans(connections: dict[str, Entry]) -> None:
    """What AWS would pick at random, the lock remembers."""
    inside = {
        (entry.name, number): entry.inputs[f"tunnel{number}InsideCidr"]
        for entry in connections.values()
        for number in (1, 2)
    }

    assert inside == {(f"lab-{one.site}-{one.region}", one.number): str(one.inside) for one in LAB.tunnels}


@pytest.mark.parametrize(("dials", "action"), [(Dials.SITE, "add"), (Dials.AWS, "start")])
def test_one_end_dials(dials: Dials, action: str) -> None:
    """AWS starts a tunnel only where the site does not."""
    plan = with_gateways(LAB, dials=dials)

    for entry in _links(plan, CONNECTION).values():
        assert {entry.inputs[f"tunnel{number}StartupAction"] for number in (1, 2)} == {action}


def test_a_number_of_four_bytes_goes_by_its_own_argument() -> None:
    """AWS has two arguments for AS numbers, and takes the large ones under the second alone."""
    plan = with_gateways(LAB, asn=2**31)

    for entry in _links(plan, "aws:ec2/customerGateway:CustomerGateway").values():
        assert entry.inputs["bgpAsnExtended"] == str(2**31)
        assert "bgpAsn" not in entry.inputs


@pytest.fixture(scope="module", params=[Interconnect.TRANSIT, Interconnect.PEERING, Interconnect.NONE])
def made(request: pytest.FixtureRequest) -> Report:
    """Give the rehearsal of two regions and a site, by each way in which regions are tied."""
    regions = tuple(region for region in LAB.regions if region.name != "eu-north-1")
    tunnels = tuple(tunnel for tunnel in LAB.tunnels if tunnel.region != "eu-north-1")
    plan = replace(LAB, regions=regions, tunnels=tunnels, pools=(), buckets=(), files=(), interconnect=request.param)
    return rehearse(plan.account, waves(plan))


def test_sites_are_rehearsed_by_each_way_in_which_regions_are_tied(made: Report) -> None:
    """With a transit gateway, or a gateway of its own in each region: made, run again without a change, and gone."""
    links = next(stack for stack in made.stacks if stack.name == "lab.links")

    assert made.ok
    assert not links.changes(Phase.AGAIN)
    assert not links.kept


def test_no_key_of_a_tunnel_is_ever_shown(made: Report) -> None:
    """Graph, report and exports hold no key in clear, though Secrets Manager holds them all."""
    snapshots = [stack.runs[Phase.CREATE].snapshot for stack in made.stacks]
    entries = [entry for snapshot in snapshots for entry in snapshot.entries.values()]
    keys = set(_keys(entries))

    shown = json.dumps([graph(entries), document(made), [masked(dict(each.exports)) for each in snapshots]])

    assert len(keys) == 4
    assert not [key for key in keys if key in shown]
    kept = [entry.inputs["secretString"].value for entry in entries if entry.type.endswith(":SecretVersion")]
    assert {key for text in kept for key in json.loads(text).values()} == keys


def _keys(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.type == CONNECTION:
            yield from (entry.outputs[f"tunnel{number}PresharedKey"].value for number in (1, 2))


SMALL = replace(programs_plan_of(EXAMPLES / "minimal.yaml"), pools=())
ALONE = replace(LAB, sites=(), laptops=())


@pytest.fixture(scope="module")
def stacks() -> Declared:
    """Give what the stacks of the larger example declare."""
    return declared_of(EXAMPLES / "lab.yaml")


def _made(stacks: Declared, part: str, kind: str) -> list[Entry]:
    return [entry for entry in stacks[f"lab.{part}"] if entry.type.endswith(f":{kind}")]


def test_what_has_an_address_has_a_name(stacks: Declared) -> None:
    """Machines of sites, gateways of laptops and file systems are reached by name from anywhere."""
    records = {one.inputs["name"]: one.inputs["records"] for one in _made(stacks, "links", "Record")}

    assert records["nas.cellar.lab.internal"] == ["192.168.40.5"]
    assert records["laptops.us-west-2.lab.internal"] == ["10.64.0.9"]
    assert records["home.files.us-west-2.lab.internal"] == ["10.64.32.9"]


def test_a_region_tells_all_that_a_mount_needs() -> None:
    """A file system by id, name and addresses."""
    with running(LAB.account) as simulation:
        world = World(simulation)
        runs = [run(stack, world) for wave in waves(SMALL) for stack in wave]

    (files,) = (done.snapshot.exports["files"] for done in runs if "files" in done.snapshot.exports)

    assert set(files["home"]) == {"id", "dns_name", "addresses"}


def test_the_address_of_a_sites_machine_leads_back_to_its_name(stacks: Declared) -> None:
    """One zone for each 256 addresses that hold a machine, seen from every region."""
    back = {one.inputs["name"]: one.inputs["records"] for one in _made(stacks, "links", "Record")}
    (zone,) = _made(stacks, "links", "Zone")
    seen = [one.inputs["vpcRegion"] for one in _made(stacks, "links", "ZoneAssociation") if zone.name in one.name]

    assert back["5.40.168.192.in-addr.arpa"] == ["nas.cellar.lab.internal"]
    assert zone.inputs["name"] == "40.168.192.in-addr.arpa"
    assert sorted(seen) == ["eu-north-1", "us-east-1"]


def test_sites_and_laptops_ask_at_home(stacks: Declared) -> None:
    """One resolver answers them all where transit gateways lead to it, in two zones, and answers nobody else."""
    (endpoint,) = _made(stacks, "us-west-2", "ResolverEndpoint")
    rules = [one.inputs for one in _made(stacks, "us-west-2", "SecurityGroupIngressRule") if "lab-names" in one.name]

    blocks = {str(block) for block in (LAB.sites[0].lan, *(pool.block for pool in LAB.laptops))}
    assert len(endpoint.inputs["ipAddresses"]) == 2
    assert {(one["ipProtocol"], one["fromPort"]) for one in rules} == {("tcp", 53), ("udp", 53)}
    assert {one["cidrIpv4"] for one in rules} == blocks


@pytest.mark.parametrize(
    ("plan", "regions"),
    [
        (LAB, ["us-west-2"]),
        (ALONE, []),
        (replace(ALONE, laptops=(replace(LAB.laptops[0], place="us-east-1"),)), ["us-west-2"]),
        (
            replace(LAB, interconnect=Interconnect.PEERING, laptops=(replace(LAB.laptops[0], place="us-east-1"),)),
            ["us-west-2", "us-east-1"],
        ),
    ],
    ids=["transit", "nobody asks", "laptops elsewhere", "laptops that no transit gateway leads home"],
)
def test_a_resolver_stands_where_somebody_asks(plan: FleetPlan, regions: list[str]) -> None:
    """Each address costs by the hour: none where nobody asks, one pair where all can reach it."""
    assert [region.name for region in plan.regions if asks_here(plan, region)] == regions


JOINED = programs_plan_of(DATA / "fleets" / "joined.yaml")


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
    dns = NameServers.model_validate({"domain": "attic.example", "servers": ("192.168.60.5",)})
    attic = with_settings(cellar, lan=IPv4Network("192.168.60.0/24"), machines={}, dns=dns)
    attic = replace(attic, name="attic")
    grown = replace(joined.plan, sites=(cellar, attic))
    stack = next(stack for wave in waves(grown) for stack in wave if stack.name == "join.us-east-1")

    steps = [step for step in run(stack, joined.world, preview=True).steps if step.is_change and step.is_in_cloud]

    assert {step.op for step in steps} == {Op.CREATE}
    assert all("attic" in urns.parse(step.urn).name for step in steps)
    assert len([step for step in steps if "resolverRule" in step.urn]) == 2


def test_stacks_forwarding_a_second_run_changes_nothing(joined: Joined) -> None:
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
        "without": replace(JOINED, sites=(with_settings(cellar, dns=None),)),
    }

    assert {name: list(forwarded(plan)) for name, plan in plans.items()} == {"with": ["cellar"], "without": []}
