"""Failures of gateways: how long traffic is interrupted, and that no packet is unencrypted."""

import signal
from collections.abc import Iterator

import pytest

from tests.testlab.network.gateways import (
    CELLAR,
    CLEAR,
    DESK,
    RACK,
    Fault,
    Pair,
    cut,
    forgotten,
    killed,
    one_key,
    pair,
    suffer,
    unready,
)
from tests.testlab.network.netlab import capture, packets
from vpn.sites.files import RenderedFile

# Limits in docs/vpn-sites.md: seconds from the end of each fault to the next reply.
FAULTS = [
    pytest.param(killed("attic", 0, signal.SIGTERM), 5, id="who-answers-restarts"),
    pytest.param(killed("attic", 1), 5, id="who-answers-is-killed"),
    pytest.param(killed("cellar", 0, signal.SIGTERM), 5, id="who-dials-restarts"),
    pytest.param(killed("cellar", 1), 5, id="who-dials-is-killed"),
    pytest.param(killed("attic", 8), 5, id="who-answers-is-long-away"),
    pytest.param(cut(1), 3, id="cut-for-a-second"),
    pytest.param(cut(5), 3, id="cut-for-five-seconds"),
    pytest.param(cut(30), 3, id="cut-for-half-a-minute", marks=pytest.mark.nightly),
    pytest.param(forgotten, 15, id="who-answers-forgot"),
    pytest.param(unready, 5, id="who-answers-is-not-ready"),
]


@pytest.fixture
def running_lab() -> Iterator[Pair]:
    """Return two gateways with an established tunnel."""
    with pair(one_key()) as lab:
        lab.start()
        lab.wait()
        yield lab


@pytest.mark.parametrize(("fault", "limit"), FAULTS)
def test_traffic_recovers_after_a_fault(fault: Fault, limit: float, running_lab: Pair) -> None:
    """Within the limit, without an unencrypted packet, and with one IKE_SA."""
    outcome = suffer(running_lab, fault)

    assert outcome.after <= limit
    assert outcome.clear == 0
    assert outcome.passed > 0


def twice(file: RenderedFile) -> str:
    """Change both gateways so that they can establish a tunnel twice, as by dialling at the same time."""
    return file.text.replace("unique = replace", "unique = never").replace(
        "make_before_break = yes", "make_before_break = yes\n  reuse_ikesa = no"
    )


def test_a_duplicate_tunnel_is_ended_by_the_end_that_dials() -> None:
    """The newest association stays and carries packets; the end that waits terminates none."""
    with pair(one_key(), twice) as lab:
        lab.start()
        lab.wait()
        for watch in (*lab.cellar.watches.values(), *lab.attic.watches.values()):
            watch.end()
        lab.cellar.swanctl("--initiate", "--child", "attic", "--ike", "attic")

        lab.attic.dial()
        before = lab.attic.sas, lab.cellar.sas
        lab.cellar.dial()
        after = lab.attic.sas, lab.cellar.sas

        assert (before, after) == ((2, 2), (1, 1))
        assert lab.desk.pings(RACK)


def test_a_gateway_without_its_guard_leaks(running_lab: Pair) -> None:
    """The capture sees unencrypted packets without guard and last routes: the tests above would detect them."""
    running_lab.cellar.host.run("nft", "delete", "table", "inet", "bedplate_guard")
    running_lab.cellar.host.run("ip", "route", "flush", "type", "unreachable")
    with capture(running_lab.internet, "c0") as wire:
        running_lab.cellar.kill()
        running_lab.desk.pings(RACK)

    assert packets(wire, CLEAR)


def test_the_guard_alone_is_enough(running_lab: Pair) -> None:
    """Without the last routes, the guard drops and counts all packets."""
    running_lab.cellar.host.run("ip", "route", "flush", "type", "unreachable")
    with capture(running_lab.internet, "c0") as wire:
        running_lab.cellar.kill()
        running_lab.desk.pings(RACK)
        running_lab.cellar.host.tries("ping", "-c", "1", "-W", "1", RACK)

    assert not packets(wire, CLEAR)
    counted = running_lab.cellar.host.run("nft", "list", "table", "inet", "bedplate_guard")
    assert counted.count("counter packets 0") < counted.count("counter packets")


def test_unencrypted_packets_from_remote_networks_are_dropped(running_lab: Pair) -> None:
    """The guard drops a packet with a remote source address that arrives outside a tunnel."""
    rules = "inet bedplate_guard"
    internet, desk = running_lab.internet, running_lab.desk
    internet.run("ip", "address", "add", f"{RACK}/32", "dev", "lo")
    internet.route(CELLAR.blocks[0], "198.51.100.2")

    with capture(desk, "eth0") as guarded:
        internet.tries("ping", "-c", "2", "-W", "1", "-I", RACK, DESK)
    running_lab.cellar.host.run("nft", "delete", "table", *rules.split())
    with capture(desk, "eth0") as open_door:
        internet.tries("ping", "-c", "2", "-W", "1", "-I", RACK, DESK)

    assert not packets(guarded, f"src {RACK}")
    assert packets(open_door, f"src {RACK}")
