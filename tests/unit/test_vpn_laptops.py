"""What gateways of laptops and laptops themselves are told, from the plan alone."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan import Record, plan_fleet
from bedplate.plan.laptops import LaptopGateway, Transport, laptop_gateways
from bedplate.plan.nodes import OPENVPN
from tests.conftest import Expect
from tests.testlab.fleets.sketch import laptops, sketch
from tests.testlab.fleets.variants import HOME, LAPTOP_PLANS_PUBLIC, RESOLVERS, lab_gateways, met_gateways, unrecorded
from vpn.laptops.server import (
    Laptop,
    LaptopKeys,
    address_files,
    client_profile,
    daemon_unit,
    guard_rules,
    laptop_rules,
    server_conf,
    without_room,
)

KEYS = LaptopKeys("who signs\n", "certificate\n", "private key\n", "hidden key\n")
EVERY = [(place, transport) for place in (0, 1) for transport in Transport]


def _gateways(interconnect: str) -> tuple[LaptopGateway, ...]:
    fleet = sketch(
        sites={"cellar": "192.168.40.0/22", "attic": "192.168.60.0/24"},
        network={"interconnect": interconnect},
        vpn=laptops({"region": HOME}, {"region": "us-east-1"}, {"site": "cellar"}),
    )
    return laptop_gateways(plan_fleet(fleet, Record({}), load_catalog()))


@pytest.mark.parametrize(("number", "transport"), EVERY, ids=[f"{place}-{each}" for place, each in EVERY])
def test_a_gateway_is_told_what_the_plan_says(number: int, transport: Transport, expect: Expect) -> None:
    """Its half of the pool, the plan's blocks, who answers for names; and nothing that is not the fleet's."""
    gateway = lab_gateways()[number]

    text = server_conf(gateway, transport)

    expect(f"laptops/{gateway.place}-{transport}.conf", text)


def test_a_profile_names_every_gateway(expect: Expect) -> None:
    """Over UDP first, for a laptop moves on within seconds; then over TCP, for networks that let nothing else out."""
    expect("laptops/ada.laptop.ovpn", client_profile(lab_gateways(), "ada.laptop", KEYS))


@pytest.mark.parametrize("number", [0, 1])
def test_the_packet_filter_of_a_gateway(number: int, expect: Expect) -> None:
    """Between laptops nothing passes, towards them answers alone, and nothing for them leaves in clear."""
    gateway = lab_gateways()[number]

    expect(f"laptops/{gateway.place}.nft", guard_rules(gateway))


def test_laptops_that_may_reach_each_other(expect: Expect) -> None:
    """Pools are led to, and let through from laptop to laptop alone; what comes from elsewhere is dropped as ever."""
    gateways = met_gateways()

    expect("laptops/between-us-west-2.nft", guard_rules(gateways[0]))
    expect("laptops/between-laptop.nft", laptop_rules(gateways))

    for gateway in gateways:
        for transport in Transport:
            told = server_conf(gateway, transport)
            assert all(f'push "route {pool.network_address} {pool.netmask}"' in told for pool in gateway.met)
        assert [pool.prefixlen for pool in gateway.met] == [22, 22]
        assert gateway.met[0] == gateway.pool


@pytest.mark.parametrize(("interconnect", "met"), [("transit", [3, 3, 3]), ("peering", [1, 1, 1]), ("none", [2, 2, 1])])
def test_laptops_meet_where_the_network_leads(interconnect: str, met: list[int]) -> None:
    """At their own gateway always; at another's where it is led to."""
    fleet = sketch(
        sites={"cellar": "192.168.40.0/22"},
        network={"interconnect": interconnect},
        vpn=laptops({"region": HOME}, {"region": "us-east-1"}, {"site": "cellar"}, between=True),
    )

    gateways = laptop_gateways(plan_fleet(fleet, Record({}), load_catalog()))

    assert [len(gateway.met) for gateway in gateways] == met


def test_the_packet_filter_of_a_laptop(expect: Expect) -> None:
    """What is for the fleet leaves by the tunnel, or not at all."""
    expect("laptops/laptop.nft", laptop_rules(lab_gateways()))


def test_the_daemons_run_with_a_routers_rights_alone(expect: Expect) -> None:
    """Never as root: what they may do beyond any program is to make a network device and to listen below 1024."""
    unit = daemon_unit()

    expect("laptops/bedplate-laptops@.service", unit)
    assert "AmbientCapabilities=CAP_NET_ADMIN CAP_NET_BIND_SERVICE\n" in unit


