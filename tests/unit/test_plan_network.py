"""The network of a plan: tunnels between sites and regions, VPC endpoints, reachability, and names of SSH machines."""

import json
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.permissions import policy
from bedplate.picture.page import picture
from bedplate.plan import FleetPlan, Record, bill, plan_fleet
from bedplate.plan.firewall import control_rules, node_rules
from bedplate.plan.links import (
    connected_regions,
    highest_number,
    is_connected,
    region_gateway_of,
    region_peers,
    remote_networks,
    ssh_patterns,
    tunnel_pairs,
)
from bedplate.plan.nodes import NodeRole, permanent_nodes
from bedplate.plan.reachability import (
    Endpoint,
    EndpointKind,
    Flow,
    endpoints,
    find_endpoint,
    internet_endpoint,
    is_routed,
    parse_flow,
)
from bedplate.report.plan import plan_lines
from bedplate.spec.sites import Use
from stacks.compute.template import first_boot
from stacks.network.vpc import endpoint_statements
from tests.conftest import DATA
from tests.testlab.fleets.policy import API, is_reachable, is_refused_by_gateway
from tests.testlab.fleets.sketch import ZONES, catalog, group, sketch
from tests.testlab.fleets.variants import (
    ALONE,
    ATTIC,
    CELLAR,
    CONNECTED_REGIONS_TEXT,
    CONNECTED_SITES_TEXT,
    JOINS,
    NORTH,
    PUBLIC,
    REGION,
    THIRD_SITE_TEXT,
    connected_regions_plan,
    connected_site_gateway,
    connected_sites_plan,
)
from tests.testlab.fleets.variants import WEST as HOME
from tests.testlab.rehearsal.programs import EXAMPLES, declared, plan_of
from vpn.sites.files import frr_conf_of
from vpn.sites.gateway import Tunnel

PLAN = connected_sites_plan()
HIDDEN = connected_sites_plan(CONNECTED_SITES_TEXT.replace("asn: 65010", "asn: 65010, behind_nat: true"))


def _direct(plan: FleetPlan, site: str) -> Tunnel:
    return next(tunnel for tunnel in connected_site_gateway(plan, site).tunnels if tunnel.name.endswith("-site"))


def test_connected_sites_share_one_tunnel() -> None:
    """Either site may name the other; the pair is sorted and has its own block."""
    (direct,) = PLAN.site_tunnels
    named_by_other = connected_sites_plan(
        CONNECTED_SITES_TEXT.replace(JOINS, "").replace("asn: 65010", "asn: 65010, joins: [attic]")
    )

    assert direct.sites == (ATTIC, CELLAR)
    assert named_by_other.site_tunnels == PLAN.site_tunnels
    assert PLAN.blocks[f"tunnel/{ATTIC}/{CELLAR}"] == direct.inside == IPv4Network("169.254.64.16/30")
    assert tunnel_pairs(PLAN) == (frozenset((ATTIC, CELLAR)),)


def test_a_new_site_moves_no_block() -> None:
    """A new site changes no other tunnel's block, and a removed tunnel's block stays recorded."""
    recorded = PLAN.recorded()
    more = connected_sites_plan(CONNECTED_SITES_TEXT + THIRD_SITE_TEXT, recorded)
    fewer = connected_sites_plan(CONNECTED_SITES_TEXT.replace(JOINS, ""), recorded)

    assert {path: more.blocks[path] for path in PLAN.blocks} == PLAN.blocks
    assert [direct.sites for direct in more.site_tunnels] == [(ATTIC, CELLAR), (ATTIC, "loft"), (CELLAR, "loft")]
    assert not fewer.site_tunnels
    assert f"tunnel/{ATTIC}/{CELLAR}" in fewer.retired


