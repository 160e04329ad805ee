"""Revocation of connected laptops with one command, over SSH, on booted gateways."""

from dataclasses import dataclass
from signal import SIGKILL
from time import time

import pytest

from tests.testlab.machines.gateways import GATE, LaptopGateways
from tests.testlab.network.netlab import LabProgram, pinging, until

DEVICES = ("phone", "tablet", "desk")
# The daemon's own end of the tunnel over UDP at the site's gateway.
GATEWAY_INSIDE = "10.121.4.1"


@dataclass(frozen=True)
class Cut:
    """The output of a revocation, and the seconds to its end and to the last answered packet."""

    output: str
    seconds: float
    silent_after: float


@pytest.fixture(scope="module")
def cuts(gateways: LaptopGateways) -> tuple[Cut, ...]:
    """Revoke three connected devices of ada while their packets pass; return the results."""
    for device in DEVICES:
        gateways.local_vpn("add", "ada", "--device", device)
    assert gateways.vpn("sync").returncode == 0
    return tuple(_cut(gateways, device) for device in DEVICES)


def _cut(gateways: LaptopGateways, device: str) -> Cut:
    client = gateways.dial(device)
    try:
        return _revoked(gateways, device, client)
    finally:
        client.end(SIGKILL)


def _revoked(gateways: LaptopGateways, device: str, client: LabProgram) -> Cut:
    pings = pinging(gateways.node_lab.workstation.host, GATEWAY_INSIDE)
    pings.wait_for_answer(10)
    start = time()
    done = gateways.vpn("revoke", "ada", "--device", device)
    seconds = time() - start
    answers = pings.stop()
    assert done.returncode == 0, done.stderr
    return Cut(done.stdout, seconds, answers.times[-1] - start)


def test_revoked_laptop_is_disconnected_over_ssh(cuts: tuple[Cut, ...], gateways: LaptopGateways) -> None:
    """One revocation command disconnects the laptop at its gateway, and updates the other gateway."""
    assert all("cellar: updated, 1 session ended" in cut.output for cut in cuts)
    assert all("us-west-2: updated" in cut.output for cut in cuts)
    assert not {f"ada.{device}" for device in DEVICES} & set(gateways.sessions)


def test_no_packet_passes_after_a_revocation(cuts: tuple[Cut, ...]) -> None:
    """When the command ends, the laptop has no connection."""
    assert all(cut.silent_after <= cut.seconds for cut in cuts), cuts


def test_revoked_laptop_cannot_reconnect(cuts: tuple[Cut, ...], gateways: LaptopGateways) -> None:
    """A revoked laptop that connects again is refused; the gateway's journal states the reason."""
    journal = "journalctl -u 'bedplate-laptops@*' --no-pager"
    log = "again.log"
    profile = gateways.fleet.with_name(f"{DEVICES[0]}.ovpn")
    client = gateways.node_lab.workstation.host.start("openvpn", "--config", str(profile), "--route-noexec", log=log)
    reason = f"certificate revoked: CN=ada.{DEVICES[0]}"
    try:
        until(lambda: reason in gateways.nodes[GATE].run(journal), 60, "the journal does not state the reason")
    finally:
        client.end(SIGKILL)

    assert "Initialization Sequence Completed" not in client.output
