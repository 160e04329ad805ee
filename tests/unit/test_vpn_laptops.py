"""OpenVPN for laptops: server configuration, packet filters and profiles that follow from the plan."""

import re
from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan import Record, plan_fleet
from bedplate.plan.firewall import DNS
from bedplate.plan.laptops import LaptopGatewayPlan, Transport, laptop_gateways, resolver_regions
from bedplate.plan.nodes import OPENVPN, permanent_nodes
from tests.conftest import Expect
from tests.testlab.fleets.sketch import laptops, sketch
from tests.testlab.fleets.variants import (
    GATEWAY_ADDRESS,
    HOME,
    RESOLVERS,
    connected_laptop_gateways,
    lab_gateways,
    unrecorded,
)
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from vpn.laptops.server import (
    Laptop,
    LaptopKeys,
    address_files,
    client_profile,
    daemon_unit,
    guard_rules,
    laptop_rules,
    server_conf,
    without_address,
)

KEYS = LaptopKeys("authority\n", "certificate\n", "private key\n", "hidden key\n")
EVERY = [(number, transport) for number in (0, 1) for transport in Transport]


def _gateways(interconnect: str) -> tuple[LaptopGatewayPlan, ...]:
    fleet = sketch(
        sites={"cellar": "192.168.40.0/22", "attic": "192.168.60.0/24"},
        network={"interconnect": interconnect},
        vpn=laptops({"region": HOME}, {"region": "us-east-1"}, {"site": "cellar"}),
    )
    return laptop_gateways(plan_fleet(fleet, Record({}), load_catalog()))


@pytest.mark.parametrize(("number", "transport"), EVERY, ids=[f"{number}-{transport}" for number, transport in EVERY])
def test_server_configuration_follows_the_plan(number: int, transport: Transport, expect: Expect) -> None:
    """It has half of the pool, the routes of the plan and the DNS resolver, and nothing outside the fleet."""
    gateway = lab_gateways()[number]

    text = server_conf(gateway, transport)

    expect(f"laptops/{gateway.place}-{transport}.conf", text)


def test_a_profile_names_every_gateway(expect: Expect) -> None:
    """All gateways over UDP come first, because a laptop changes within seconds; then TCP for restricted networks."""
    expect("laptops/ada.laptop.ovpn", client_profile(lab_gateways(), "ada.laptop", KEYS))


@pytest.mark.parametrize("number", [0, 1])
def test_the_packet_filter_of_a_gateway(number: int, expect: Expect) -> None:
    """It drops packets between laptops, new connections to laptops, and unencrypted packets to laptops."""
    gateway = lab_gateways()[number]

    expect(f"laptops/{gateway.place}.nft", guard_rules(gateway))


def test_laptops_that_may_reach_each_other(expect: Expect) -> None:
    """Pools are routed, and packets to laptops are accepted only from other laptops."""
    gateways = connected_laptop_gateways()

    expect("laptops/between-us-west-2.nft", guard_rules(gateways[0]))
    expect("laptops/between-laptop.nft", laptop_rules(gateways))

    for gateway in gateways:
        for transport in Transport:
            text = server_conf(gateway, transport)
            assert all(f'push "route {pool.network_address} {pool.netmask}"' in text for pool in gateway.met)
        assert [pool.prefixlen for pool in gateway.met] == [22, 22]
        assert gateway.met[0] == gateway.pool


@pytest.mark.parametrize(("interconnect", "met"), [("transit", [3, 3, 3]), ("peering", [1, 1, 1]), ("none", [2, 2, 1])])
def test_laptops_reach_pools_that_the_network_connects(interconnect: str, met: list[int]) -> None:
    """They reach the pool of their own gateway always, and other pools if the network has a route to them."""
    fleet = sketch(
        sites={"cellar": "192.168.40.0/22"},
        network={"interconnect": interconnect},
        vpn=laptops({"region": HOME}, {"region": "us-east-1"}, {"site": "cellar"}, between=True),
    )

    gateways = laptop_gateways(plan_fleet(fleet, Record({}), load_catalog()))

    assert [len(gateway.met) for gateway in gateways] == met


def test_the_packet_filter_of_a_laptop(expect: Expect) -> None:
    """Packets to the fleet leave through the VPN or not at all."""
    expect("laptops/laptop.nft", laptop_rules(lab_gateways()))


def test_the_daemons_have_only_a_routers_capabilities(expect: Expect) -> None:
    """They do not run as root: they may create a network device and listen below port 1024."""
    unit = daemon_unit()

    expect("laptops/bedplate-laptops@.service", unit)
    assert "AmbientCapabilities=CAP_NET_ADMIN CAP_NET_BIND_SERVICE\n" in unit


def test_a_daemon_that_fails_is_restarted_without_limit() -> None:
    """By default systemd gives up after five starts within ten seconds; a port may be in use for longer."""
    unit = daemon_unit()

    assert "\nRestart=always\n" in unit
    assert "\nStartLimitIntervalSec=0\n" in unit.partition("[Service]")[0]


@pytest.mark.parametrize(
    ("interconnect", "routes"),
    [
        ("transit", [5, 5, 5]),
        ("peering", [1, 1, 5]),
        ("none", [2, 2, 5]),
    ],
)
def test_laptops_get_routes_to_what_their_gateway_reaches(interconnect: str, routes: list[int]) -> None:
    """Through transit gateways or the gateway itself, and never to a laptop pool."""
    gateways = _gateways(interconnect)

    assert [len(gateway.routes) for gateway in gateways] == routes
    pools = [gateway.pool for gateway in gateways]
    assert not any(block.overlaps(pool) for gateway in gateways for block in gateway.routes for pool in pools)