def test_one_site_of_two_dials() -> None:
    """The first site by name dials, unless the other is behind NAT; both ends agree."""
    assert [plan.site_tunnels[0].dials for plan in (PLAN, HIDDEN)] == [ATTIC, CELLAR]
    for plan in (PLAN, HIDDEN):
        assert {site: _direct(plan, site).dials for site in (ATTIC, CELLAR)} == {
            site: plan.site_tunnels[0].dials == site for site in (ATTIC, CELLAR)
        }


def test_both_ends_of_a_site_tunnel_match() -> None:
    """Identities, public addresses and inside addresses of the two ends match."""
    near, far = (_direct(PLAN, site) for site in (ATTIC, CELLAR))

    assert (near.near, near.far) == (far.far, far.near)
    assert near.near.identity == "tunnels.attic.rooms.internal"
    assert near.far.outside == IPv4Address("8.20.30.40")
    assert near.number == far.number
    assert {tunnel.number for tunnel in connected_site_gateway(PLAN, ATTIC).tunnels} > {near.number}
    assert near.near.inside is not None
    assert near.far.inside is not None
    assert {near.near.inside.ip, near.far.inside.ip} == set(PLAN.site_tunnels[0].inside.hosts())


def test_the_direct_tunnel_is_preferred_to_aws() -> None:
    """BGP prefers a site's own announcement of its blocks to a region's."""
    config = frr_conf_of(connected_site_gateway(PLAN, ATTIC))
    assert config
    lines = config.text.splitlines()

    assert "ip prefix-list cellar-site-first permit 192.168.40.0/22 le 32" in lines
    assert f"ip prefix-list {REGION}-1 permit 192.168.40.0/22 le 32" in lines
    assert f"ip prefix-list {REGION}-1-first permit 192.168.40.0/22 le 32" not in lines
    assert not [line for line in lines if line.startswith("ip prefix-list cellar-site") and "10.64" in line]
    assert " neighbor 169.254.64.18 remote-as 65010" in lines


def test_connected_sites_admit_each_other() -> None:
    """Their gateways route to each other's LAN and admit BGP and IKE; each has a path to every region anyway."""
    apart = connected_sites_plan(CONNECTED_SITES_TEXT.replace(JOINS, ""))
    (gateway,) = (node for node in permanent_nodes(PLAN) if node.name == "door.attic")

    assert [is_connected(plan, ATTIC, CELLAR) for plan in (PLAN, apart)] == [True, False]
    assert all(is_connected(plan, *pair) for plan in (PLAN, apart) for pair in ((ATTIC, REGION), (REGION, ATTIC)))
    (bgp,) = (rule for rule in gateway.firewall_rules if rule.name.startswith("bgp"))
    assert (bgp.block, bgp.port) == (PLAN.site_tunnels[0].inside, 179)
    assert gateway.roles == {NodeRole.TUNNELS}
    assert IPv4Network("192.168.40.0/22") in gateway.remote_blocks
    assert {"ike-500", "ike-4500", "esp", "bgp-from-cellar"} <= {rule.name for rule in gateway.firewall_rules}


def test_the_plan_shows_site_tunnels() -> None:
    """The report names the tunnel, its block and the dialling site at both sites; the picture has the block."""
    text = "\n".join(plan_lines(PLAN))

    assert text.count("direct tunnel 169.254.64.16/30, initiated by attic") == 2
    assert "+   peer" in text
    assert picture(PLAN).count("169.254.64.16/30") == 2


CONNECTED = connected_regions_plan()
ONE = connected_regions_plan(text=CONNECTED_REGIONS_TEXT.replace(", {region: eu-north-1}]", "]"))
_CLUSTER = 'kubernetes: {version: "1.36", control_plane: {type: m7i.xlarge}}\n'


def _endpoint(name: str) -> Endpoint:
    return next(endpoint for endpoint in endpoints(CONNECTED) if endpoint.name == name)


def test_regions_with_a_gateway_are_connected() -> None:
    """Every two regions with a laptop gateway are connected; a single gateway connects nothing."""
    assert connected_regions(CONNECTED) == (HOME, NORTH)
    assert connected_regions(ONE) == ()
    assert [(other, is_connected(CONNECTED, HOME, other)) for other in (NORTH, ALONE)] == [
        (NORTH, True),
        (ALONE, False),
    ]
    assert not is_connected(ONE, HOME, NORTH)


