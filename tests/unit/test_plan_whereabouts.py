"""The names by which an operator means a place, and a flow."""

import pytest

from bedplate.errors import InputError
from bedplate.plan.intent import Flow, Kind
from bedplate.plan.whereabouts import flow_of, spot_of
from tests.support.declared import EXAMPLES, plan_of

PLAN = plan_of(EXAMPLES / "lab.yaml")


@pytest.mark.parametrize(
    ("name", "kind", "place", "address"),
    [
        ("us-east-1a", Kind.NODES, "us-east-1", "10.65.32.10"),
        ("us-east-1a/edge", Kind.EDGE, "us-east-1", "10.65.0.10"),
        ("us-east-1", Kind.NODES, "us-east-1", "10.65.32.10"),
        ("cellar", Kind.LAN, "cellar", "192.168.40.10"),
        ("titan-01.cellar", Kind.LAN, "cellar", "192.168.40.21"),
        ("laptops.cellar", Kind.LAPTOPS, "cellar", "10.121.4.10"),
        ("10.66.33.7", Kind.NODES, "eu-north-1", "10.66.33.7"),
        ("internet", Kind.INTERNET, "internet", "203.0.113.9"),
        ("9.9.9.9", Kind.INTERNET, "internet", "9.9.9.9"),
    ],
)
def test_a_name_means_one_address(name: str, kind: Kind, place: str, address: str) -> None:
    """Every block of the plan, every machine, and any address has a name."""
    spot = spot_of(PLAN, name)

    assert (spot.kind, spot.place, str(spot.address)) == (kind, place, address)


def test_a_name_that_means_nothing_is_told_with_its_neighbour() -> None:
    """A slip of the finger is answered with the right word."""
    with pytest.raises(InputError, match="us-esat-1a is no place of the fleet lab") as refused:
        spot_of(PLAN, "us-esat-1a")

    assert refused.value.fix == "write us-east-1a"


@pytest.mark.parametrize(
    ("text", "flow"), [("tcp/22", Flow()), ("udp/1194", Flow("udp", 1194)), ("icmp", Flow("icmp", 0))]
)
def test_a_flow_is_a_protocol_and_a_port(text: str, flow: Flow) -> None:
    """Ping has no port."""
    assert flow_of(text) == flow


@pytest.mark.parametrize("text", ["tcp", "tcp/0", "tcp/65536", "tcp/x", "gre/1", "udp/٣", ""])
def test_what_is_no_flow_is_refused(text: str) -> None:
    """Ports are 1 to 65535, in plain digits."""
    with pytest.raises(InputError, match="is no flow"):
        flow_of(text)
