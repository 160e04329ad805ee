"""The VPN gateway for laptops: its ports, interface, instance and routes."""

import gzip
import re
from base64 import b64decode
from dataclasses import replace
from itertools import permutations

import pytest

from bedplate.catalog import Catalog, load_catalog
from bedplate.graph.reach import Packet, read_fabric, trip
from bedplate.operate.rehearsal import waves
from bedplate.plan import Record, plan_fleet
from bedplate.plan.cost import GATEWAY_TYPE
from bedplate.plan.planner import gateway_zone
from bedplate.plan.reachability import SSH, EndpointKind, endpoints
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, graph, run
from bedplate.rehearsal.state import Entry
from bedplate.spec.network import Egress
from stacks.compute.pool import permanent_hooks
from tests.testlab.fleets.policy import is_reachable
from tests.testlab.fleets.sketch import ZONES, laptops, sketch
from tests.testlab.rehearsal.programs import EXAMPLES, declared_of, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")


@pytest.fixture(scope="module")
def gateway() -> tuple[Entry, ...]:
    """Return the resources of the gateway in the lab example."""
    stacks = declared_of(EXAMPLES / "lab.yaml")
    assert not [entry for part in ("us-east-1", "eu-north-1") for entry in stacks[f"lab.{part}"] if _is_part(entry)]
    return tuple(entry for entry in stacks["lab.us-west-2"] if _is_part(entry))


def _is_part(entry: Entry) -> bool:
    return entry.is_in_cloud and entry.name.startswith("lab-laptops")


def _is_gateway(entry: Entry) -> bool:
    return entry.is_in_cloud and "-laptops" in entry.name


def _only(gateway: tuple[Entry, ...], kind: str) -> Entry:
    (match,) = (entry for entry in gateway if entry.type.endswith(f":{kind}"))
    return match


def test_the_internet_reaches_only_openvpn(gateway: tuple[Entry, ...]) -> None:
    """UDP 1194, and TCP 443 for networks that block UDP."""
    rules = [entry.inputs for entry in gateway if entry.type.endswith(":SecurityGroupIngressRule")]

    ports = {(rule["ipProtocol"], rule["fromPort"], rule["toPort"], rule["cidrIpv4"]) for rule in rules}

    # Its metrics are for the hub.
    (hub,) = {port for port in ports if port[:3] == ("tcp", 9100, 9100)}
    assert hub[3].endswith("/32")
    assert ports - {hub} == {("udp", 1194, 1194, "0.0.0.0/0"), ("tcp", 443, 443, "0.0.0.0/0")}


def test_the_gateway_forwards_packets(gateway: tuple[Entry, ...]) -> None:
    """Without the source and destination check, EC2 does not drop forwarded packets."""
    assert _only(gateway, "NetworkInterface").inputs["sourceDestCheck"] is False


def test_a_new_instance_takes_over_the_interface(gateway: tuple[Entry, ...]) -> None:
    """The address stays when the instance is replaced, and the old instance ends first."""
    group, template = _only(gateway, "Group").inputs, _only(gateway, "LaunchTemplate").inputs

    assert (group["minSize"], group["maxSize"], group["availabilityZones"]) == (1, 1, ["us-west-2a"])
    assert group["instanceMaintenancePolicy"] == {"minHealthyPercentage": 0, "maxHealthyPercentage": 100}
    assert [set(nic) for nic in template["networkInterfaces"]] == [{"deviceIndex", "networkInterfaceId"}]


def test_a_new_instance_configures_itself_and_gets_the_volume_of_the_former(gateway: tuple[Entry, ...]) -> None:
    """The volume is in the zone of the instance and never deleted; the hook waits for the report of the instance."""
    group, template = _only(gateway, "Group").inputs, _only(gateway, "LaunchTemplate").inputs
    volume, hook = _only(gateway, "Volume"), _only(gateway, "LifecycleHook").inputs

    assert (volume.inputs["availabilityZone"], volume.inputs["encrypted"]) == (group["availabilityZones"][0], True)
    assert (hook["name"], hook["defaultResult"], hook["heartbeatTimeout"]) == ("ready", "ABANDON", 1200)
    # The role of the instance may attach only what has its tag.
    specifications = {tag["resourceType"]: tag["tags"] for tag in template["tagSpecifications"]}
    tags = (volume.inputs["tags"], specifications["instance"])
    assert [tag["bedplate:member"] for tag in tags] == ["laptops.us-west-2"] * 2


