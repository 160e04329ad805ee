"""A revocation as an operator does it: one command, over SSH, to booted gateways that serve stock clients."""

from dataclasses import dataclass
from signal import SIGKILL
from statistics import median
from time import time

import pytest

from tests.testlab.machines.gateways import GATE, LaptopGateways
from tests.testlab.network.netlab import LabProgram, pinging, until
from tests.testlab.run import clock_pace

DEVICES = ("phone", "tablet", "desk")
# The daemon's own end of the tunnel over UDP at the site's gateway.
GATEWAY_INSIDE = "10.121.4.1"
LIMIT_S = 2.0


@dataclass(frozen=True)
class Cut:
    """What a revocation was: its words, and its seconds from the call to the end, and to the last packet answered.

    `pace` is how much longer a piece of work took by the clock just then.
    """

    told: str
    seconds: float
    silent_after: float
    pace: float


@pytest.fixture(scope="module")
def cuts(gateways: LaptopGateways) -> tuple[Cut, ...]:
    """Give what came of revoking three machines of ada's, each while it is connected and its packets are answered."""
    for device in DEVICES:
        gateways.signed("add", "ada", "--device", device)
    assert gateways.vpn("sync").returncode == 0
    return tuple(_cut(gateways, device) for device in DEVICES)


def _cut(gateways: LaptopGateways, device: str) -> Cut:
    client = gateways.dial(device)
    try:
        return _revoked(gateways, device, client)
    finally:
        client.end(SIGKILL)


def _revoked(gateways: LaptopGateways, device: str, client: LabProgram) -> Cut:
    pings = pinging(gateways.stand.desk.host, GATEWAY_INSIDE)
    pings.wait_for_answer(10)
    before, start = clock_pace(), time()
    done = gateways.vpn("revoke", "ada", "--device", device)
    seconds = time() - start
    answers, after = pings.stop(), clock_pace()
    assert done.returncode == 0, done.stderr
    return Cut(done.stdout, seconds, answers.times[-1] - start, (before + after) / 2)


def test_a_revoked_laptop_is_cut_off_over_ssh(cuts: tuple[Cut, ...], gateways: LaptopGateways) -> None:
    """By the one command, at the gateway where it is connected; the other gateway knows, too."""
    assert all("cellar: updated, 1 session ended" in cut.told for cut in cuts)
    assert all("us-west-2: updated" in cut.told for cut in cuts)
    assert not {f"ada.{device}" for device in DEVICES} & set(gateways.sessions)


@pytest.mark.parametrize("what", ["seconds", "silent_after"])
def test_it_takes_two_seconds(what: str, cuts: tuple[Cut, ...]) -> None:
    """From the command's call to its end, and to the last packet: the median of three, on a core that is its own."""
    found = [getattr(cut, what) / cut.pace for cut in cuts]

    assert median(found) <= LIMIT_S, cuts


def test_a_revoked_laptop_stays_out(cuts: tuple[Cut, ...], gateways: LaptopGateways) -> None:
    """A revoked laptop that connects again is refused; the gateway's journal states the reason."""
    journal = "journalctl -u 'bedplate-laptops@*' --no-pager"
    log = "again.log"
    profile = gateways.fleet.with_name(f"{DEVICES[0]}.ovpn")
    client = gateways.stand.desk.host.start("openvpn", "--config", str(profile), "--route-noexec", log=log)
    reason = f"certificate revoked: CN=ada.{DEVICES[0]}"
    try:
        until(lambda: reason in gateways.nodes[GATE].run(journal), 60, "the journal does not say why")
    finally:
        client.end(SIGKILL)

    assert "Initialization Sequence Completed" not in client.told
