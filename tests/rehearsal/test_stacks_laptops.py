"""The gateway that laptops dial: open to the world where it must be, and nowhere else."""

from itertools import permutations

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.stacks import waves
from bedplate.graph.reach import Packet, read_fabric, trip
from bedplate.plan import Record, plan_fleet
from bedplate.plan.cost import GATEWAY_TYPE
from bedplate.plan.reachability import SSH, Kind, reaches, spots
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World, graph, run
from bedplate.rehearsal.state import Entry
from stacks.compute.machines import gateway_zone
from tests.testlab.fleets.sketch import ZONES, laptops, sketch
from tests.testlab.rehearsal.programs import EXAMPLES, declared_of, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")


@pytest.fixture(scope="module")
def gateway() -> tuple[Entry, ...]:
    """Give what the larger example's gateway is made of."""
    stacks = declared_of(EXAMPLES / "lab.yaml")
    assert not [entry for part in ("us-east-1", "eu-north-1") for entry in stacks[f"lab.{part}"] if _is_part(entry)]
    return tuple(entry for entry in stacks["lab.us-west-2"] if _is_part(entry))


def _is_part(entry: Entry) -> bool:
    return entry.is_in_cloud and entry.name.startswith("lab-laptops")


def _only(gateway: tuple[Entry, ...], kind: str) -> Entry:
    (found,) = (entry for entry in gateway if entry.type.endswith(f":{kind}"))
    return found


def test_the_world_gets_to_openvpn_and_to_nothing_else(gateway: tuple[Entry, ...]) -> None:
    """UDP 1194, and TCP 443 where a network lets nothing else out."""
    rules = [entry.inputs for entry in gateway if entry.type.endswith(":SecurityGroupIngressRule")]

    doors = {(one["ipProtocol"], one["fromPort"], one["toPort"], one["cidrIpv4"]) for one in rules}

    assert doors == {("udp", 1194, 1194, "0.0.0.0/0"), ("tcp", 443, 443, "0.0.0.0/0")}


def test_the_gateway_forwards(gateway: tuple[Entry, ...]) -> None:
    """EC2 drops what is not addressed to the interface itself, unless it is told not to check."""
    assert _only(gateway, "NetworkInterface").inputs["sourceDestCheck"] is False


def test_one_machine_takes_over_the_interface(gateway: tuple[Entry, ...]) -> None:
    """The address stays when the machine goes, and no second machine waits for an interface that is in use."""
    group, template = _only(gateway, "Group").inputs, _only(gateway, "LaunchTemplate").inputs

    assert (group["minSize"], group["maxSize"], group["availabilityZones"]) == (1, 1, ["us-west-2a"])
    assert group["instanceMaintenancePolicy"] == {"minHealthyPercentage": 0, "maxHealthyPercentage": 100}
    assert [set(nic) for nic in template["networkInterfaces"]] == [{"deviceIndex", "networkInterfaceId"}]


def test_every_table_of_the_region_leads_to_the_pool(gateway: tuple[Entry, ...]) -> None:
    """Whoever a laptop talks to knows the way back."""
    routes = {entry.name: entry.inputs["destinationCidrBlock"] for entry in gateway if entry.type.endswith(":Route")}

    places = ["edge", *(f"{zone.name}-nodes" for zone in LAB.region("us-west-2").zones)]
    assert routes == {f"lab-laptops-from-{place}": str(LAB.laptops[0].block) for place in places}


def test_the_gateway_stands_where_its_type_is_offered() -> None:
    """Of the zones that offer it, the one allotted first; the order of the file means nothing."""
    region = LAB.region("us-west-2")

    assert gateway_zone(region, ()) == "us-west-2a"
    assert gateway_zone(region, ("us-west-2c", "us-west-2b")) == "us-west-2b"


def test_every_region_offers_the_gateways_type() -> None:
    """A pool in any region has a gateway."""
    catalog = load_catalog()

    assert set(catalog.regions_offering(GATEWAY_TYPE)) >= set(catalog.regions)


@pytest.mark.parametrize("between", [True, False], ids=["between", "apart"])
def test_laptops_of_two_regions_reach_each_other_where_the_file_asks_for_it(*, between: bool) -> None:
    """Their gateways' groups take what comes over transit gateways, of laptops alone; unasked they do not."""
    regions = {name: zones[:1] for name, zones in tuple(ZONES.items())[:2]}
    vpn = laptops(*({"region": name} for name in regions), between=between)
    plan = plan_fleet(sketch(regions, network={"interconnect": "transit"}, vpn=vpn), Record({}), load_catalog())
    with running(plan.account) as simulation:
        world = World(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
    fabric = read_fabric(graph(entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values()))
    ends = {spot.name: spot for spot in spots(plan) if spot.kind in (Kind.LAPTOPS, Kind.NODES)}
    pairs = [pair for pair in permutations(ends.values(), 2) if pair[1].kind is Kind.LAPTOPS]

    for source, target in pairs:
        packet = Packet(int(source.address), int(target.address), SSH.protocol, SSH.port)
        assert trip(fabric, packet).answered is reaches(plan, source, target), (source.name, target.name)

    assert any(reaches(plan, *pair) for pair in pairs) is between