def test_user_data_names_the_volume_and_has_no_key() -> None:
    """Every process on a machine can read user data."""
    regions = {name: zones[:1] for name, zones in tuple(ZONES.items())[:1]}
    plan = plan_fleet(sketch(regions, vpn=laptops({"region": next(iter(regions))})), Record({}), load_catalog())
    with running(plan.account) as simulation:
        world = SharedState(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
    parts = [entry for stack in world.snapshots.values() for entry in stack.entries.values() if _is_gateway(entry)]
    volume, template = (_only(tuple(parts), kind) for kind in ("Volume", "LaunchTemplate"))
    script = gzip.decompress(b64decode(template.inputs["userData"])).decode()

    assert f"readonly VOLUME={volume.ident}\n" in script
    assert "attach_volume mount_volume keep_host_key start_configuration" in script
    assert not re.findall("PRIVATE KEY|BEGIN |tls-crypt", script)


def test_an_alarm_fires_if_the_gateway_does_not_say_that_it_serves(gateway: tuple[Entry, ...]) -> None:
    """For 15 minutes; a gateway that sends nothing may be blank. Its metric is the one that the bootstrap sends."""
    alarms = {entry.name: entry.inputs for entry in gateway if entry.type.endswith(":MetricAlarm")}
    alarm = alarms["lab-laptops-serving"]

    assert (alarm["namespace"], alarm["metricName"]) == ("lab/nodes", "Serving")
    assert alarm["dimensions"] == {"AutoScalingGroupName": "lab-laptops"}
    assert (alarm["statistic"], alarm["comparisonOperator"], alarm["threshold"]) == ("Maximum", "LessThanThreshold", 1)
    assert (alarm["period"], alarm["evaluationPeriods"], alarm["treatMissingData"]) == (300, 3, "breaching")


def test_a_gateway_configures_itself_without_egress() -> None:
    """It has a public address; nodes have none and stay blank."""
    plan = plan_of(EXAMPLES / "lab.yaml")

    assert permanent_hooks(replace(plan, egress=Egress.NONE)) == ()
    assert permanent_hooks(replace(plan, egress=Egress.NONE), has_public_address=True)


def test_every_route_table_has_a_route_to_the_laptop_pool(gateway: tuple[Entry, ...]) -> None:
    """Replies to laptops reach the gateway from every subnet."""
    routes = {entry.name: entry.inputs["destinationCidrBlock"] for entry in gateway if entry.type.endswith(":Route")}

    places = ["edge", *(f"{zone.name}-nodes" for zone in LAB.region("us-west-2").zones)]
    assert routes == {f"lab-laptops-from-{place}": str(LAB.laptops[0].block) for place in places}


def test_the_gateway_is_in_a_zone_that_offers_its_type() -> None:
    """The first assigned zone of those; the order in the file does not matter."""
    region = LAB.region("us-west-2")

    assert gateway_zone(region, Catalog({}, {})) == "us-west-2a"
    assert gateway_zone(region, Catalog({}, {}, {GATEWAY_TYPE: {"us-west-2": "cb"}})) == "us-west-2b"


def test_every_region_offers_the_instance_type_of_gateways() -> None:
    """A laptop pool can be in any region."""
    catalog = load_catalog()

    assert set(catalog.regions_offering(GATEWAY_TYPE)) >= set(catalog.regions)


@pytest.mark.parametrize("between", [True, False], ids=["between", "apart"])
def test_laptops_of_two_regions_reach_each_other_if_enabled(*, between: bool) -> None:
    """With `between` the gateways accept packets of other laptops over transit gateways, else not."""
    regions = {name: zones[:1] for name, zones in tuple(ZONES.items())[:2]}
    vpn = laptops(*({"region": name} for name in regions), between=between)
    plan = plan_fleet(sketch(regions, network={"interconnect": "transit"}, vpn=vpn), Record({}), load_catalog())
    with running(plan.account) as simulation:
        world = SharedState(simulation)
        assert not [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
    fabric = read_fabric(graph(entry for snapshot in world.snapshots.values() for entry in snapshot.entries.values()))
    ends = {spot.name: spot for spot in endpoints(plan) if spot.kind in (EndpointKind.LAPTOPS, EndpointKind.NODES)}
    pairs = [pair for pair in permutations(ends.values(), 2) if pair[1].kind is EndpointKind.LAPTOPS]

    for source, target in pairs:
        packet = Packet(int(source.address), int(target.address), SSH.protocol, SSH.port)
        assert trip(fabric, packet).answered is is_reachable(plan, source, target), (source.name, target.name)

    assert any(is_reachable(plan, *pair) for pair in pairs) is between
