"""Sites that their gateways join without AWS: which, inside which block, who dials, and who says so."""

import json
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.picture import picture
from bedplate.plan import FleetPlan, Record, bill, plan_fleet
from bedplate.plan.firewall import control_rules, node_rules
from bedplate.plan.links import highest, is_led, joined_regions, joint_of, pairs, peers_of, ssh_patterns
from bedplate.plan.nodes import Duty, standing_nodes
from bedplate.plan.reachability import (
    API,
    Flow,
    Kind,
    Spot,
    carries,
    flow_of,
    reaches,
    refused_by_gateway,
    spot_at,
    spot_of,
    spots,
)
from bedplate.report.cost import price_lines
from bedplate.report.plan import plan_lines
from stacks.compute.template import first_boot
from stacks.identity.policy import policy
from stacks.network.vpc import users
from tests.conftest import DATA
from tests.testlab.fleets.sketch import ZONES, catalog, group, sketch
from tests.testlab.fleets.variants import (
    ALONE,
    ATTIC,
    CELLAR,
    JOINED_FLEET_TEXT,
    JOINS,
    LOFT,
    NORTH,
    PUBLIC,
    REGION,
    TEXT,
    direct_gateway,
    direct_plan,
    joined_plan,
)
from tests.testlab.fleets.variants import WEST as VARIANTS_WEST
from tests.testlab.rehearsal.programs import EXAMPLES, declared, plan_of
from vpn.sites.files import bgp_of
from vpn.sites.gateway import Tunnel

PLAN = direct_plan()
HIDDEN = direct_plan(TEXT.replace("asn: 65010", "asn: 65010, behind_nat: true"))


def _direct(plan: FleetPlan, site: str) -> Tunnel:
    return next(one for one in direct_gateway(plan, site).tunnels if one.name.endswith("-site"))


def test_a_joint_is_one_tunnel_whichever_site_says_it() -> None:
    """Between the two in the alphabet's order, in a block of its own beside those of tunnels to AWS."""
    (direct,) = PLAN.directs
    turned = direct_plan(TEXT.replace(JOINS, "").replace("asn: 65010", "asn: 65010, joins: [attic]"))

    assert direct.sites == (ATTIC, CELLAR)
    assert turned.directs == PLAN.directs
    assert PLAN.blocks[f"tunnel/{ATTIC}/{CELLAR}"] == direct.inside == IPv4Network("169.254.64.16/30")
    assert pairs(PLAN) == (frozenset((ATTIC, CELLAR)),)


def test_a_site_that_comes_moves_no_block_of_another() -> None:
    """Neither of a direct tunnel, nor of one to AWS; and a tunnel that goes leaves its block held."""
    recorded = PLAN.recorded()
    more = direct_plan(TEXT + LOFT, recorded)
    fewer = direct_plan(TEXT.replace(JOINS, ""), recorded)

    assert {path: more.blocks[path] for path in PLAN.blocks} == PLAN.blocks
    assert [each.sites for each in more.directs] == [(ATTIC, CELLAR), (ATTIC, "loft"), (CELLAR, "loft")]
    assert not fewer.directs
    assert f"tunnel/{ATTIC}/{CELLAR}" in fewer.retired


def test_one_of_two_dials() -> None:
    """The first in the alphabet, unless the other alone cannot be dialled: both ends agree."""
    assert [plan.directs[0].dials for plan in (PLAN, HIDDEN)] == [ATTIC, CELLAR]
    for plan in (PLAN, HIDDEN):
        assert {site: _direct(plan, site).dials for site in (ATTIC, CELLAR)} == {
            site: plan.directs[0].dials == site for site in (ATTIC, CELLAR)
        }


def test_both_ends_mean_the_same_tunnel() -> None:
    """Each calls itself what the other expects, at its public address, with the two addresses of one block."""
    near, far = (_direct(PLAN, site) for site in (ATTIC, CELLAR))

    assert (near.near, near.far) == (far.far, far.near)
    assert near.near.identity == "tunnels.attic.rooms.internal"
    assert near.far.outside == IPv4Address("8.20.30.40")
    assert near.number == far.number
    assert {each.number for each in direct_gateway(PLAN, ATTIC).tunnels} > {near.number}
    assert near.near.inside is not None
    assert near.far.inside is not None
    assert {near.near.inside.ip, near.far.inside.ip} == set(PLAN.directs[0].inside.hosts())