@pytest.mark.parametrize("interconnect", ["transit", "peering"])
def test_gateways_do_not_connect_regions_that_aws_connects(interconnect: str) -> None:
    """With transit gateways or peering, no gateway has tunnels to other regions."""
    plan = connected_regions_plan(
        text=CONNECTED_REGIONS_TEXT.replace("interconnect: none", f"interconnect: {interconnect}")
    )

    assert connected_regions(plan) == ()
    assert is_connected(plan, HOME, ALONE)
    assert not [node for node in permanent_nodes(plan) if NodeRole.PEERED in node.roles]


def test_a_peer_has_address_blocks_and_echo() -> None:
    """A peer has its recorded address, its region's block, its laptop pool, and an address that answers pings."""
    (peer,) = region_peers(CONNECTED, HOME)

    assert (peer.region, peer.public) == (NORTH, PUBLIC[NORTH])
    assert peer.blocks == (CONNECTED.region(NORTH).block, CONNECTED.blocks[f"pool/{NORTH}"])
    assert peer.ping_address in CONNECTED.blocks[f"pool/{NORTH}"]
    assert region_peers(CONNECTED, ALONE) == ()
    with pytest.raises(KeyError):
        region_gateway_of(CONNECTED, ALONE)


def test_an_unrecorded_public_address_is_none() -> None:
    """Before the first deployment, peers are known without their public address."""
    assert [peer.public for peer in region_peers(connected_regions_plan(Record({})), HOME)] == [None]


def test_a_connected_gateway_routes_to_its_peers_only() -> None:
    """It admits IKE; ESP arrives in UDP because of NAT. A single gateway has no tunnels."""
    node = next(node for node in permanent_nodes(CONNECTED) if node.name == f"laptops.{HOME}")

    assert node.roles == {NodeRole.LAPTOPS, NodeRole.PEERED}
    assert node.remote_blocks == region_peers(CONNECTED, HOME)[0].blocks
    assert {"ike-500", "ike-4500"} <= {rule.name for rule in node.firewall_rules}
    assert "esp" not in {rule.name for rule in node.firewall_rules}
    single = next(node for node in permanent_nodes(ONE) if node.name == f"laptops.{HOME}")
    assert single.roles == {NodeRole.LAPTOPS}
    assert not single.remote_blocks
    assert not [rule for rule in single.firewall_rules if rule.name.startswith("ike")]


def test_security_groups_admit_nodes_of_connected_regions() -> None:
    """Nodes of connected regions are admitted, also to the API server; nodes of other regions are not."""
    plan = connected_regions_plan(text=CONNECTED_REGIONS_TEXT + _CLUSTER)

    for rules in (node_rules(plan, plan.home), control_rules(plan)):
        names = [rule.name for rule in rules if "-from-nodes-" in rule.name]
        assert names
        assert all(NORTH in name for name in names)
    assert not [rule for rule in node_rules(plan, plan.region(ALONE)) if "-from-nodes-" in rule.name]


def test_nodes_and_laptops_reach_connected_regions() -> None:
    """Nodes and laptops reach nodes of connected regions; nothing reaches an unconnected region."""
    west, north, alone = (_endpoint(f"{region}a/nodes") for region in (HOME, NORTH, ALONE))
    laptop = _endpoint(f"laptops.{HOME}")

    assert all(is_reachable(CONNECTED, *pair) for pair in ((west, north), (north, west), (laptop, north)))
    assert not any(is_routed(CONNECTED, *pair) for pair in ((west, alone), (alone, north), (laptop, alone)))
    assert not is_reachable(CONNECTED, laptop, north, API)


