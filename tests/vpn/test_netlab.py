"""The laboratory itself: its measurements detect a fault."""

from collections.abc import Iterator
from time import sleep

import pytest

from tests.testlab.network.netlab import Lab, LabHost, capture, packets, pinging

pytestmark = pytest.mark.nightly

NEAR, FAR = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def pair() -> Iterator[tuple[LabHost, LabHost]]:
    """Return two hosts on one wire."""
    with Lab("wire") as lab:
        near, far = lab.host("near"), lab.host("far")
        lab.wire((near, "wan0", f"{NEAR}/24"), (far, "wan0", f"{FAR}/24"))
        yield near, far


def test_a_cut_wire_is_silent_until_it_is_healed(pair: tuple[LabHost, LabHost]) -> None:
    """A cut of one second is measured as a silence of about one second with lost pings."""
    near, _ = pair
    pings = pinging(near, FAR)
    pings.wait_for_answer(5)
    near.cut("wan0")
    sleep(1)
    near.heal()
    pings.wait_for_answer(5)

    answers = pings.stop()

    assert 0.9 < answers.longest < 3
    assert len(answers.silences) == 1
    assert answers.lost >= 10
    assert near.pings(FAR)


def test_a_capture_has_the_packets_of_the_wire(pair: tuple[LabHost, LabHost]) -> None:
    """A filter finds these packets and no others."""
    near, far = pair

    with capture(far, "wan0") as file:
        near.pings(FAR, times=2)

    assert len(packets(file, "icmp[icmptype] == icmp-echo")) == 2
    assert not packets(file, "udp")