def test_the_direct_way_is_preferred_to_that_by_aws() -> None:
    """BGP believes of the far site's own blocks what it tells itself, before what a region tells of them."""
    told = bgp_of(direct_gateway(PLAN, ATTIC))
    assert told
    lines = told.text.splitlines()

    assert "ip prefix-list cellar-site-first permit 192.168.40.0/22 le 32" in lines
    assert f"ip prefix-list {REGION}-1 permit 192.168.40.0/22 le 32" in lines
    assert f"ip prefix-list {REGION}-1-first permit 192.168.40.0/22 le 32" not in lines
    assert not [line for line in lines if line.startswith("ip prefix-list cellar-site") and "10.64" in line]
    assert " neighbor 169.254.64.18 remote-as 65010" in lines


def test_joined_sites_trust_each_other_as_places_that_are_led_to() -> None:
    """Their gateways lead to each other's LAN, and whoever watches machines there may ask here."""
    apart = direct_plan(TEXT.replace(JOINS, ""))
    (door,) = (node for node in standing_nodes(PLAN) if node.name == "door.attic")

    assert [is_led(plan, ATTIC, CELLAR) for plan in (PLAN, apart)] == [True, False]
    (bgp,) = (rule for rule in door.doors if rule.name.startswith("bgp"))
    assert (bgp.block, bgp.port) == (PLAN.directs[0].inside, 179)
    assert door.duties == {Duty.TUNNELS}
    assert IPv4Network("192.168.40.0/22") in door.elsewhere
    assert {"ike-500", "ike-4500", "esp", "metrics-from-cellar", "bgp-from-cellar"} <= {
        rule.name for rule in door.doors
    }


def test_the_plan_tells_of_it() -> None:
    """In its words, with who dials, at both sites; and in the picture, by its block."""
    text = "\n".join(plan_lines(PLAN))

    assert text.count("direct tunnel 169.254.64.16/30, initiated by attic") == 2
    assert "+   peer" in text
    assert picture(PLAN).count("169.254.64.16/30") == 2


PLAN_JOINT_PLAN = joined_plan()
ONE = joined_plan(text=JOINED_FLEET_TEXT.replace(", {region: eu-north-1}]", "]"))
_CLUSTER = 'kubernetes: {version: "1.36", control_plane: {type: m7i.xlarge}}\n'


def _spot(name: str) -> Spot:
    return next(spot for spot in spots(PLAN_JOINT_PLAN) if spot.name == name)


def test_regions_with_a_gateway_are_joined() -> None:
    """Every two of them, and no other; one gateway alone joins nothing."""
    assert joined_regions(PLAN_JOINT_PLAN) == (VARIANTS_WEST, NORTH)
    assert joined_regions(ONE) == ()
    assert [(one, is_led(PLAN_JOINT_PLAN, VARIANTS_WEST, one)) for one in (NORTH, ALONE)] == [
        (NORTH, True),
        (ALONE, False),
    ]
    assert not is_led(ONE, VARIANTS_WEST, NORTH)


@pytest.mark.parametrize("interconnect", ["transit", "peering"])
def test_where_aws_joins_regions_gateways_do_not(interconnect: str) -> None:
    """There is one way between two regions, and no gateway has another's doors."""
    plan = joined_plan(text=JOINED_FLEET_TEXT.replace("interconnect: none", f"interconnect: {interconnect}"))

    assert joined_regions(plan) == ()
    assert is_led(plan, VARIANTS_WEST, ALONE)
    assert not [node for node in standing_nodes(plan) if Duty.JOINT in node.duties]


def test_a_peer_is_told_by_what_lies_behind_it() -> None:
    """Its recorded address, its region's block, its laptops' pool, and an address of its own that answers."""
    (peer,) = peers_of(PLAN_JOINT_PLAN, VARIANTS_WEST)

    assert (peer.region, peer.public) == (NORTH, PUBLIC[NORTH])
    assert peer.blocks == (PLAN_JOINT_PLAN.region(NORTH).block, PLAN_JOINT_PLAN.blocks[f"pool/{NORTH}"])
    assert peer.echo in PLAN_JOINT_PLAN.blocks[f"pool/{NORTH}"]
    assert peers_of(PLAN_JOINT_PLAN, ALONE) == ()
    with pytest.raises(KeyError):
        joint_of(PLAN_JOINT_PLAN, ALONE)