def test_resolvers_are_in_the_gateways_region_without_a_transit_gateway() -> None:
    """Otherwise the resolver of the home region answers."""
    resolvers = {HOME: RESOLVERS, "us-east-1": (IPv4Address("10.65.32.9"),)}
    fleet = sketch(network={"interconnect": "none"}, vpn=laptops({"region": HOME}, {"region": "us-east-1"}))
    plan = plan_fleet(fleet, Record({}, resolvers=resolvers), load_catalog())

    assert [gateway.resolvers for gateway in laptop_gateways(plan)] == [RESOLVERS, resolvers["us-east-1"]]


def test_the_gateway_of_a_single_region_forwards_dns() -> None:
    """Each transport pushes the gateway's own address; there is no resolver to record, and its port is open."""
    plan = plan_of(EXAMPLES / "gpu-box.yaml")
    (gateway,) = laptop_gateways(plan)
    (node,) = (node for node in permanent_nodes(plan) if node.laptops)

    texts = [server_conf(gateway, transport) for transport in Transport]

    assert resolver_regions(plan) == []
    assert gateway.upstream == plan.home.block[2]
    pushed = [re.findall(r"dhcp-option DNS (\S+)\"", text) for text in texts]
    assert pushed == [["10.64.228.1"], ["10.64.228.33"]]
    firewall_rules = {(rule.protocol, rule.block) for rule in node.firewall_rules if rule.port == DNS}
    assert firewall_rules == {("udp", gateway.pool), ("tcp", gateway.pool)}


@pytest.mark.parametrize("transport", Transport)
def test_every_slot_has_a_unique_address(transport: Transport) -> None:
    """A laptop's address follows from its slot, not from when it connects; no laptop has the gateway's address."""
    gateway = lab_gateways()[0]
    block = gateway.block(transport)

    addresses = [gateway.address(transport, slot) for slot in range(gateway.most)]

    assert len(set(addresses)) == gateway.most == 509
    assert set(addresses) == set(block.hosts()) - {block[1]}


@pytest.mark.parametrize(("pool", "most"), [("/16", 32765), ("/22", 509), ("/29", 1)])
def test_each_transport_has_half_of_the_pool(pool: str, most: int) -> None:
    """A laptop that changes to TCP gets an address of another device: the halves do not overlap."""
    fleet = sketch(network={"supernet": "10.0.0.0/8"}, vpn=laptops({"region": HOME}, pool=pool))
    (gateway,) = laptop_gateways(plan_fleet(fleet, Record({}), load_catalog()))

    assert gateway.most == most
    assert not gateway.block(Transport.UDP).overlaps(gateway.block(Transport.TCP))


def test_a_laptop_beyond_the_pool_has_no_address_file() -> None:
    """It is named, and all others have an address."""
    gateway, both = lab_gateways()[0], [Laptop("ada.laptop", 508), Laptop("grace.desk", 509)]

    assert list(address_files(gateway, Transport.UDP, both)) == ["ada.laptop"]
    assert without_address(gateway, both) == ("grace.desk",)


def test_an_address_file_pushes_the_address_of_the_slot() -> None:
    """The first and the last slot of the pool have an address."""
    gateway = lab_gateways()[0]

    files = address_files(gateway, Transport.TCP, [Laptop("ada.laptop", 0), Laptop("grace.desk", 508)])

    assert files == {
        "ada.laptop": "ifconfig-push 10.121.2.2 255.255.254.0\n",
        "grace.desk": "ifconfig-push 10.121.3.254 255.255.254.0\n",
    }


def test_without_recorded_addresses_nothing_is_rendered() -> None:
    """A profile without a gateway, or a gateway without a DNS resolver, would look complete."""
    home, site = lab_gateways(unrecorded())

    with pytest.raises(InputError, match="no public address of the gateway in us-west-2") as error:
        client_profile((home, site), "ada.laptop", KEYS)
    with pytest.raises(InputError, match="no DNS resolver for the laptops of cellar"):
        server_conf(site, Transport.UDP)

    assert "bedplate vpn record" in error.value.fix


def test_a_sites_gateway_has_an_address_without_a_record() -> None:
    """The fleet file contains its public address."""
    home, site = lab_gateways()

    assert (home.public, site.public) == (GATEWAY_ADDRESS, IPv4Address("8.20.30.40"))
    assert IPv4Network("192.168.40.0/22") in site.routes


def test_values_are_not_read_as_templates() -> None:
    """Template syntax in a certificate appears unchanged in the profile."""
    profile = client_profile(lab_gateways(), "ada.laptop", LaptopKeys("{{ 7*7 }}", "${x}", "%{x}", "{0.__class__}"))

    assert all(word in profile for word in ("{{ 7*7 }}", "${x}", "%{x}", "{0.__class__}"))


def test_the_repr_of_keys_contains_no_private_key() -> None:
    """A log or traceback shows only the public part."""
    assert "private" not in repr(KEYS)
    assert "hidden" not in repr(KEYS)


def test_daemons_use_the_ports_that_the_firewall_opens() -> None:
    """The node's packet filter and the daemons have the same protocols and ports."""
    assert {(str(transport), transport.port) for transport in Transport} == set(OPENVPN)
