"""How gateways are: what their keepers print is read back, and what does not carry is told."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bedplate.errors import PartError
from bedplate.plan.nodes import standing_nodes
from bedplate.report.condition import condition_document, condition_lines
from tests.conftest import Expect
from tests.support.joined_fleet import NORTH, joined_plan
from tests.support.nodes import lab_node
from vpn.condition import amiss, parse_status
from vpn.keeper.metrics import metrics_text
from vpn.keeper.sessions import Session
from vpn.keeper.status import Status
from vpn.keeper.tunnels import Tunnel, carried

NOW, DAY = 1_795_262_400, 86_400
ADA = Session("ada.laptop", "10.121.4.2", 2_300_000, 510, NOW - 7300, NOW - 2)
BOB = Session("bob.desk", "10.121.6.3", 90, 80, NOW - 40, None)
WEST, EAST = Tunnel("us-west-2-1", 3000, 12_000, 9_000, 4), Tunnel("us-east-1-1", 20, 0, 0, None)
WELL = Status(NOW, {"udp": (ADA,), "tcp": (BOB,)}, NOW + 60 * DAY, NOW + 80 * DAY, (WEST,))
GATE = lab_node("gate.cellar")
CONNS = (
    "list-conn event {us-west-2-1 {local_addrs=[8.20.30.40] remote_addrs=[52.9.9.9] version=IKEv2 "
    "local-1 {class=pre-shared key id=8.20.30.40} children {net {mode=TUNNEL local-ts=[0.0.0.0/0]}}}}\n"
    "list-conn event {us-west-2-2 {local_addrs=[8.20.30.40] version=IKEv2 children {net {mode=TUNNEL}}}}\n"
    "list-conns reply {}\n"
)
SAS = (
    "list-sa event {us-west-2-1 {uniqueid=1 version=2 state=ESTABLISHED local-id=CN=gate "
    "remote-id=52.9.9.9 established=3000 rekey-time=22000 child-sas {net-1 {name=net state=INSTALLED mode=TUNNEL "
    "bytes-in=12000 packets-in=90 use-in=4 bytes-out=9000 packets-out=80 use-out=1 install-time=2990 "
    "local-ts=[0.0.0.0/0] remote-ts=[0.0.0.0/0]}}}}\n"
    "list-sas reply {}\n"
)


def _told(status: Status) -> list[str]:
    return [f"{fault.is_failing}: {fault.message}" for fault in amiss(GATE, status, NOW)]


def test_what_a_keeper_prints_is_read_back() -> None:
    """The operator's machine sees what the gateway saw."""
    assert parse_status(json.dumps(WELL.document())) == WELL


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"laptops": 1}', "bash: bedplate-vpn: not found"])
def test_what_no_keeper_prints_is_a_gateway_not_reached(text: str) -> None:
    """It is named with what helps, and costs the others nothing."""
    with pytest.raises(PartError, match="nothing that can be read"):
        parse_status(text)


def test_a_gateway_that_carries_has_nothing_amiss() -> None:
    """Who is connected and who is not is no fault."""
    assert _told(WELL) == []
    assert _told(replace(WELL, laptops={"udp": (), "tcp": ()})) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"laptops": {"udp": None, "tcp": ()}}, "True: nobody serves laptops over udp"),
        ({"laptops": {}}, "True: nothing here serves laptops"),
        ({"certificate": NOW + 13 * DAY}, "False: its certificate ends in 13 days"),
        ({"certificate": NOW + 3 * DAY}, "True: its certificate ends in 3 days"),
        ({"crl": NOW + 14 * DAY}, "False: its list of revoked certificates ends in 14 days"),
        ({"crl": NOW - 1}, "True: its list of revoked certificates has ended, and nobody gets in"),
        ({"crl": None}, "True: its list of revoked certificates is not there"),
        ({"tunnels": None}, "True: no daemon of tunnels answers"),
        ({"tunnels": ()}, "True: no daemon of tunnels answers"),
        ({"tunnels": (replace(WEST, age=None),)}, "True: the tunnel us-west-2-1 is down"),
        ({"tunnels": (replace(WEST, idle=91),)}, "True: the tunnel us-west-2-1 stands, and no packet has come in"),
        ({"tunnels": (EAST,)}, "False: the tunnel us-east-1-1 stands, and no packet has come in by it yet"),
        ({"time": NOW - 241}, "True: its clock is off by 241 s"),
    ],
)
def test_what_does_not_carry_is_told(changes: Mapping[str, object], told: str) -> None:
    """A tunnel that stands and is silent is down; a date is told two weeks before, and fails three days before."""
    fields: dict[str, object] = {name: getattr(WELL, name) for name in WELL.__dataclass_fields__} | dict(changes)

    (fault,) = _told(Status(**fields))  # type: ignore[arg-type]

    assert fault.startswith(told)


def test_only_what_a_gateway_is_for_is_judged() -> None:
    """A region's gateway of laptops has no tunnels of its own to be down."""
    home = lab_node("laptops.us-west-2")

    assert amiss(home, replace(WELL, tunnels=None), NOW) == ()


@pytest.mark.parametrize(
    ("tunnels", "told"),
    [
        (None, ["True: no daemon of tunnels answers: `bedplate vpn tunnels`"]),
        ((replace(WEST, name=NORTH, age=None),), [f"True: the tunnel {NORTH} is down"]),
        ((replace(WEST, name=NORTH),), []),
    ],
    ids=["none", "down", "well"],
)
def test_a_gateway_that_joins_regions_is_judged_by_its_tunnels(
    tunnels: tuple[Tunnel, ...] | None, told: list[str]
) -> None:
    """As a site's is: a region that nothing leads to any more is told."""
    (node,) = (each for each in standing_nodes(joined_plan()) if each.name == "laptops.us-west-2")

    found = amiss(node, replace(WELL, tunnels=tunnels), NOW)

    assert [f"{fault.is_failing}: {fault.message}" for fault in found] == told


def test_tunnels_are_read_as_strongswan_prints_them() -> None:
    """A connection without an association is down, not absent."""
    assert carried(CONNS, SAS) == (WEST, Tunnel("us-west-2-2", None, 0, 0, None))


def test_the_table_of_gateways(expect: Expect) -> None:
    """What carries, by how much and since when; then who was not reached; what is amiss last."""
    lines = condition_lines(
        {"gate.cellar": replace(WELL, tunnels=(WEST, EAST, replace(WEST, name="eu-north-1-1", age=None)))},
        {"laptops.us-west-2": PartError("no answer within 30 s")},
        amiss(GATE, replace(WELL, laptops={"udp": None}), NOW),
    )

    expect("laptops/status.txt", "\n".join(lines) + "\n")


def test_the_document_of_gateways() -> None:
    """Everything is in it, and what is amiss has a level."""
    document = condition_document({"gate.cellar": WELL}, {"x": PartError("no answer")}, amiss(GATE, WELL, NOW + 999))

    assert document["gateways"]["gate.cellar"]["laptops"]["udp"][0]["name"] == "ada.laptop"
    assert document["unreached"] == {"x": "no answer"}
    assert [each["level"] for each in document["faults"]] == ["error"]


def test_metrics_are_as_prometheus_reads_them(expect: Expect) -> None:
    """A family's help and type come once, before its values; what is not known has no value."""
    expect("laptops/metrics.prom", metrics_text(replace(WELL, laptops={"udp": (ADA, BOB), "tcp": None})))
