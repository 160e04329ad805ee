"""What gateways are sent when keys change, and what is told of those that were not reached."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from time import monotonic, sleep

import pytest

from bedplate.errors import BedplateError, MachineError, PartError
from bedplate.plan.laptops import LaptopGateway
from bedplate.plan.nodes import Duty, NodePlan, standing_nodes
from bedplate.report.vpn import condition_document, condition_lines
from bedplate.spec.network import Interconnect
from tests.conftest import Expect
from tests.testlab.fleets.variants import (
    ATTIC,
    CELLAR,
    NORTH,
    SITE_SIDE_LAB,
    cellar,
    direct_gateway,
    direct_plan,
    gateway_of,
    joined_plan,
    lab_gateways,
    lab_node,
    site_of,
    with_settings,
)
from tests.testlab.fleets.variants import WEST as VARIANTS_WEST
from tests.testlab.run import page_text
from vpn.gateways import SshWay
from vpn.keeper.book import Owed
from vpn.keeper.sessions import Session
from vpn.keeper.status import Neighbour, Status, Tunnel, carried, metrics_text
from vpn.laptops.push import TAKE, Book, Way, carry
from vpn.laptops.server import Laptop
from vpn.status import Wanted, WantedTunnel, amiss, parse_status, wanted

BOOK = Book("the list\n", (Laptop("ada.laptop", 0), Laptop("grace.desk", 3)), revoked={0x2B: "ada.laptop"})
SILENCE = MachineError("nobody answers on port 22")


@dataclass
class Told:
    """A way to a gateway that keeps what it was told, and answers or raises what it was given."""

    answer: str | BedplateError
    seconds: float = 0
    texts: list[tuple[str, str]] = field(default_factory=list)

    def run(self, command: str, told: str) -> str:
        """Keep what was told, and answer."""
        self.texts.append((command, told))
        sleep(self.seconds)
        if isinstance(self.answer, BedplateError):
            raise self.answer
        return self.answer


def _answer(**cut: int) -> str:
    return json.dumps({"number": 7, "cut": cut})


def _ways(home: Told, site: Told) -> "dict[str, Told]":
    return {"us-west-2": home, "cellar": site}


def _carried(ways: dict[str, Told], *cut: str) -> "tuple[dict[str, dict[str, int]], dict[str, BedplateError]]":
    def way(gateway: LaptopGateway) -> Way:
        return ways[gateway.place]

    done = carry(lab_gateways(), BOOK, way, cut=cut)
    return {place: dict(each) for place, each in done.cut.items()}, dict(done.failures)


def test_every_gateway_is_sent_the_whole_book() -> None:
    """The list, a file for each laptop with its address there, whose session is to end, and what was theirs before."""
    ways = _ways(Told(_answer(eve=1)), Told(_answer(eve=0)))

    done = _carried(ways, "eve")

    assert done == ({"us-west-2": {"eve": 1}, "cellar": {"eve": 0}}, {})
    ((command, text),) = ways["cellar"].texts
    assert command == TAKE
    assert json.loads(text) == {
        "crl": "the list\n",
        "laptops": {
            "udp": {
                "ada.laptop": "ifconfig-push 10.121.4.2 255.255.254.0\n",
                "grace.desk": "ifconfig-push 10.121.4.5 255.255.254.0\n",
            },
            "tcp": {
                "ada.laptop": "ifconfig-push 10.121.6.2 255.255.254.0\n",
                "grace.desk": "ifconfig-push 10.121.6.5 255.255.254.0\n",
            },
        },
        "cut": ["eve"],
        "revoked": {"2b": "ada.laptop"},
        "version": 0,
    }


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (SILENCE, "nobody answers on port 22"),
        ("bash: not found", "something else than was asked"),
        ("{}", "something else"),
        ("[]", "something else"),
    ],
    ids=["unreached", "no-json", "no-answer", "a-list"],
)
def test_a_gateway_that_fails_is_named_and_keeps_none_from_being_told(answer: str | BedplateError, told: str) -> None:
    """The others are in force at once; the status is 6, and the same command is right the next time."""
    ways = _ways(Told(answer), Told(_answer()))

    done = carry(lab_gateways(), BOOK, lambda gateway: ways[gateway.place])

    assert list(done.cut) == ["cellar"]
    assert told in done.failures["us-west-2"].what
    with pytest.raises(PartError, match=f"not every gateway was told: us-west-2: .*{told}"):
        done.check()


def test_a_laptop_without_room_keeps_nothing_from_the_gateways() -> None:
    """Whoever was revoked is out, and the laptop is named: the status is 6."""
    ways = _ways(Told(_answer(eve=1)), Told(_answer(eve=0)))
    book = Book("the list\n", (*BOOK.laptops, Laptop("late.desk", 509)))

    done = carry(lab_gateways(), book, lambda gateway: ways[gateway.place], cut=["eve"])

    assert set(done.cut) == {"us-west-2", "cellar"}
    assert "late.desk" not in ways["cellar"].texts[0][1]
    with pytest.raises(PartError, match=r"us-west-2 has no room for late\.desk; cellar has no room for late\.desk"):
        done.check()


def test_gateways_are_told_at_once() -> None:
    """One that is slow delays no other: whoever was cut off is out everywhere as soon as the slowest answers."""
    ways = _ways(Told(_answer(), seconds=0.5), Told(_answer(), seconds=0.5))

    start = monotonic()
    _carried(ways)

    assert monotonic() - start < 0.95


_BYTES = r"printf 'Zutritt verboten \374berall\n'"


def test_a_banner_of_any_bytes_is_told() -> None:
    """A site greets in what encoding it likes; the gateway is named as not reached, and the others are asked."""
    way = SshWay(("sh", "-c", f"{_BYTES} >&2; exit 255"))

    with pytest.raises(PartError, match=r"not reached: Zutritt verboten .berall"):
        way.run("true", "")


def test_an_answer_of_any_bytes_is_an_answer() -> None:
    """Whoever asked for JSON finds that it is none, and says so."""
    assert SshWay(("sh", "-c", _BYTES)).run("true", "").startswith("Zutritt verboten ")


GATE = lab_node("gate.cellar")


def test_a_site_is_to_have_the_tunnels_that_it_is_brought() -> None:
    """By the same names: whichever a gateway lacks is told by its own."""
    found = wanted(SITE_SIDE_LAB, GATE, 7)

    assert [each.name for each in found.tunnels] == [each.name for each in cellar().tunnels]
    assert found.number == 7


def test_a_transit_gateway_is_to_tell_of_its_region_and_its_laptops() -> None:
    """A tunnel to a region that has no laptops' gateway tells of the region alone."""
    told = {each.name: [str(block) for block in each.tells] for each in wanted(SITE_SIDE_LAB, GATE, 7).tunnels}

    assert told["us-west-2-1"] == told["us-west-2-2"] == ["10.64.0.0/16", "10.121.0.0/22"]
    assert told["us-east-1-1"] == ["10.65.0.0/16"]


