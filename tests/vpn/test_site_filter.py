"""The packet filter of the role `hardened` on a gateway whose charons listen on ports of their own."""

import sys
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from bedplate.plan.node import Duty
from roles.hardened.filter import ruleset
from tests.support.netlab import Lab, LabHost
from tests.support.netlab_program import until
from vpn.guard.guard import Handover, handover_text

NEAR, PEER, STRANGER = "192.0.2.1", "192.0.2.2", "192.0.2.3"
IKE, OWN = 500, 10_000
_LISTEN = (
    "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', {port})); print('listens', flush=True)\n"
    "while True: print(s.recv(99).decode(), flush=True)"
)
_SAY = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('{source}', 0)); s.sendto(b'{word}', {to})"


@pytest.fixture
def wire() -> Iterator[tuple[LabHost, LabHost]]:
    """Give a gateway under its filter, one of whose charons has a port of its own, and a host with two addresses."""
    with Lab("filter") as lab:
        near, far = lab.host("near"), lab.host("far")
        lab.wire((near, "wan0", f"{NEAR}/24"), (far, "wan0", f"{PEER}/24"))
        far.run("ip", "address", "add", f"{STRANGER}/24", "dev", "wan0")
        near.load_rules(ruleset((), frozenset({Duty.TUNNELS})))
        near.load_rules(handover_text([Handover(IPv4Address(PEER), (OWN, OWN + 1))]))
        yield near, far


def test_only_what_was_handed_over_reaches_a_charon(wire: tuple[LabHost, LabHost]) -> None:
    """A peer that dials the port of IKE is heard; whoever dials the charon's own port, the peer too, is not."""
    near, far = wire
    heard = near.start(sys.executable, "-c", _LISTEN.format(port=OWN), log="heard.log")
    until(lambda: "listens" in heard.log.read_text(), 20, "nobody listens")

    for word, source, port in (("past", PEER, OWN), ("strange", STRANGER, OWN), ("lost", STRANGER, IKE)):
        far.run(sys.executable, "-c", _SAY.format(source=source, word=word, to=(NEAR, port)))
    far.run(sys.executable, "-c", _SAY.format(source=PEER, word="ike", to=(NEAR, IKE)))
    until(lambda: "ike" in heard.log.read_text(), 20, "the peer is not heard")

    assert heard.log.read_text().split() == ["listens", "ike"]
