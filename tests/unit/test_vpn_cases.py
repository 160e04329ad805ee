"""Reports of other projects' users, as inputs of the gateway agent and of `vpn status`: sessions and tunnels."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.programs.gateway.sessions import (
    Session,
    end_sessions,
    read_sessions,
    read_starts,
    update_last_seen,
    update_starts,
)
from bedplate.programs.gateway.status import Status, Tunnel, metrics_text, parse_tunnels
from tests.testlab.fakes.daemons import daemon
from tests.testlab.fleets.variants import lab_node
from vpn.status import ExpectedGateway, ExpectedTunnel, gateway_findings, tunnel_findings

NOW, MINUTE = 1_795_730_434, 60
HOME, OFFICE = "198.51.100.7", "203.0.113.61"
ADA = Session("ada.laptop", "10.127.0.5", 5000, 4000, NOW - 3600, NOW - 1, HOME)
GATEWAY = lab_node("laptops.us-west-2")
STATUS = Status(NOW, {"udp": (ADA,), "tcp": ()}, NOW + 10**7, NOW + 10**7, None, number=7)


def findings(status: Status) -> list[str]:
    """Return the findings about a gateway of laptops."""
    return [finding.message for finding in gateway_findings(GATEWAY, ExpectedGateway(number=7), status, NOW)]


def look_each_minute(file: Path, *sessions: Session) -> Status:
    """Return the status of a gateway after looks at one session each, as the timer of the agent has them."""
    for session in sessions:
        file.write_text(json.dumps(update_starts(file, [session], session.since)))
    return replace(STATUS, starts=read_starts(file))


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        # https://github.com/netdata/go.d.plugin/pull/1334: floods and port scans fill the list.
        (("UNDEF", "UNDEF", "ada.laptop"), ["ada.laptop"]),
        # https://github.com/patrickjahns/openvpn_exporter/pull/13, https://github.com/munin-monitoring/contrib/pull/856
        (("UNDEF", "UNDEF"), []),
        # https://github.com/kumina/openvpn_exporter/issues/47
        (("UNDEF",) * 5, []),
        # https://github.com/patrickjahns/openvpn_exporter/pull/16: one name, two rows.
        (("ada.laptop", "UNDEF", "ada.laptop"), ["ada.laptop", "ada.laptop"]),
    ],
)
def test_a_handshake_is_no_session(rows: tuple[str, ...], names: list[str], tmp_path: Path) -> None:
    """It is in no report, no metric and no list of last connections, and nobody ends it."""
    socket, seen = tmp_path / "udp", tmp_path / "seen.json"
    # An earlier version has stored it.
    seen.write_text('{"UNDEF": 1, "bob.laptop": 2}')
    with daemon(socket, *rows) as commands:
        sessions = read_sessions(socket)
        end_sessions({socket: ("ada.laptop",)}, ())

    assert sessions is not None
    assert [session.name for session in sessions] == names
    assert set(update_last_seen(seen, sessions, NOW)) == {*names, "bob.laptop"}
    assert "UNDEF" not in metrics_text(replace(STATUS, laptops={"udp": sessions}))
    assert commands == []


def test_a_profile_on_two_devices_is_named(tmp_path: Path) -> None:
    """Each ends the session of the other, in a loop: at each look there is a new one, from either address.

    Reports: https://github.com/StreisandEffect/streisand/issues/1240, https://github.com/OpenVPN/openvpn3/issues/311,
    https://github.com/Nyr/openvpn-install/issues/89.
    """
    looks = [
        replace(ADA, since=NOW + MINUTE * minute, source=source)
        for minute, source in enumerate((HOME, OFFICE, OFFICE, HOME))
    ]

    (finding,) = findings(look_each_minute(tmp_path / "starts.json", *looks))

    assert finding == (
        f"ada.laptop has a new session each minute, from {HOME} and {OFFICE}: a second device with this profile:"
        " `bedplate person invite ada --laptop NAME` makes one for each device"
    )


def test_two_devices_behind_one_router_may_be_a_bad_line(tmp_path: Path) -> None:
    """Their address is the same, so the finding names both causes.

    Report: https://github.com/Nyr/openvpn-install/issues/1133.
    """
    looks = [replace(ADA, since=NOW + MINUTE * minute) for minute in range(5)]

    (finding,) = findings(look_each_minute(tmp_path / "starts.json", *looks))

    assert finding.startswith(f"ada.laptop has a new session each minute, from {HOME}: a bad line, or a second device")


def test_a_profile_at_two_daemons_is_named() -> None:
    """Neither ends the session of the other: a phone over TCP and a laptop over UDP.

    Report: https://github.com/Nyr/openvpn-install/issues/89.
    """
    phone = replace(ADA, source=OFFICE)

    (finding,) = findings(replace(STATUS, laptops={"udp": (ADA,), "tcp": (phone,)}))

    assert finding.startswith(f"ada.laptop has two sessions, from {HOME} and {OFFICE}: a second device")


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param([0, 0, 0, 0, 0], id="stays connected"),
        pytest.param([0, 1, 1, 2, 2, 3, 3, 3], id="changes the network now and then"),
        pytest.param([0, 600, 1200, 1800, 2400], id="connects for seconds, hours apart"),
        pytest.param([0, 1, 2], id="three short sessions"),
    ],
)
def test_a_laptop_that_moves_is_no_finding(starts: list[int], tmp_path: Path) -> None:
    """Only new sessions in four minutes in a row are."""
    looks = [replace(ADA, since=NOW + MINUTE * minute) for minute in starts]

    assert findings(look_each_minute(tmp_path / "starts.json", *looks)) == []


def test_restarts_end_with_the_last_session(tmp_path: Path) -> None:
    """A laptop that has given up, or now has one device, is no finding five minutes later; nor is a damaged file."""
    file = tmp_path / "starts.json"
    looks = [replace(ADA, since=NOW + MINUTE * minute) for minute in range(5)]
    assert findings(look_each_minute(file, *looks))

    assert update_starts(file, [], looks[-1].since + 6 * MINUTE) == {}
    assert findings(look_each_minute(file, looks[-1])) == []
    file.write_text('{"ada.laptop": 5}')
    assert findings(look_each_minute(file, looks[-1])) == []


_CONNECTION = "list-conn event {us-east-1 {version=IKEv2 children {net {mode=TUNNEL}}}}\n"
_IKE = "list-sa event {us-east-1 {state=ESTABLISHED established=7321 child-sas {%s}}}\n"
_CHILD = "net-%d {state=INSTALLED bytes-in=91233 use-in=2 bytes-out=%s install-time=%d}"


def tunnel_messages(tunnel: Tunnel) -> list[str]:
    """Return the findings about a tunnel."""
    status = Status(NOW, {}, None, None, (tunnel,), charon=True)
    return [finding.message for finding in tunnel_findings(ExpectedGateway((ExpectedTunnel("us-east-1"),)), status)]


@pytest.mark.parametrize(
    ("children", "unsent"),
    [
        # https://github.com/strongswan/strongswan/issues/2477: after a collision of rekeys one end has no outbound SA.
        (_CHILD % (1, "0", 7300), 7300),
        # https://github.com/strongswan/strongswan/issues/1896: the old child is still there.
        (f"{_CHILD % (1, '5000 use-out=400', 4000)} {_CHILD % (2, '0', 390)}", 390),
    ],
)
def test_a_tunnel_that_never_sends_is_named_at_this_end(children: str, unsent: int) -> None:
    """The far end hears nothing; its operator would search there."""
    (tunnel,) = parse_tunnels(_CONNECTION, _IKE % children)

    assert (tunnel.idle, tunnel.unsent) == (2, unsent)
    (message,) = tunnel_messages(tunnel)
    assert message == (
        f"tunnel us-east-1 receives, but has not sent a packet for {unsent} s:"
        " restart bedplate-ipsec-tunnels.service on this gateway"
    )
    status = Status(NOW, {}, None, None, (tunnel,), charon=True)
    assert f'bedplate_tunnel_unsent_seconds{{tunnel="us-east-1"}} {unsent}\n' in metrics_text(status)


def test_the_end_of_an_older_agent_is_named_by_its_bytes() -> None:
    """It reports no time: no byte in two hours is enough.

    Report: https://github.com/strongswan/strongswan/issues/2477.
    """
    assert tunnel_messages(Tunnel("us-east-1", age=7321, received=91233, sent=0, idle=2))
    assert tunnel_messages(Tunnel("us-east-1", age=7321, received=91233, sent=5000, idle=2)) == []


def test_a_tunnel_just_after_a_rekey_is_no_finding() -> None:
    """The new child has sent nothing for seconds."""
    (tunnel,) = parse_tunnels(_CONNECTION, _IKE % (_CHILD % (2, "0", 3)))

    assert tunnel_messages(tunnel) == []


def test_a_tunnel_without_a_child_is_named() -> None:
    """IKE is up and carries nothing.

    Report: https://github.com/strongswan/strongswan/issues/390.
    """
    (tunnel,) = parse_tunnels(_CONNECTION, _IKE % "")

    assert tunnel_messages(tunnel) == ["tunnel us-east-1 is up, but has not received a packet yet"]
