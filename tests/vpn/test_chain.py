"""The complete path: from a laptop through OpenVPN and strongSwan to the other end of the fleet, by name, and back."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import sleep, time

import pytest

from tests.testlab.network.laptops import CLEAR, MACHINE, MACHINE_NAME, NODE, NODE_NAME
from tests.testlab.network.netlab import capture, packets, pinging, until
from tests.testlab.network.regions import ChainLab
from tests.testlab.run import clock_pace

ADA, BOB = "ada.laptop", "bob.desk"
# The gateway of each laptop, and its address there.
DIALS = {ADA: "52.1.2.3 1194 udp4", BOB: "8.20.30.40 1194 udp4"}
IS = {ADA: "10.121.0.2", BOB: "10.121.4.3"}
# All wires of the internet with a tunnel: the site's, AWS's, the region's gateway's, and both laptops'.
WIRES = ("gate", "aws", "west", "laptop0", "laptop1")
PING = ("ping", "-n", "-c", "2", "-i", "0.1", "-W", "1")
# Limits in docs/vpn-sites.md for a cut line and a restarted charon.
SOON = 5
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("chain")]


@pytest.fixture(scope="module")
def lab() -> Iterator[ChainLab]:
    """Return both tunnels of the site, a laptop at the region's gateway, and one at the site's."""
    with ChainLab("chain", ADA, BOB) as lab:
        lab.answer_names()
        lab.start()
        for name, laptop in lab.laptops.items():
            lines = lab.profile(name).splitlines()
            kept = [line for line in lines if not line.startswith("remote ") or line.endswith(DIALS[name])]
            script = str(laptop.names_from_gateway())
            laptop.connect("\n".join(kept) + "\n", "--script-security", "2", "--up", script)
            laptop.wait()
        yield lab


@pytest.mark.parametrize(("name", "target"), [(ADA, MACHINE_NAME), (BOB, NODE_NAME)])
def test_a_laptop_reaches_the_far_end_by_name(name: str, target: str, lab: ChainLab) -> None:
    """Through the region's gateway to the site's machine, and through the site's gateway to the region's node."""
    with ExitStack() as stack:
        wires = [stack.enter_context(capture(lab.net, device)) for device in WIRES]
        assert "2 received" in lab.laptops[name].named(*PING, target)

    assert [line for wire in wires for line in packets(wire, CLEAR)] == []
    assert packets(wires[0], "udp port 4500")


@pytest.mark.parametrize(("name", "device"), [(ADA, "machine"), (BOB, "node")])
def test_the_far_end_sees_the_laptops_address(name: str, device: str, lab: ChainLab) -> None:
    """No gateway on the path translates addresses, so that servers can log the laptop."""
    host, target = (lab.machine, MACHINE) if device == "machine" else (lab.node, NODE)
    with capture(host, "lan0") as wire:
        assert lab.laptops[name].host.pings(target)

    assert packets(wire, f"icmp and src {IS[name]}")


def test_the_far_ends_reach_each_other_by_name(lab: ChainLab) -> None:
    """The site's machine resolves and reaches the region's node through the tunnel, and the other way round."""
    assert "2 received" in lab.named(lab.machine, *PING, NODE_NAME)
    assert "2 received" in lab.named(lab.node, *PING, MACHINE_NAME)


@pytest.mark.parametrize("name", [ADA, BOB])
def test_the_far_end_cannot_open_a_connection_to_a_laptop(name: str, lab: ChainLab) -> None:
    """The gateway of the laptop drops it, also through strongSwan."""
    host = lab.machine if name == ADA else lab.node

    assert not host.tries("timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{IS[name]}/22")
    assert not host.pings(IS[name], seconds=0.3)


def _cut(lab: ChainLab) -> None:
    lab.net.cut("gate")
    sleep(4)
    lab.net.heal()


def _kill(lab: ChainLab) -> None:
    lab.tunnels.kill()
    sleep(2)
    lab.tunnels.start()


@pytest.mark.parametrize("fault", [_cut, _kill], ids=["line-cut", "site-killed"])
def test_no_packet_is_unencrypted_while_the_tunnel_is_down(fault: Callable[[ChainLab], None], lab: ChainLab) -> None:
    """Laptops and machines keep sending, and all connections recover."""
    ada, bob = (lab.laptops[name].host for name in (ADA, BOB))
    with ExitStack() as stack:
        wires = [stack.enter_context(capture(lab.net, device)) for device in WIRES]
        inside = stack.enter_context(capture(lab.gateways["us-west-2"].host, "links0"))
        pings = [pinging(ada, MACHINE), pinging(bob, NODE), pinging(lab.machine, NODE), pinging(lab.node, MACHINE)]
        for ping in pings:
            ping.wait_for_answer(10)
        fault(lab)
        over = time()
        until(lambda: all(ping.answers.first_after(over) for ping in pings), 30, "a laptop or machine does not recover")
        answers = [ping.stop() for ping in pings]

    assert all(answer.lost for answer in answers)
    assert max((answer.first_after(over) or 0) - over for answer in answers) <= SOON * clock_pace()
    assert [line for wire in wires for line in packets(wire, CLEAR)] == []
    assert packets(inside, CLEAR)
    assert all(packets(wire) for wire in wires)