def test_other_sites_are_to_be_told_of_by_any_tunnel() -> None:
    """Each transit gateway leads to them all: one that tells is enough."""
    attic = with_settings(SITE_SIDE_LAB.sites[0], lan=SITE_SIDE_LAB.regions[0].zones[0].edge)
    attic = replace(attic, name="attic")

    assert wanted(SITE_SIDE_LAB, GATE, 7).elsewhere == ()
    assert wanted(replace(SITE_SIDE_LAB, sites=(*SITE_SIDE_LAB.sites, attic)), GATE, 7).elsewhere == (attic.lan,)


def test_joined_sites_are_to_tell_each_other_of_themselves() -> None:
    """By a tunnel of the name that the gateway is brought, beside those to regions."""
    plan = direct_plan()
    (node,) = (each for each in standing_nodes(plan) if each.name == f"gate.{CELLAR}")

    found = wanted(plan, node, None).tunnels

    assert [each.name for each in found] == [each.name for each in direct_gateway(plan, CELLAR).tunnels]
    assert found[-1] == WantedTunnel(f"{ATTIC}-site", (site_of(plan, ATTIC).lan,))


def test_a_virtual_private_gateway_is_to_tell_of_its_vpc_alone() -> None:
    """What a table of the VPC leads to, it does not tell."""
    found = wanted(replace(SITE_SIDE_LAB, interconnect=Interconnect.NONE), GATE, 7)

    assert found.tunnels[0] == WantedTunnel("us-west-2-1", (SITE_SIDE_LAB.home.block,))
    assert found.elsewhere == ()


def test_a_joined_region_is_to_have_a_tunnel_to_each_other_and_no_bgp() -> None:
    """The names are those that its gateway is brought; a gateway of laptops alone has none."""
    (node,) = (each for each in standing_nodes(joined_plan()) if each.name == f"laptops.{VARIANTS_WEST}")

    found = wanted(joined_plan(), node, None)

    assert found.tunnels == (WantedTunnel(NORTH),)
    assert [each.name for each in gateway_of(VARIANTS_WEST).tunnels] == [NORTH]
    assert wanted(joined_plan(), replace(node, duties=frozenset({Duty.LAPTOPS})), 1).tunnels == ()