def test_laptops_reach_each_other_if_enabled() -> None:
    """With `between`, laptops reach each other; nothing else reaches a laptop."""
    plan = connected_regions_plan(text=CONNECTED_REGIONS_TEXT.replace("pool: /22", "pool: /22, between: true"))
    node, laptop, other = (_endpoint(name) for name in (f"{HOME}a/nodes", f"laptops.{HOME}", f"laptops.{NORTH}"))

    assert is_reachable(plan, laptop, other)
    assert not is_refused_by_gateway(plan, laptop, other)
    assert not is_reachable(plan, node, other)
    assert is_refused_by_gateway(plan, node, other)
    assert not is_reachable(CONNECTED, laptop, other)


def test_gateways_reject_packets_for_laptops() -> None:
    """Packets from connected regions reach the gateway, whose filter must reject those for laptops."""
    laptops = [endpoint for endpoint in endpoints(CONNECTED) if endpoint.kind is EndpointKind.LAPTOPS]
    assert len(laptops) == 2

    for target in laptops:
        assert is_refused_by_gateway(CONNECTED, _endpoint(f"{NORTH}a/nodes"), target)
        assert not is_refused_by_gateway(CONNECTED, _endpoint(f"{ALONE}a/nodes"), target)
        assert not is_refused_by_gateway(CONNECTED, _endpoint(f"{NORTH}a/edge"), target)
        assert not any(is_reachable(CONNECTED, source, target) for source in endpoints(CONNECTED))


JOINED: Path = DATA / "fleets" / "joined.yaml"
ENDPOINTS_PLAN = plan_of(JOINED)
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"


def test_an_endpoint_name_expands_to_its_services() -> None:
    """`ecr` and `ssm` need two services each; the order is that of the file."""
    assert ENDPOINTS_PLAN.endpoints == ("ecr.api", "ecr.dkr", "ssm", "ssmmessages", "sts", "logs")


def test_endpoints_are_optional() -> None:
    """Without `endpoints`, there is no endpoint and no line on the bill."""
    plain = plan_fleet(sketch(ZONES), Record({}), catalog())

    assert plain.endpoints == ()
    assert not [line for line in bill(plain, load_catalog()).lines if line.what == "interface-endpoint"]


def test_endpoints_cost_per_service_and_zone() -> None:
    """Six services in three zones cost a cent an hour each, for 730 hours."""
    lines = [line for line in bill(ENDPOINTS_PLAN, load_catalog()).lines if line.what == "interface-endpoint"]

    assert sum(line.count for line in lines) == 18
    assert sum(line.usd for line in lines) == pytest.approx(18 * 0.01)


def test_an_endpoint_has_an_interface_in_each_zone() -> None:
    """Interfaces are in the node subnets, with private DNS for the service's name."""
    stacks = declared(ENDPOINTS_PLAN)

    for region in ENDPOINTS_PLAN.regions:
        resources = [entry.inputs for entry in stacks[f"join.{region.name}"] if entry.type == ENDPOINT]
        interfaces = [inputs for inputs in resources if inputs["vpcEndpointType"] == "Interface"]
        assert {inputs["serviceName"] for inputs in interfaces} == {
            f"com.amazonaws.{region.name}.{service}" for service in ENDPOINTS_PLAN.endpoints
        }
        assert all(
            inputs["privateDnsEnabled"] and len(inputs["subnetIds"]) == len(region.zones) for inputs in interfaces
        )


def test_endpoints_admit_only_https_from_their_region() -> None:
    """The security group has one rule: HTTPS from the region's block."""
    entries = declared(ENDPOINTS_PLAN)["join.us-west-2"]

    rules = [
        entry.inputs for entry in entries if "SecurityGroup" in entry.type and entry.name.startswith("join-endpoints-")
    ]

    (rule,) = rules
    assert (rule["cidrIpv4"], rule["ipProtocol"], rule["fromPort"], rule["toPort"]) == ("10.64.0.0/16", "tcp", 443, 443)


