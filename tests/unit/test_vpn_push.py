"""Pushes to gateways, the expected state of gateways, and the findings and metrics from their status."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from time import monotonic

import pytest

from bedplate.errors import PartialError
from bedplate.nodes.apply import Target
from bedplate.plan.nodes import NodePlan, NodeRole, permanent_nodes
from bedplate.programs.gateway.access_list import PendingActions
from bedplate.programs.gateway.sessions import Session
from bedplate.programs.gateway.status import Neighbour, Status, Tunnel, metrics_text, parse_tunnels
from bedplate.report.vpn import condition_document, condition_lines
from bedplate.spec.network import Interconnect
from tests.conftest import Expect
from tests.testlab.fleets.variants import (
    ATTIC,
    CELLAR,
    LAB_PLAN,
    NORTH,
    WEST,
    cellar_gateway,
    connected_regions_plan,
    connected_site_gateway,
    connected_sites_plan,
    gateway_of,
    lab_gateways,
    lab_node,
    site_of,
    with_settings,
)
from tests.testlab.run import page_text
from vpn.laptops.server import Laptop
from vpn.push import AccessList, PushedAccessList, push_access_list
from vpn.status import ExpectedGateway, ExpectedTunnel, expected_gateway, gateway_findings, parse_status

LAPTOPS = (Laptop("ada.laptop", 0), Laptop("grace.desk", 3))
ACCESS_LIST = AccessList("the list\n", LAPTOPS, revoked={0x2B: "ada.laptop"})
GATE = lab_node("gate.cellar")


def _answer(**cut: int) -> str:
    return json.dumps({"number": 7, "cut": cut})


def _push(  # noqa: PLR0913  all that a push consists of
    folder: Path,
    home: str,
    site: str,
    *,
    access_list: AccessList = ACCESS_LIST,
    cut: tuple[str, ...] = (),
    seconds: float = 0,
) -> PushedAccessList:
    """Push to gateways with these answers; each writes the command and its input to the folder."""
    targets = {}
    for place, answer in (("us-west-2", home), ("cellar", site)):
        (folder / f"{place}.answer").write_text(answer)
        script = f'echo "$1" >{place}.command; cat >{place}.stdin; sleep {seconds}; cat {place}.answer'
        targets[place] = Target(GATE, ("sh", "-c", f"cd {folder}; {script}", "sh"))
    return push_access_list(lab_gateways(), access_list, targets, cut=cut)


def test_every_gateway_is_sent_the_whole_access_list(tmp_path: Path) -> None:
    """The list has revocations, each laptop's address there, sessions to end, and revoked certificates of laptops."""
    result = _push(tmp_path, _answer(eve=1), _answer(eve=0), cut=("eve",))

    assert (result.cut, result.failures) == ({"us-west-2": {"eve": 1}, "cellar": {"eve": 0}}, {})
    assert (tmp_path / "cellar.command").read_text() == "sudo -n bedplate-vpn activate\n"
    assert json.loads((tmp_path / "cellar.stdin").read_text()) == {
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
    "answer",
    ["bash: not found", "{}", "[]", '{"cut": 5}', '{"cut": {"ada": "x"}}', "[" * 200_000],
    ids=["no-json", "no-answer", "a-list", "no-sessions", "no-number", "deep"],
)
def test_a_gateway_that_fails_is_named_and_the_others_are_updated(answer: str, tmp_path: Path) -> None:
    """The exit status is 6, and the same command can be repeated."""
    result = _push(tmp_path, answer, _answer())

    assert list(result.cut) == ["cellar"]
    with pytest.raises(PartialError, match="not every gateway was updated: us-west-2: invalid answer"):
        result.check()


def test_a_laptop_without_an_address_does_not_stop_a_push(tmp_path: Path) -> None:
    """Revoked laptops are disconnected, and the laptop is named with exit status 6."""
    access_list = AccessList("the list\n", (*LAPTOPS, Laptop("late.desk", 509)))

    result = _push(tmp_path, _answer(eve=1), _answer(eve=0), access_list=access_list, cut=("eve",))

    assert set(result.cut) == {"us-west-2", "cellar"}
    assert "late.desk" not in (tmp_path / "cellar.stdin").read_text()
    with pytest.raises(PartialError, match=r"us-west-2 has no free address for late\.desk; cellar has no free address"):
        result.check()