NOW, DAY = 1_795_262_400, 86_400
ADA = Session("ada.laptop", "10.121.4.2", 2_300_000, 510, NOW - 7300, NOW - 2)
BOB = Session("bob.desk", "10.121.6.3", 90, 80, NOW - 40, None)
WEST, EAST = Tunnel("us-west-2-1", 3000, 12_000, 9_000, 4, "tunnels"), Tunnel("us-east-1-1", 20, 0, 0, None, "tunnels")
BLOCK, ROOM = IPv4Network("10.64.0.0/16"), IPv4Network("192.168.48.0/22")
TOLD = Neighbour("us-west-2-1", 2990, ("10.64.0.0/16", "192.168.48.0/22"))
WELL = Status(
    time=NOW,
    laptops={"udp": (ADA,), "tcp": (BOB,)},
    certificate=NOW + 60 * DAY,
    crl=NOW + 80 * DAY,
    tunnels=(WEST,),
    number=7,
    charons={"tunnels": True},
    bgp=(TOLD,),
)
WANTED = Wanted((WantedTunnel("us-west-2-1", (BLOCK,)),), (ROOM,), 7)
DUMB = Tunnel("us-west-2-1", None, 0, 0, None, "tunnels")

NORTH_1, DUMB_1 = Tunnel("eu-north-1-1", None, 0, 0, None, "tunnels"), replace(DUMB, name="eu-north-1-2", charon="mute")
MUTE = {"tunnels": True, "mute": False}
SPOKEN = (TOLD, Neighbour("us-east-1-1", None, ()))
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
    return _of(GATE, WANTED, status)


def _of(node: NodePlan, wanted: Wanted, status: Status) -> list[str]:
    return [f"{fault.is_failing}: {fault.message}" for fault in amiss(node, wanted, status, NOW)]


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
        ({"number": 6}, "True: it holds list 6 of revoked certificates, and 7 was signed: `bedplate vpn sync`"),
        ({"number": 8}, "False: it holds list 8 of revoked certificates, and the newest that is known here is 7"),
        ({"number": None}, "True: it does not say which list"),
        ({"owed": Owed(cut=frozenset({"ada.laptop"}))}, "True: sessions of ada.laptop are still to be ended"),
        ({"owed": Owed(anew=frozenset({"tcp"}))}, "True: its daemon over tcp goes by the certificate before"),
        ({"tunnels": None}, "True: it was not brought the tunnel us-west-2-1: `bedplate vpn tunnels`"),
        ({"tunnels": ()}, "True: it was not brought the tunnel us-west-2-1: `bedplate vpn tunnels`"),
        ({"tunnels": (WEST, EAST)}, "False: the tunnel us-east-1-1 is not in the plan"),
        ({"tunnels": (replace(WEST, age=None),)}, "True: the tunnel us-west-2-1 is down"),
        ({"tunnels": (DUMB,), "charons": {"tunnels": False}}, "True: nothing is known of the tunnel us-west-2-1"),
        ({"tunnels": (replace(WEST, idle=91),)}, "True: the tunnel us-west-2-1 stands, and no packet has come in"),
        ({"tunnels": (replace(WEST, age=20, idle=None),)}, "False: the tunnel us-west-2-1 stands, and no packet has"),
        ({"bgp": None}, "True: it does not say whom BGP reaches: apply the role keeper"),
        ({"bgp": ()}, "True: BGP does not stand by the tunnel us-west-2-1"),
        ({"bgp": (replace(TOLD, age=None),)}, "True: BGP does not stand by the tunnel us-west-2-1"),
        (
            {"bgp": (replace(TOLD, blocks=("192.168.48.0/22",)),)},
            "True: BGP does not tell of 10.64.0.0/16 by the tunnel",
        ),
        (
            {"bgp": (replace(TOLD, blocks=("10.64.0.0/16",)),)},
            "True: BGP does not tell of 192.168.48.0/22 by any tunnel",
        ),
        ({"bgp": (replace(TOLD, age=9, blocks=TOLD.blocks[1:]),)}, "False: BGP does not tell of 10.64.0.0/16 by"),
        ({"time": NOW - 241}, "True: its clock is off by 241 s"),
    ],
)
def test_what_does_not_carry_is_told(changes: Mapping[str, object], told: str) -> None:
    """The plan's tunnels and the newest list are what is judged; what has not had its time yet is a warning."""
    fields: dict[str, object] = {name: getattr(WELL, name) for name in WELL.__dataclass_fields__} | dict(changes)

    (fault,) = _told(Status(**fields))  # type: ignore[arg-type]

    assert fault.startswith(told)