def test_an_address_that_is_not_recorded_is_not_made_up() -> None:
    """The plan of a fleet that was never deployed knows its peers, and not where they are dialled."""
    assert [peer.public for peer in peers_of(joined_plan(Record({})), VARIANTS_WEST)] == [None]


def test_a_joined_gateway_leads_to_its_peers_blocks_alone() -> None:
    """It is the machine that the guard is for, and lets IKE in; ESP comes within UDP to a translated address."""
    node = next(node for node in standing_nodes(PLAN_JOINT_PLAN) if node.name == f"laptops.{VARIANTS_WEST}")

    assert node.duties == {Duty.LAPTOPS, Duty.JOINT}
    assert node.elsewhere == peers_of(PLAN_JOINT_PLAN, VARIANTS_WEST)[0].blocks
    assert {"ike-500", "ike-4500"} <= {rule.name for rule in node.doors}
    assert "esp" not in {rule.name for rule in node.doors}
    lone = next(node for node in standing_nodes(ONE) if node.name == f"laptops.{VARIANTS_WEST}")
    assert lone.duties == {Duty.LAPTOPS}
    assert not lone.elsewhere
    assert not [rule for rule in lone.doors if rule.name.startswith("ike")]


def test_doors_know_the_nodes_that_come_over_tunnels() -> None:
    """Of joined regions, and of no other; the API server too."""
    plan = joined_plan(text=JOINED_FLEET_TEXT + _CLUSTER)

    for rules in (node_rules(plan, plan.home), control_rules(plan)):
        names = [rule.name for rule in rules if "-from-nodes-" in rule.name]
        assert names
        assert all(NORTH in name for name in names)
    assert not [rule for rule in node_rules(plan, plan.region(ALONE)) if "-from-nodes-" in rule.name]


def test_what_gateways_carry_is_intended() -> None:
    """Nodes and laptops reach nodes of joined regions; nothing reaches a region that stays alone."""
    west, north, alone = (_spot(f"{region}a/nodes") for region in (VARIANTS_WEST, NORTH, ALONE))
    laptop = _spot(f"laptops.{VARIANTS_WEST}")

    assert all(reaches(PLAN_JOINT_PLAN, *pair) for pair in ((west, north), (north, west), (laptop, north)))
    assert not any(carries(PLAN_JOINT_PLAN, *pair) for pair in ((west, alone), (alone, north), (laptop, alone)))
    assert not reaches(PLAN_JOINT_PLAN, laptop, north, API)


def test_laptops_reach_each_other_where_the_file_asks_for_it() -> None:
    """Nobody else reaches one, and no laptop does where it is not asked for."""
    plan = joined_plan(text=JOINED_FLEET_TEXT.replace("pool: /22", "pool: /22, between: true"))
    node, one, other = (
        _spot(name) for name in (f"{VARIANTS_WEST}a/nodes", f"laptops.{VARIANTS_WEST}", f"laptops.{NORTH}")
    )

    assert reaches(plan, one, other)
    assert not refused_by_gateway(plan, one, other)
    assert not reaches(plan, node, other)
    assert refused_by_gateway(plan, node, other)
    assert not reaches(PLAN_JOINT_PLAN, one, other)


def test_laptops_are_guarded_by_their_gateway_where_no_security_group_can() -> None:
    """Whoever sends by a gateway gets as far as its filter, which lets nobody through to a laptop."""
    laptops = [spot for spot in spots(PLAN_JOINT_PLAN) if spot.kind is Kind.LAPTOPS]
    assert len(laptops) == 2

    for target in laptops:
        assert refused_by_gateway(PLAN_JOINT_PLAN, _spot(f"{NORTH}a/nodes"), target)
        assert not refused_by_gateway(PLAN_JOINT_PLAN, _spot(f"{ALONE}a/nodes"), target)
        assert not refused_by_gateway(PLAN_JOINT_PLAN, _spot(f"{NORTH}a/edge"), target)
        assert not any(reaches(PLAN_JOINT_PLAN, source, target) for source in spots(PLAN_JOINT_PLAN))


JOINED: Path = DATA / "fleets" / "joined.yaml"
PLAN_ENDPOINTS_PLAN = plan_of(JOINED)
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"


def test_a_word_is_every_service_that_its_use_needs() -> None:
    """A pull asks ECR twice over, a session two parts of Systems Manager; the order is the file's."""
    assert PLAN_ENDPOINTS_PLAN.endpoints == ("ecr.api", "ecr.dkr", "ssm", "ssmmessages", "sts", "logs")