def test_gateways_are_updated_in_parallel(tmp_path: Path) -> None:
    """A slow gateway does not delay the others."""
    start = monotonic()
    _push(tmp_path, _answer(), _answer(), seconds=0.5)

    assert monotonic() - start < 0.95


def _tunnel_names(tunnels: tuple[ExpectedTunnel, ...]) -> list[str]:
    return [tunnel.name for tunnel in tunnels]


def test_a_site_needs_the_tunnels_of_its_config_bundle() -> None:
    """The names are the same."""
    expected = expected_gateway(LAB_PLAN, GATE, 7)

    assert _tunnel_names(expected.tunnels) == [tunnel.name for tunnel in cellar_gateway().tunnels]
    assert expected.number == 7


def test_a_transit_gateway_announces_all_networks_of_its_region() -> None:
    """Its block and its laptops; pods and services are in the home region only."""
    routes = {tunnel.name: [*map(str, tunnel.routes)] for tunnel in expected_gateway(LAB_PLAN, GATE, 7).tunnels}

    home = ["10.64.0.0/16", "10.121.0.0/22", "10.112.0.0/13", "10.120.0.0/20"]
    assert routes["us-west-2-1"] == routes["us-west-2-2"] == home
    assert routes["us-east-1-1"] == ["10.65.0.0/16"]


def test_other_sites_are_announced_through_any_tunnel() -> None:
    """Each transit gateway has routes to all sites: one announcement is enough."""
    attic = with_settings(LAB_PLAN.sites[0], lan=LAB_PLAN.regions[0].zones[0].edge)
    attic = replace(attic, name="attic")

    assert expected_gateway(LAB_PLAN, GATE, 7).remote_blocks == ()
    assert expected_gateway(replace(LAB_PLAN, sites=(*LAB_PLAN.sites, attic)), GATE, 7).remote_blocks == (
        attic.networks[attic.name],
    )


def test_connected_sites_announce_their_own_blocks() -> None:
    """Their direct tunnel is expected in addition to those to regions."""
    plan = connected_sites_plan()
    (node,) = (node for node in permanent_nodes(plan) if node.name == f"gate.{CELLAR}")

    tunnels = expected_gateway(plan, node, None).tunnels

    assert _tunnel_names(tunnels) == [tunnel.name for tunnel in connected_site_gateway(plan, CELLAR).tunnels]
    assert tunnels[-1] == ExpectedTunnel(f"{ATTIC}-site", (site_of(plan, ATTIC).networks[ATTIC],))


def test_a_virtual_private_gateway_announces_only_its_vpc() -> None:
    """The gateway does not announce the targets of the VPC's route tables."""
    expected = expected_gateway(replace(LAB_PLAN, interconnect=Interconnect.NONE), GATE, 7)

    assert expected.tunnels[0] == ExpectedTunnel("us-west-2-1", (LAB_PLAN.home.block,))
    assert expected.remote_blocks == ()


def test_a_peered_region_needs_a_tunnel_to_each_other_without_bgp() -> None:
    """A gateway that only serves laptops needs none."""
    (node,) = (node for node in permanent_nodes(connected_regions_plan()) if node.name == f"laptops.{WEST}")

    expected = expected_gateway(connected_regions_plan(), node, None)

    assert expected.tunnels == (ExpectedTunnel(NORTH),)
    assert [tunnel.name for tunnel in gateway_of(WEST).tunnels] == [NORTH]
    assert (
        expected_gateway(connected_regions_plan(), replace(node, roles=frozenset({NodeRole.LAPTOPS})), 1).tunnels == ()
    )