def test_only_what_a_gateway_is_for_is_judged() -> None:
    """A region's gateway of laptops has no tunnels of its own to be down."""
    home = lab_node("laptops.us-west-2")

    assert _of(home, Wanted(number=7), replace(WELL, tunnels=None, bgp=None)) == []


def test_a_gateway_with_tunnels_less_than_the_plan_is_told_which() -> None:
    """All that it lacks in one line; what it has is judged besides."""
    due = replace(WANTED, tunnels=(*WANTED.tunnels, WantedTunnel("us-west-2-2"), WantedTunnel("eu-north-1-1")))

    assert _of(GATE, due, WELL) == [
        "True: it was not brought the tunnels us-west-2-2, eu-north-1-1: `bedplate vpn tunnels`"
    ]


def test_a_fleet_without_an_authority_has_no_newest_list() -> None:
    """Whatever list a gateway holds is not behind."""
    assert _of(GATE, replace(WANTED, number=None), WELL) == []


@pytest.mark.parametrize(
    ("tunnels", "told"),
    [
        (None, [f"True: it was not brought the tunnel {NORTH}: `bedplate vpn tunnels`"]),
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

    found = _of(node, wanted(joined_plan(), node, 7), replace(WELL, tunnels=tunnels, bgp=()))

    assert found == told


def test_tunnels_are_read_as_strongswan_prints_them() -> None:
    """A connection without an association is down, not absent."""
    assert carried(CONNS, SAS) == (replace(WEST, charon=""), Tunnel("us-west-2-2", None, 0, 0, None))


def test_the_table_of_gateways(expect: Expect) -> None:
    """What carries, by how much and since when; then who was not reached; what is amiss last."""
    lines = condition_lines(
        {"gate.cellar": replace(WELL, tunnels=(WEST, EAST, NORTH_1, DUMB_1), charons=MUTE, bgp=SPOKEN)},
        {"laptops.us-west-2": PartError("no answer within 30 s")},
        amiss(GATE, WANTED, replace(WELL, laptops={"udp": None}), NOW),
    )

    expect("laptops/status.txt", "\n".join(lines) + "\n")


def test_the_document_of_gateways() -> None:
    """Everything is in it, and what is amiss has a level."""
    document = condition_document(
        {"gate.cellar": WELL}, {"x": PartError("no answer")}, amiss(GATE, WANTED, WELL, NOW + 999)
    )

    assert document["gateways"]["gate.cellar"]["laptops"]["udp"][0]["name"] == "ada.laptop"
    assert document["unreached"] == {"x": "no answer"}
    assert [each["level"] for each in document["faults"]] == ["error"]


def test_metrics_are_as_prometheus_reads_them(expect: Expect) -> None:
    """A family's help and type come once, before its values; what is not known has no value."""
    expect("laptops/metrics.prom", metrics_text(replace(WELL, laptops={"udp": (ADA, BOB), "tcp": None})))


def test_what_is_missing_or_silent_has_rows_that_alarm(expect: Expect) -> None:
    """No certificate, no list, a daemon of tunnels that does not answer, BGP that does not stand: none is silence."""
    keyless = replace(WELL, laptops={"udp": ()}, certificate=None, crl=None, number=None)
    mute = replace(keyless, tunnels=(DUMB, EAST), charons={"tunnels": False}, bgp=(replace(TOLD, age=None, blocks=()),))

    text = metrics_text(replace(mute, owed=Owed(frozenset({"ada.laptop"}), frozenset({"tcp"}))))

    expect("laptops/metrics-lost.prom", text)


def test_a_gateway_of_tunnels_alone_says_nothing_of_laptops() -> None:
    """An alarm on a list that is not to be there would never end."""
    text = metrics_text(replace(WELL, laptops={}, certificate=None, crl=None, number=None))

    assert "bedplate_laptops" not in text
    assert f"bedplate_vpn_written_time_seconds {NOW}\n" in text


def test_the_page_alarms_on_what_is_written() -> None:
    """Every name of its table is in Prometheus's text, and every name of the text that can alarm is in the table."""
    named = set(re.findall(r"^\| `(bedplate_\w+)", page_text("vpn.md"), re.MULTILINE))
    known = replace(WELL, peer_certificate=NOW + 60 * DAY, peer_crl=NOW + 80 * DAY)
    written = set(re.findall(r"^# TYPE (\w+)", metrics_text(known), re.MULTILINE))

    assert named <= written
    assert {each for each in written if not each.endswith(("_bytes", "_age_seconds", "_packet_time_seconds"))} <= named