@pytest.mark.parametrize("service", ENDPOINTS_PLAN.endpoints)
def test_an_endpoint_policy_allows_only_this_account(service: str) -> None:
    """Credentials of another account cannot move data out through it."""
    statement, *_ = _statements(service)

    assert statement["Action"] == [f"{service.partition('.')[0]}:*"]
    assert statement["Condition"] == {"StringEquals": {"aws:PrincipalAccount": ["111122223333"]}}


def test_sts_accepts_tokens_for_this_accounts_roles_only() -> None:
    """A web identity is no principal of an account, so STS needs a second statement."""
    _, tokens = _statements("sts")

    assert tokens["Resource"] == ["arn:aws:iam::111122223333:role/*"]
    assert set(tokens["Action"]) == {"sts:AssumeRoleWithSAML", "sts:AssumeRoleWithWebIdentity"}
    assert all(len(_statements(service)) == 1 for service in ENDPOINTS_PLAN.endpoints if service != "sts")


def _statements(service: str) -> list[dict[str, Any]]:
    statements: list[dict[str, Any]] = json.loads(policy(*endpoint_statements(ENDPOINTS_PLAN, service)))["Statement"]
    return statements


LAB = plan_of(EXAMPLES / "lab.yaml")


@pytest.mark.parametrize(
    ("name", "kind", "place", "address"),
    [
        ("us-east-1a", EndpointKind.NODES, "us-east-1", "10.65.32.10"),
        ("us-east-1a/edge", EndpointKind.EDGE, "us-east-1", "10.65.0.10"),
        ("us-east-1", EndpointKind.NODES, "us-east-1", "10.65.32.10"),
        ("region/us-east-1", EndpointKind.NODES, "us-east-1", "10.65.32.10"),
        ("region/us-east-1/zone/us-east-1b/edge", EndpointKind.EDGE, "us-east-1", "10.65.1.10"),
        ("site/cellar", EndpointKind.LAN, "cellar", "192.168.40.10"),
        ("pool/us-west-2", EndpointKind.LAPTOPS, "us-west-2", "10.121.0.10"),
        ("workbench-cpu-1.us-west-2", EndpointKind.NODES, "us-west-2", "10.64.32.10"),
        ("titan-01.cellar.lab.internal", EndpointKind.LAN, "cellar", "192.168.40.21"),
        ("cellar", EndpointKind.LAN, "cellar", "192.168.40.10"),
        ("titan-01.cellar", EndpointKind.LAN, "cellar", "192.168.40.21"),
        ("laptops.cellar", EndpointKind.LAPTOPS, "cellar", "10.121.4.10"),
        ("10.66.33.7", EndpointKind.NODES, "eu-north-1", "10.66.33.7"),
        ("internet", EndpointKind.INTERNET, "internet", "203.0.113.9"),
        ("9.9.9.9", EndpointKind.INTERNET, "internet", "9.9.9.9"),
    ],
)
def test_a_name_is_one_endpoint(name: str, kind: EndpointKind, place: str, address: str) -> None:
    """Blocks, machines and addresses are found by name; a block also by its path in fleet.lock."""
    endpoint = find_endpoint(LAB, name)

    assert (endpoint.kind, endpoint.place, str(endpoint.address)) == (kind, place, address)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("us-esat-1a", "write us-east-1a"),
        ("workbench-cpu-21.us-west-2", "write workbench-cpu-20.us-west-2"),
        ("workbench-cpu-0.us-west-2", "write workbench-cpu-1.us-west-2"),
        ("workbench-cpu-01.us-west-2", "write workbench-cpu-1.us-west-2"),
        ("workbench-cpu-x.us-west-2.lab.internal", "write workbench-cpu-1.us-west-2"),
        ("xyz", "write one of "),
    ],
)
def test_an_unknown_name_is_refused(name: str, fix: str) -> None:
    """The fix is the nearest known name: of a group, that of a machine which it may have."""
    with pytest.raises(InputError, match=f"no endpoint named {name} in the fleet lab") as caught:
        find_endpoint(LAB, name)

    assert caught.value.fix.startswith(fix)


