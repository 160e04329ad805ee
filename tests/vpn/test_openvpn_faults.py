"""Interruptions for a laptop when a gateway restarts, crashes or is cut off, without unencrypted packets."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from signal import SIGKILL, SIGTERM
from time import sleep, time

import pytest

from bedplate.plan.laptops import Transport
from tests.testlab.network.laptops import CLEAR, NODE, PLACES, LaptopLab
from tests.testlab.network.netlab import capture, packets, pinging
from tests.testlab.run import clock_pace
from vpn.laptops.server import laptop_rules

ADA, BOB = "ada.laptop", "bob.laptop"
HOME = PLACES[0]
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("laptops-faults")]


@dataclass(frozen=True)
class Fault:
    """A fault, and the longest interruption for a laptop in seconds."""

    name: str
    happens: Callable[[LaptopLab], None]
    silence: float


def _restart(lab: LaptopLab) -> None:
    gateway = lab.gateways[HOME]
    gateway.daemons[Transport.UDP].end(SIGTERM)
    gateway.start(Transport.UDP)


def _crash(lab: LaptopLab) -> None:
    """Kill the daemon without a notification to clients, and start it as its unit does."""
    gateway = lab.gateways[HOME]
    gateway.daemons[Transport.UDP].end(SIGKILL)
    sleep(1)
    gateway.start(Transport.UDP)


def _cut(seconds: float) -> Callable[[LaptopLab], None]:
    def happens(lab: LaptopLab) -> None:
        host = lab.laptops[ADA].host
        host.cut("wlan0")
        sleep(seconds)
        host.heal()

    return happens


def _die(lab: LaptopLab) -> None:
    for daemon in lab.gateways[HOME].daemons.values():
        daemon.end(SIGKILL)


def _shut_udp(lab: LaptopLab) -> None:
    lab.net.load_rules("table inet shut { chain c { type filter hook forward priority 0; meta l4proto udp drop\n}\n}\n")


# Limits in docs/vpn.md.
FAULTS = (
    Fault("restarted", _restart, 5),
    Fault("crashed", _crash, 15),
    Fault("cut-for-1-s", _cut(1), 1 + 3),
    Fault("cut-for-5-s", _cut(5), 5 + 3),
    Fault("cut-for-30-s", _cut(30), 30 + 10),
    Fault("gateway-dies", _die, 30),
    Fault("udp-shut", _shut_udp, 30),
)


@pytest.fixture
def lab() -> Iterator[LaptopLab]:
    """Return a fleet with two running gateways and two connected laptops."""
    with LaptopLab("fault", ADA, BOB) as lab:
        for gateway in lab.gateways.values():
            gateway.start()
        for name, laptop in lab.laptops.items():
            laptop.connect(lab.profile(name))
            laptop.wait()
            laptop.host.load_rules(laptop_rules([gateway.gateway for gateway in lab.gateways.values()]))
        yield lab


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_laptop_recovers_and_no_packet_is_unencrypted(fault: Fault, lab: LaptopLab) -> None:
    """No wire of the internet has a packet of the fleet's addresses."""
    ada, west = lab.laptops[ADA].host, lab.gateways[HOME].host
    with ExitStack() as stack:
        wires = [stack.enter_context(capture(ada, "wlan0")), stack.enter_context(capture(west, "wan0"))]
        there, back = pinging(ada, NODE), pinging(lab.node, "10.121.0.2")
        there.wait_for_answer(5)
        before = clock_pace()
        fault.happens(lab)
        over = time()
        there.wait_for_answer(2 * fault.silence * before)
        sleep(1)
        answers = there.stop()
        back.program.end()

    assert answers.longest <= fault.silence * max(before, clock_pace())
    assert answers.first_after(over)
    assert [line for wire in wires for line in packets(wire, CLEAR)] == []
    assert all(packets(wire, "udp port 1194 or tcp port 443") for wire in wires)


def test_without_its_packet_filter_a_laptop_leaks(lab: LaptopLab) -> None:
    """The capture above would detect unencrypted packets."""
    ada = lab.laptops[ADA]
    ada.end()

    with capture(ada.host, "wlan0") as guarded:
        ada.host.pings(NODE, times=2, seconds=0.2)
    ada.host.run("nft", "delete", "table", "inet", "bedplate_lab")
    with capture(ada.host, "wlan0") as bare:
        ada.host.pings(NODE, times=2, seconds=0.2)

    assert not packets(guarded, CLEAR)
    assert len(packets(bare, CLEAR)) == 2