NOW, DAY = 1_795_262_400, 86_400
ADA = Session("ada.laptop", "10.121.4.2", 2_300_000, 510, NOW - 7300, NOW - 2)
BOB = Session("bob.desk", "10.121.6.3", 90, 80, NOW - 40, None)
TUNNEL = Tunnel("us-west-2-1", 3000, 12_000, 9_000, 4, 1)
NEW_TUNNEL = Tunnel("us-east-1-1", 20, 0, 0, None)
DOWN_TUNNEL = Tunnel("us-west-2-1", None, 0, 0, None)
REGION_BLOCK, SITE_BLOCK = IPv4Network("10.64.0.0/16"), IPv4Network("192.168.48.0/22")
NEIGHBOUR = Neighbour("us-west-2-1", 2990, ("10.64.0.0/16", "192.168.48.0/22"))
HEALTHY = Status(
    time=NOW,
    laptops={"udp": (ADA,), "tcp": (BOB,)},
    certificate=NOW + 60 * DAY,
    crl=NOW + 80 * DAY,
    tunnels=(TUNNEL,),
    number=7,
    charon=True,
    bgp=(NEIGHBOUR,),
)
WANTED = ExpectedGateway((ExpectedTunnel("us-west-2-1", (REGION_BLOCK,)),), (SITE_BLOCK,), 7)

CONNECTIONS = (
    "list-conn event {us-west-2-1 {local_addrs=[8.20.30.40] remote_addrs=[52.9.9.9] version=IKEv2 "
    "local-1 {class=pre-shared key id=8.20.30.40} children {net {mode=TUNNEL local-ts=[0.0.0.0/0]}}}}\n"
    "list-conn event {us-west-2-2 {local_addrs=[8.20.30.40] version=IKEv2 children {net {mode=TUNNEL}}}}\n"
    "list-conns reply {}\n"
)
ASSOCIATIONS = (
    "list-sa event {us-west-2-1 {uniqueid=1 version=2 state=ESTABLISHED local-id=CN=gate "
    "remote-id=52.9.9.9 established=3000 rekey-time=22000 child-sas {net-1 {name=net state=INSTALLED mode=TUNNEL "
    "bytes-in=12000 packets-in=90 use-in=4 bytes-out=9000 packets-out=80 use-out=1 install-time=2990 "
    "local-ts=[0.0.0.0/0] remote-ts=[0.0.0.0/0]}}}}\n"
    "list-sas reply {}\n"
)


def _findings(status: Status, expected: ExpectedGateway = WANTED, node: NodePlan = GATE) -> list[str]:
    findings = gateway_findings(node, expected, status, NOW)
    return [f"{'error' if finding.is_failing else 'warning'}: {finding.message}" for finding in findings]


def test_the_status_of_a_gateway_is_parsed_unchanged() -> None:
    """The operator's machine gets the same values."""
    assert parse_status(json.dumps(HEALTHY.document())) == HEALTHY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"laptops": 1}',
        "bash: bedplate-vpn: not found",
        "[" * 200_000,
        json.dumps({**HEALTHY.document(), "certificate": "soon"}),
        json.dumps({**HEALTHY.document(), "laptops": {"udp": [5]}}),
        json.dumps({**HEALTHY.document(), "seen": {"ada.laptop": 10**12}}),
        json.dumps({**HEALTHY.document(), "crl": 10**18}),
        json.dumps({**HEALTHY.document(), "laptops": {"udp\nerror: forged": None}}),
    ],
)
def test_an_invalid_status_is_an_error_of_this_gateway(text: str) -> None:
    """The report still has the other gateways."""
    with pytest.raises(PartialError, match="invalid status from the gateway agent"):
        parse_status(text)