def test_a_fleet_that_asks_for_none_has_none() -> None:
    """Left out, nothing is paid and nothing is said."""
    plain = plan_fleet(sketch(ZONES), Record({}), catalog())

    assert plain.endpoints == ()
    assert not [line for line in price_lines(bill(plain, load_catalog())) if line.startswith("endpoints")]


def test_every_service_is_paid_for_in_every_zone() -> None:
    """Six services in three zones, at a cent an hour, for 730 hours."""
    lines = price_lines(bill(PLAN_ENDPOINTS_PLAN, load_catalog()))

    assert "of which interface endpoints: 131.40 USD/month (18 interfaces)" in lines


def test_an_endpoint_has_an_interface_in_each_zone_and_the_services_own_name() -> None:
    """In the nodes' subnets; what calls the service by its name comes to the endpoint."""
    stacks = declared(PLAN_ENDPOINTS_PLAN)

    for region in PLAN_ENDPOINTS_PLAN.regions:
        made = [each.inputs for each in stacks[f"join.{region.name}"] if each.type == ENDPOINT]
        interfaces = [each for each in made if each["vpcEndpointType"] == "Interface"]
        assert {each["serviceName"] for each in interfaces} == {
            f"com.amazonaws.{region.name}.{service}" for service in PLAN_ENDPOINTS_PLAN.endpoints
        }
        assert all(each["privateDnsEnabled"] and len(each["subnetIds"]) == len(region.zones) for each in interfaces)


def test_only_the_region_itself_gets_in_and_only_by_https() -> None:
    """One rule, of the region's own block; an endpoint opens no connection."""
    entries = declared(PLAN_ENDPOINTS_PLAN)["join.us-west-2"]

    rules = [each for each in entries if "SecurityGroup" in each.type and each.name.startswith("join-endpoints-")]

    (rule,) = (each.inputs for each in rules)
    assert (rule["cidrIpv4"], rule["ipProtocol"], rule["fromPort"], rule["toPort"]) == ("10.64.0.0/16", "tcp", 443, 443)


@pytest.mark.parametrize("service", PLAN_ENDPOINTS_PLAN.endpoints)
def test_an_endpoint_serves_this_account_and_its_own_service(service: str) -> None:
    """Credentials of another account's cannot carry data out by it."""
    ours, *_ = _statements(service)

    assert ours["Action"] == [f"{service.partition('.')[0]}:*"]
    assert ours["Condition"] == {"StringEquals": {"aws:PrincipalAccount": ["111122223333"]}}


def test_tokens_are_changed_for_roles_of_this_account_alone() -> None:
    """Who brings a token is no principal of any account: without a statement of its own STS would refuse it."""
    _, tokens = _statements("sts")

    assert tokens["Resource"] == ["arn:aws:iam::111122223333:role/*"]
    assert set(tokens["Action"]) == {"sts:AssumeRoleWithSAML", "sts:AssumeRoleWithWebIdentity"}
    assert all(len(_statements(service)) == 1 for service in PLAN_ENDPOINTS_PLAN.endpoints if service != "sts")