def test_the_last_machine_of_a_group_is_an_endpoint() -> None:
    """Pools of a group in one region share the numbers."""
    assert find_endpoint(LAB, "workbench-cpu-20.us-west-2").place == "us-west-2"


def test_a_block_without_hosts_is_no_endpoint() -> None:
    """The inside of a tunnel cannot be a source or a target."""
    with pytest.raises(InputError, match="no endpoint named tunnel/cellar/us-east-1/1"):
        find_endpoint(LAB, "tunnel/cellar/us-east-1/1")


def test_laptops_reach_a_pod_by_its_address() -> None:
    """Each address of the block is behind the pods router in the home region."""
    laptops, pod = find_endpoint(LAB, "laptops.cellar"), find_endpoint(LAB, "10.112.7.9")

    assert (pod.kind, pod.place) == (EndpointKind.PODS, "us-west-2")
    assert is_reachable(LAB, laptops, pod, Flow("tcp", 6006))
    assert not is_reachable(LAB, laptops, pod, Flow("tcp", 10250))


def test_a_gateway_that_is_a_worker_reaches_pods_by_itself() -> None:
    """Its guard would drop packets that leave by flannel's device."""
    (cellar,) = LAB.sites
    machines = {**cellar.spec.machines, "gate": cellar.spec.machines["gate"].model_copy(update={"use": Use.KUBERNETES})}
    worker = replace(LAB, sites=(replace(cellar, spec=cellar.spec.model_copy(update={"machines": machines})),))

    for plan, has_pods in ((LAB, True), (worker, False)):
        names = {network.name for network in remote_networks(plan, "cellar")}
        assert ({"pods", "services"} <= names) is has_pods


def test_an_address_needs_no_fleet() -> None:
    """Without a plan, an address is an endpoint; a name is not."""
    endpoint = internet_endpoint("10.1.2.3")

    assert endpoint is not None
    assert (endpoint.name, str(endpoint.address)) == ("10.1.2.3", "10.1.2.3")
    assert internet_endpoint("us-east-1a") is None


@pytest.mark.parametrize(
    ("protocol", "port", "flow"),
    [
        ("tcp", None, Flow("tcp", 22)),
        ("tcp", 443, Flow("tcp", 443)),
        ("udp", 1194, Flow("udp", 1194)),
        ("icmp", None, Flow("icmp", 0)),
    ],
)
def test_a_flow_has_a_protocol_and_a_port(protocol: str, port: int | None, flow: Flow) -> None:
    """TCP defaults to port 22; ICMP has no port."""
    assert parse_flow(protocol, port) == flow


@pytest.mark.parametrize(
    ("protocol", "port", "message"),
    [
        ("gre", None, "unsupported protocol gre"),
        ("tcp", 0, "0 is not a valid tcp port"),
        ("tcp", 65536, "65536 is not a valid"),
        ("udp", -1, "-1 is not a valid udp port"),
        ("udp", None, "udp requires a port"),
        ("icmp", 22, "icmp has no ports"),
    ],
)
def test_an_invalid_flow_is_refused(protocol: str, port: int | None, message: str) -> None:
    """Ports are 1 to 65535, and UDP has no default port."""
    with pytest.raises(InputError, match=message):
        parse_flow(protocol, port)


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
def test_pools_of_a_group_share_names_in_a_region(ladder: tuple[Mapping[str, object], ...], last: int) -> None:
    """The highest number is the combined maximum of the group's pools in the region."""
    groups = {"desk": group(*ladder, types=("m7i.xlarge",), nodes={"min": 0, "max": 12})}
    plan = plan_fleet(sketch(groups=groups), Record({}), load_catalog())
    pool = plan.pools[0]

    assert highest_number(plan, pool) == last
    assert len(ssh_patterns(plan, pool)) == len(str(last))
    assert f"readonly HIGHEST={last}\n" in first_boot(plan, pool)