def test_a_healthy_gateway_has_no_findings() -> None:
    """Whether laptops are connected does not matter."""
    assert _findings(HEALTHY) == []
    assert _findings(replace(HEALTHY, laptops={"udp": (), "tcp": ()})) == []


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"laptops": {"udp": None, "tcp": ()}}, "error: OpenVPN over udp is down"),
        ({"laptops": {}}, "error: no OpenVPN daemon is installed: apply the role openvpn"),
        ({"certificate": NOW + 5 * DAY}, "warning: the certificate expires in 5 days"),
        ({"certificate": NOW + 3 * DAY}, "error: the certificate expires in 3 days"),
        ({"crl": NOW + 14 * DAY}, "warning: the revocation list expires in 14 days"),
        ({"crl": NOW - 1}, "error: the revocation list has expired, all connections are rejected"),
        ({"crl": None}, "error: the revocation list is missing"),
        ({"number": 6}, "error: the revocation list is number 6, the newest is 7: run `bedplate vpn sync`"),
        ({"number": 8}, "warning: the revocation list is number 8, the newest in fleet.pki is 7"),
        ({"number": None}, "error: the number of the revocation list is not reported"),
        ({"owed": PendingActions(cut=frozenset({"ada.laptop"}))}, "error: sessions of ada.laptop must still be ended"),
        (
            {"owed": PendingActions(restart=frozenset({"tcp"}))},
            "error: OpenVPN over tcp still uses the former certificate",
        ),
        ({"tunnels": None}, "error: tunnel us-west-2-1 not configured: run `bedplate vpn tunnels`"),
        ({"tunnels": ()}, "error: tunnel us-west-2-1 not configured: run `bedplate vpn tunnels`"),
        ({"tunnels": (TUNNEL, NEW_TUNNEL)}, "warning: tunnel us-east-1-1 is not in the plan"),
        ({"tunnels": (replace(TUNNEL, age=None),)}, "error: tunnel us-west-2-1 is down"),
        (
            {"tunnels": (DOWN_TUNNEL,), "charon": False},
            "error: state of tunnel us-west-2-1 unknown: charon does not answer",
        ),
        (
            {"tunnels": (replace(TUNNEL, idle=91),)},
            "error: tunnel us-west-2-1 is up, but has not received a packet for 91 s",
        ),
        (
            {"tunnels": (replace(TUNNEL, age=20, idle=None),)},
            "warning: tunnel us-west-2-1 is up, but has not received a packet yet",
        ),
        ({"bgp": None}, "error: the state of BGP is not reported: apply the role vpnagent"),
        ({"bgp": ()}, "error: BGP is down in tunnel us-west-2-1"),
        ({"bgp": (replace(NEIGHBOUR, age=None),)}, "error: BGP is down in tunnel us-west-2-1"),
        (
            {"bgp": (replace(NEIGHBOUR, blocks=("192.168.48.0/22",)),)},
            "error: BGP announces no route to 10.64.0.0/16 through tunnel us-west-2-1",
        ),
        (
            {"bgp": (replace(NEIGHBOUR, blocks=("10.64.0.0/16",)),)},
            "error: BGP announces no route to 192.168.48.0/22 through any tunnel",
        ),
        (
            {"bgp": (replace(NEIGHBOUR, age=9, blocks=NEIGHBOUR.blocks[1:]),)},
            "warning: BGP announces no route to 10.64.0.0/16",
        ),
        ({"time": NOW - 241}, "error: the clock is off by 241 s"),
    ],
)
def test_each_defect_has_one_finding(changes: Mapping[str, object], finding: str) -> None:
    """The status is compared with the plan and the newest revocation list; what is new gets a warning first."""
    fields: dict[str, object] = {name: getattr(HEALTHY, name) for name in HEALTHY.__dataclass_fields__} | dict(changes)

    (message,) = _findings(Status(**fields))  # type: ignore[arg-type]

    assert message.startswith(finding)


def test_only_the_duties_of_a_gateway_are_checked() -> None:
    """A region's gateway of laptops without tunnels has no findings about tunnels."""
    home = lab_node("laptops.us-west-2")

    assert _findings(replace(HEALTHY, tunnels=None, bgp=None), ExpectedGateway(number=7), home) == []


def test_missing_tunnels_are_one_finding() -> None:
    """The finding names all of them."""
    expected = replace(WANTED, tunnels=(*WANTED.tunnels, ExpectedTunnel("us-west-2-2"), ExpectedTunnel("eu-north-1-1")))

    assert _findings(HEALTHY, expected) == [
        "error: tunnels us-west-2-2, eu-north-1-1 not configured: run `bedplate vpn tunnels`"
    ]


def test_without_an_authority_the_revocation_list_is_not_compared() -> None:
    """There is no newest list."""
    assert _findings(HEALTHY, replace(WANTED, number=None)) == []


@pytest.mark.parametrize(
    ("tunnels", "findings"),
    [
        (None, [f"error: tunnel {NORTH} not configured: run `bedplate vpn tunnels`"]),
        ((replace(TUNNEL, name=NORTH, age=None),), [f"error: tunnel {NORTH} is down"]),
        ((replace(TUNNEL, name=NORTH),), []),
    ],
    ids=["none", "down", "well"],
)
def test_the_tunnels_of_a_peered_region_are_checked(tunnels: tuple[Tunnel, ...] | None, findings: list[str]) -> None:
    """The checks are those of a site, without BGP."""
    (node,) = (node for node in permanent_nodes(connected_regions_plan()) if node.name == "laptops.us-west-2")
    status = replace(HEALTHY, tunnels=tunnels, bgp=())

    assert _findings(status, expected_gateway(connected_regions_plan(), node, 7), node) == findings


