"""The role `monitoring`: what a node tells, and to whom."""

from ipaddress import IPv4Address

import pytest

from roles.monitoring.address import NOBODY, PrivateAddress
from roles.monitoring.role import Monitoring
from roles.running import States
from tests.support.recorded import Recorded, recorded
from tests.support.recorder import Played, Recorder

DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
UNIT = "prometheus-node-exporter.service"
SETTINGS = "/etc/default/prometheus-node-exporter"


def listening(played: Played) -> str:
    """Return where the exporter is told to listen."""
    (found,) = [word for word in played.written(SETTINGS).split() if "--web.listen-address=" in word]
    return found.rpartition("=")[2]


@pytest.mark.parametrize("table", [DEBIAN, UBUNTU], ids=["debian", "ubuntu"])
@pytest.mark.parametrize(
    ("address", "where"),
    [(IPv4Address("192.168.40.21"), "192.168.40.21:9100"), (None, "10.64.33.7:9100")],
    ids=["planned", "asked"],
)
def test_the_exporter_listens_on_the_private_address_alone(
    table: Recorded, address: IPv4Address | None, where: str
) -> None:
    """The plan's address, or the one that the node has among its fellows, and no other."""
    assert listening(Recorder(table).play(Monitoring(address))) == where


def test_a_node_that_reaches_nobody_is_watched_by_nobody() -> None:
    """Without an address it listens to itself, never to everybody."""
    table = DEBIAN.but({"roles.monitoring.address.PrivateAddress": None})

    assert listening(Recorder(table).play(Monitoring(None))) == f"{NOBODY}:9100"


def test_the_way_out_tells_the_address() -> None:
    """The word after `src` counts, whatever else iproute2 says."""
    assert PrivateAddress().process(["192.0.2.1 dev wg0 src 172.16.0.9 uid 0 "]) == IPv4Address("172.16.0.9")
    assert PrivateAddress().process(["RTNETLINK answers: Network is unreachable"]) == NOBODY


def test_new_settings_start_the_exporter_anew() -> None:
    """A change of address is a change of where it listens at once; no change starts nothing."""
    running = DEBIAN.but(
        {
            "deb.DebPackages": ("ii  prometheus-node-exporter  1.5.0  amd64  -",),
            "roles.running.States": ("active", f"multi-user.target.wants/{UNIT}"),
        }
    )
    recorder = Recorder(running)
    recorder.play(Monitoring(IPv4Address("10.0.0.1")))

    same = recorder.play(Monitoring(IPv4Address("10.0.0.1")))
    moved = recorder.play(Monitoring(IPv4Address("10.0.0.2")))

    assert same.changes == []
    assert moved.changes == ["Where the exporter listens", "Exporter reads its settings"]


def test_the_exporter_never_listens_to_everybody() -> None:
    """A package that starts its service by itself finds loopback in its settings; configure gives the address."""
    recorder = Recorder(DEBIAN)

    installed = recorder.play(Monitoring(IPv4Address("10.0.0.1")), stages=["install"])

    assert installed.names == ["Exporter waits for its address", "Node exporter"]
    assert listening(installed) == f"{NOBODY}:9100"


def test_units_are_asked_about_at_once() -> None:
    """Active are those that systemd says so of, in their order; enabled those that a link starts at boot."""
    fact = States()
    asked = fact.command(("ssh.service", "none.service")).get_raw_value()

    told = ["active", "inactive", "multi-user.target.wants/ssh.service"]

    assert asked.startswith("systemctl is-active ssh.service none.service ;")
    assert "*.wants/ssh.service *.wants/none.service" in asked
    assert fact.process(told) == {"ssh.service": {"active", "enabled"}, "none.service": {"inactive"}}


@pytest.mark.parametrize(
    ("told", "does"),
    [
        (("active", f"multi-user.target.wants/{UNIT}"), []),
        (("failed", f"multi-user.target.wants/{UNIT}"), ["systemctl start"]),
        (("active",), ["systemctl --no-reload --quiet enable"]),
        (None, ["systemctl --no-reload --quiet enable", "systemctl start"]),
    ],
    ids=["runs", "failed", "disabled", "new"],
)
def test_a_unit_is_started_and_enabled_only_where_it_is_not(told: tuple[str, ...] | None, does: list[str]) -> None:
    """What runs is left alone."""
    table = DEBIAN.but({"roles.running.States": told})

    played = Recorder(table).play(Monitoring(IPv4Address("10.0.0.1")), stages=["activate"])

    assert [*played.step("Exporter runs").commands] == [f"{each} {UNIT}" for each in does]