def test_a_daemon_that_does_not_start_is_tried_until_it_does() -> None:
    """Or systemd gives up, for good, after five times within ten seconds: a port may be somebody else's for longer."""
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
def test_laptops_are_led_to_what_their_gateway_reaches(interconnect: str, routes: list[int]) -> None:
    """Where transit gateways lead, or the gateways themselves; never to a pool, their own or another's."""
    gateways = _gateways(interconnect)

    assert [len(gateway.routes) for gateway in gateways] == routes
    assert not any(block.overlaps(each.pool) for one in gateways for block in one.routes for each in gateways)


def test_resolvers_are_the_gateways_own_or_those_at_home() -> None:
    """Where no transit gateway leads home, a region's gateway has a resolver beside it."""
    resolvers = {HOME: RESOLVERS, "us-east-1": (IPv4Address("10.65.32.9"),)}
    fleet = sketch(network={"interconnect": "none"}, vpn=laptops({"region": HOME}, {"region": "us-east-1"}))
    plan = plan_fleet(fleet, Record({}, resolvers=resolvers), load_catalog())

    assert [gateway.resolvers for gateway in laptop_gateways(plan)] == [RESOLVERS, resolvers["us-east-1"]]


@pytest.mark.parametrize("transport", Transport)
def test_every_laptop_has_an_address_of_its_own(transport: Transport) -> None:
    """It follows from the laptop's slot alone, never from when it connects; the gateway's own is nobody's."""
    gateway = lab_gateways()[0]
    block = gateway.block(transport)

    given = [gateway.address(transport, slot) for slot in range(gateway.most)]

    assert len(set(given)) == gateway.most == 509
    assert set(given) == set(block.hosts()) - {block[1]}


@pytest.mark.parametrize(("pool", "most"), [("/16", 32765), ("/22", 509), ("/29", 1)])
def test_a_pool_is_halved_between_transports(pool: str, most: int) -> None:
    """A laptop that goes over to TCP gets an address behind another device: the halves never meet."""
    fleet = sketch(network={"supernet": "10.0.0.0/8"}, vpn=laptops({"region": HOME}, pool=pool))
    (gateway,) = laptop_gateways(plan_fleet(fleet, Record({}), load_catalog()))

    assert gateway.most == most
    assert not gateway.block(Transport.UDP).overlaps(gateway.block(Transport.TCP))


def test_a_laptop_beyond_the_pool_is_let_in_nowhere() -> None:
    """It is named, and everybody else has an address."""
    gateway, both = lab_gateways()[0], [Laptop("ada.laptop", 508), Laptop("grace.desk", 509)]

    assert list(address_files(gateway, Transport.UDP, both)) == ["ada.laptop"]
    assert without_room(gateway, both) == ("grace.desk",)


def test_a_file_for_each_laptop_gives_its_address() -> None:
    """The last laptop of the pool has room still."""
    gateway = lab_gateways()[0]

    files = address_files(gateway, Transport.TCP, [Laptop("ada.laptop", 0), Laptop("grace.desk", 508)])

    assert files == {
        "ada.laptop": "ifconfig-push 10.121.2.2 255.255.254.0\n",
        "grace.desk": "ifconfig-push 10.121.3.254 255.255.254.0\n",
    }


def test_without_recorded_addresses_nothing_is_written() -> None:
    """A profile that dials nobody, or a gateway that names nobody to ask, would look as if it worked."""
    home, site = lab_gateways(unrecorded())

    with pytest.raises(InputError, match="no public address of the gateway in us-west-2") as told:
        client_profile((home, site), "ada.laptop", KEYS)
    with pytest.raises(InputError, match="does not say who answers the laptops of cellar"):
        server_conf(site, Transport.UDP)

    assert "bedplate vpn record" in told.value.fix


def test_a_site_s_gateway_is_known_without_a_record() -> None:
    """The fleet file says where it is."""
    home, site = lab_gateways()

    assert (home.public, site.public) == (LAPTOP_PLANS_PUBLIC, IPv4Address("8.20.30.40"))
    assert IPv4Network("192.168.40.0/22") in site.routes


def test_what_a_value_says_is_never_read_as_a_template() -> None:
    """A certificate is text, whatever stands in it."""
    told = client_profile(lab_gateways(), "ada.laptop", LaptopKeys("{{ 7*7 }}", "${x}", "%{x}", "{0.__class__}"))

    assert all(word in told for word in ("{{ 7*7 }}", "${x}", "%{x}", "{0.__class__}"))


def test_a_private_key_is_in_no_repr() -> None:
    """What shows keys by chance shows the public part alone."""
    assert "private" not in repr(KEYS)
    assert "hidden" not in repr(KEYS)


def test_gateways_listen_where_their_doors_are_open() -> None:
    """The packet filter of the node and the daemon agree on protocols and ports."""
    assert {(str(each), each.port) for each in Transport} == set(OPENVPN)