def _statements(service: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(policy(*users(PLAN_ENDPOINTS_PLAN, service)))["Statement"]
    return found


PLAN_WHEREABOUTS_PLAN = plan_of(EXAMPLES / "lab.yaml")


@pytest.mark.parametrize(
    ("name", "kind", "place", "address"),
    [
        ("us-east-1a", Kind.NODES, "us-east-1", "10.65.32.10"),
        ("us-east-1a/edge", Kind.EDGE, "us-east-1", "10.65.0.10"),
        ("us-east-1", Kind.NODES, "us-east-1", "10.65.32.10"),
        ("region/us-east-1", Kind.NODES, "us-east-1", "10.65.32.10"),
        ("region/us-east-1/zone/us-east-1b/edge", Kind.EDGE, "us-east-1", "10.65.1.10"),
        ("site/cellar", Kind.LAN, "cellar", "192.168.40.10"),
        ("pool/us-west-2", Kind.LAPTOPS, "us-west-2", "10.121.0.10"),
        ("cellar", Kind.LAN, "cellar", "192.168.40.10"),
        ("titan-01.cellar", Kind.LAN, "cellar", "192.168.40.21"),
        ("laptops.cellar", Kind.LAPTOPS, "cellar", "10.121.4.10"),
        ("10.66.33.7", Kind.NODES, "eu-north-1", "10.66.33.7"),
        ("internet", Kind.INTERNET, "internet", "203.0.113.9"),
        ("9.9.9.9", Kind.INTERNET, "internet", "9.9.9.9"),
    ],
)
def test_a_name_means_one_address(name: str, kind: Kind, place: str, address: str) -> None:
    """Every block of the plan, every machine, and any address has a name; a block has its path in fleet.lock too."""
    spot = spot_of(PLAN_WHEREABOUTS_PLAN, name)

    assert (spot.kind, spot.place, str(spot.address)) == (kind, place, address)


def test_a_name_that_means_nothing_is_told_with_its_neighbour() -> None:
    """A slip of the finger is answered with the right word."""
    with pytest.raises(InputError, match="us-esat-1a is no place of the fleet lab") as refused:
        spot_of(PLAN_WHEREABOUTS_PLAN, "us-esat-1a")

    assert refused.value.fix == "write us-east-1a"


@pytest.mark.parametrize("path", ["pods", "services", "tunnel/cellar/us-east-1/1"])
def test_a_block_that_no_packet_comes_from_is_no_place(path: str) -> None:
    """Pods and services have their addresses inside the cluster alone, a tunnel's are its two ends'."""
    with pytest.raises(InputError, match=f"{path} is no place"):
        spot_of(PLAN_WHEREABOUTS_PLAN, path)


def test_an_address_by_itself_needs_no_fleet() -> None:
    """A graph of somebody else's program has addresses, and no plan."""
    spot = spot_at("10.1.2.3")

    assert spot is not None
    assert (spot.name, str(spot.address)) == ("10.1.2.3", "10.1.2.3")
    assert spot_at("us-east-1a") is None


@pytest.mark.parametrize(
    ("protocol", "port", "flow"),
    [
        ("tcp", None, Flow("tcp", 22)),
        ("tcp", 443, Flow("tcp", 443)),
        ("udp", 1194, Flow("udp", 1194)),
        ("icmp", None, Flow("icmp", 0)),
    ],
)
def test_a_flow_is_a_protocol_and_a_port(protocol: str, port: int | None, flow: Flow) -> None:
    """SSH where nothing else is said; ping has no port."""
    assert flow_of(protocol, port) == flow


@pytest.mark.parametrize(
    ("protocol", "port", "told"),
    [
        ("gre", None, "gre is no protocol"),
        ("tcp", 0, "0 is no port of tcp"),
        ("tcp", 65536, "65536 is no port"),
        ("udp", -1, "-1 is no port of udp"),
        ("udp", None, "which port of udp"),
        ("icmp", 22, "icmp has no ports"),
    ],
)
def test_what_is_no_flow_is_refused(protocol: str, port: int | None, told: str) -> None:
    """Ports are 1 to 65535, and no port of UDP is more usual than another."""
    with pytest.raises(InputError, match=told):
        flow_of(protocol, port)


WEST: Mapping[str, object] = {"region": "us-west-2"}
EAST: Mapping[str, object] = {"region": "us-east-1"}
RESERVED = {
    **WEST,
    "zone": "us-west-2a",
    "market": "reservation",
    "reservation": "cr-0123456789abcdef0",
    "reserved": 2,
}
OTHER = {**RESERVED, "zone": "us-west-2b", "reservation": "cr-0123456789abcdef1", "reserved": 3}


@pytest.mark.parametrize(
    ("ladder", "last"),
    [
        ((WEST,), 12),
        ((WEST, {**WEST, "market": "spot"}), 12),
        ((RESERVED, WEST), 12),
        ((RESERVED, OTHER), 5),
        ((RESERVED, EAST), 2),
    ],
    ids=["one", "two-markets", "reserved-first", "reserved-twice", "elsewhere"],
)
def test_pools_of_a_group_share_its_names_in_a_region(ladder: tuple[Mapping[str, object], ...], last: int) -> None:
    """A machine of a small reservation finds a name also where other pools of its group have the first ones."""
    groups = {"desk": group(*ladder, types=("m7i.xlarge",), nodes={"min": 0, "max": 12})}
    plan = plan_fleet(sketch(groups=groups), Record({}), load_catalog())
    pool = plan.pools[0]

    assert highest(plan, pool) == last
    assert len(ssh_patterns(plan, pool)) == len(str(last))
    assert f"readonly HIGHEST={last}\n" in first_boot(plan, pool)