def test_swanctls_raw_output_is_parsed() -> None:
    """A connection without an association is down, not absent."""
    assert parse_tunnels(CONNECTIONS, ASSOCIATIONS) == (TUNNEL, Tunnel("us-west-2-2", None, 0, 0, None))


def test_the_table_of_gateways(expect: Expect) -> None:
    """Sessions and tunnels come first, then gateways that were not reached, findings last."""
    tunnels = (TUNNEL, NEW_TUNNEL, Tunnel("eu-north-1-1", None, 0, 0, None))
    neighbours = (NEIGHBOUR, Neighbour("us-east-1-1", None, ()))
    silent = replace(HEALTHY, laptops={}, tunnels=(replace(DOWN_TUNNEL, name="us-west-2-1"),), charon=False, bgp=())
    lines = condition_lines(
        {"gate.cellar": replace(HEALTHY, tunnels=tunnels, bgp=neighbours), "gate.attic": silent},
        {"laptops.us-west-2": PartialError("no answer within 30 s")},
        gateway_findings(GATE, WANTED, replace(HEALTHY, laptops={"udp": None}), NOW),
    )

    expect("laptops/status.txt", "\n".join(lines) + "\n")


def test_the_json_document_of_gateways() -> None:
    """The document has the status of each gateway, errors of unreached ones, and findings with a level."""
    findings = gateway_findings(GATE, WANTED, HEALTHY, NOW + 999)
    document = condition_document({"gate.cellar": HEALTHY}, {"x": PartialError("no answer")}, findings)

    assert document["gateways"]["gate.cellar"]["laptops"]["udp"][0]["name"] == "ada.laptop"
    assert document["unreached"] == {"x": "no answer"}
    assert [finding["level"] for finding in document["faults"]] == ["error"]


def test_metrics_are_in_prometheus_format(expect: Expect) -> None:
    """Each metric has one HELP and TYPE line before its values; unknown values are left out."""
    expect("laptops/metrics.prom", metrics_text(replace(HEALTHY, laptops={"udp": (ADA, BOB), "tcp": None})))


def test_missing_certificates_and_silent_daemons_have_values(expect: Expect) -> None:
    """Alarms need a value: without a certificate, a revocation list, an answer of charon, or a BGP session."""
    keyless = replace(HEALTHY, laptops={"udp": ()}, certificate=None, crl=None, number=None)
    down = replace(NEIGHBOUR, age=None, blocks=())
    silent = replace(keyless, tunnels=(DOWN_TUNNEL, NEW_TUNNEL), charon=False, bgp=(down,))

    text = metrics_text(replace(silent, owed=PendingActions(frozenset({"ada.laptop"}), frozenset({"tcp"}))))

    expect("laptops/metrics-lost.prom", text)


def test_a_gateway_without_laptops_has_no_metrics_of_laptops() -> None:
    """An alarm on a revocation list that is not needed would never end."""
    text = metrics_text(replace(HEALTHY, laptops={}, certificate=None, crl=None, number=None))

    assert "bedplate_laptops" not in text
    assert f"bedplate_vpn_written_time_seconds {NOW}\n" in text


def test_documented_alarms_are_metrics() -> None:
    """Each metric in the table of docs/vpn.md exists, and each metric for an alarm is in the table."""
    documented = set(re.findall(r"^\| `(bedplate_\w+)", page_text("vpn.md"), re.MULTILINE))
    status = replace(HEALTHY, peer_certificate=NOW + 60 * DAY, peer_crl=NOW + 80 * DAY)
    names = set(re.findall(r"^# TYPE (\w+)", metrics_text(status), re.MULTILINE))

    assert documented <= names
    without_alarm = ("_bytes", "_age_seconds", "_packet_time_seconds")
    assert {name for name in names if not name.endswith(without_alarm)} <= documented
