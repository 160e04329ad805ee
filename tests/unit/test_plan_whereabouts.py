"""The names by which an operator means a place, and a flow."""

import pytest

from bedplate.errors import InputError
from bedplate.plan.intent import Flow, Kind
from bedplate.plan.whereabouts import flow_of, spot_at, spot_of
from tests.support.declared import EXAMPLES, plan_of

PLAN = plan_of(EXAMPLES / "lab.yaml")


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
    spot = spot_of(PLAN, name)

    assert (spot.kind, spot.place, str(spot.address)) == (kind, place, address)


def test_a_name_that_means_nothing_is_told_with_its_neighbour() -> None:
    """A slip of the finger is answered with the right word."""
    with pytest.raises(InputError, match="us-esat-1a is no place of the fleet lab") as refused:
        spot_of(PLAN, "us-esat-1a")

    assert refused.value.fix == "write us-east-1a"


@pytest.mark.parametrize("path", ["pods", "services", "tunnel/cellar/us-east-1/1"])
def test_a_block_that_no_packet_comes_from_is_no_place(path: str) -> None:
    """Pods and services have their addresses inside the cluster alone, a tunnel's are its two ends'."""
    with pytest.raises(InputError, match=f"{path} is no place"):
        spot_of(PLAN, path)


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
