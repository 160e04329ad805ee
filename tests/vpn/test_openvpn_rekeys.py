"""A laptop's session keys are renewed while packets pass, without an interruption."""

from collections.abc import Iterator
from time import sleep

import pytest

from tests.testlab.network.laptops import NODE, PLACES, LaptopLab
from tests.testlab.network.netlab import pinging

ADA = "ada.laptop"
# Shortened from an hour for several renewals in a run.
SECONDS, RUN_SECONDS = 6, 28
MOST_LOST = 0.002
RENEWED = "TLS: soft reset"
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("laptops-between")]


def _short(text: str) -> str:
    assert "\nreneg-sec 3600\n" in text
    return text.replace("\nreneg-sec 3600\n", f"\nreneg-sec {SECONDS}\n")


@pytest.fixture
def lab() -> Iterator[LaptopLab]:
    """Return a connected laptop whose keys are renewed every few seconds."""
    with LaptopLab("rekeys", ADA, amend=_short) as lab:
        lab.gateways[PLACES[0]].start()
        lab.laptops[ADA].connect(lab.profile(ADA))
        lab.laptops[ADA].wait()
        yield lab


def test_rekeys_lose_no_packets_and_a_short_cut_is_detected(lab: LaptopLab) -> None:
    """Over several renewals at most 0.2 % of packets are lost, in the same session."""
    ada, gateway = lab.laptops[ADA], lab.gateways[PLACES[0]]
    before = gateway.status["laptops"]["udp"]
    pings = pinging(ada.host, NODE, every=0.02)
    pings.wait_for_answer(5)
    sleep(RUN_SECONDS)
    renewed, steady = gateway.log().count(RENEWED), pings.answers
    after = gateway.status["laptops"]["udp"]
    ada.host.cut("wlan0")
    sleep(0.5)
    ada.host.heal()
    pings.wait_for_answer(5)
    blinked = pings.stop()

    assert renewed >= RUN_SECONDS // SECONDS - 1
    assert steady.share_lost <= MOST_LOST < blinked.share_lost
    assert [client["since"] for client in after] == [client["since"] for client in before]
    assert ada.client
    assert ada.client.output.count("Initialization Sequence Completed") == 1
