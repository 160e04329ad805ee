"""Connections that must be refused, each with its reason in a log; a valid counterpart connects."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from signal import SIGKILL

import pytest

from bedplate.plan.laptops import Transport
from tests.testlab.keys.authority import LabKeys, moment
from tests.testlab.network.laptops import NODE, LaptopLab
from tests.testlab.network.netlab import until
from vpn.certificates import Use, client_key, new_server_key
from vpn.laptops.server import LaptopKeys
from vpn.push import AccessList

GOOD, BAD, STRANGER = "ada.laptop", "eve.laptop", "mallory.laptop"
DAY = timedelta(days=1)
pytestmark = pytest.mark.xdist_group("laptops-refuse")


@dataclass(frozen=True)
class Case:
    """A client that must be refused: its profile, and the reason in a log."""

    name: str
    profile: Callable[[LaptopLab], str]
    reason: str


def _with(lab: LaptopLab, keys: LaptopKeys) -> str:
    return lab.profile(BAD, keys)


def _revoked(lab: LaptopLab) -> str:
    profile = lab.profile(BAD)
    lab.keys.revoke(BAD)
    lab.send("us-west-2")
    return profile


def _foreign_profile(lab: LaptopLab) -> str:
    """Return a profile with a certificate of another authority of the same name."""
    certificate, key = LabKeys().pair(BAD, Use.CLIENT)
    return _with(lab, replace(lab.keys.laptop(BAD), certificate=certificate, key=key))


def _told(lab: LaptopLab, old: str, new: str) -> str:
    profile = lab.profile(BAD)
    assert old in profile
    return profile.replace(old, new)


def _unhidden(lab: LaptopLab) -> str:
    return lab.profile(BAD).partition("<tls-crypt-v2>")[0]


def _old_profile(lab: LaptopLab) -> str:
    """Return a profile of a client that uses TLS 1.1 with matching ciphers."""
    text = _told(lab, "tls-version-min 1.2\n", "tls-version-min 1.0\ntls-version-max 1.1\n")
    return "\n".join(
        "tls-cipher DEFAULT:@SECLEVEL=0" if line.startswith("tls-cipher ") else line for line in text.splitlines()
    )


CASES = (
    Case("revoked", _revoked, "error=certificate revoked: CN=eve.laptop"),
    Case(
        "ended",
        lambda lab: _with(lab, lab.keys.laptop(BAD, at=moment() - 100 * DAY)),
        "error=certificate has expired: CN=eve.laptop",
    ),
    Case(
        "not-yet-valid",
        lambda lab: _with(lab, lab.keys.laptop(BAD, at=moment() + DAY)),
        "error=certificate is not yet valid: CN=eve.laptop",
    ),
    Case("authority-of-the-same-name", _foreign_profile, "error=unable to get local issuer certificate: CN=eve.laptop"),
    Case(
        "gateway-s-certificate",
        lambda lab: _with(lab, lab.keys.laptop(BAD, Use.SERVER)),
        "error=unsuitable certificate purpose: CN=eve.laptop",
    ),
    Case(
        "hidden-key-of-other-gateways",
        lambda lab: _with(lab, replace(lab.keys.laptop(BAD), tls_crypt=client_key(new_server_key(), BAD))),
        "can not extract tls-crypt-v2 client key",
    ),
    Case("no-hidden-key", _unhidden, "TLS Error: could not determine wrapping from [AF_INET]203.0.113.6"),
    Case(
        "not-in-the-book", lambda lab: lab.profile(STRANGER), "authentication failed for common name 'mallory.laptop'"
    ),
    Case(
        "cipher-without-authentication",
        lambda lab: _told(lab, "data-ciphers AES-256-GCM:CHACHA20-POLY1305", "data-ciphers AES-256-CBC"),
        "negotiation failed",
    ),
    Case(
        "old-tls",
        _old_profile,
        "unsupported protocol",
    ),
)


@pytest.fixture(scope="module")
def lab() -> Iterator[LaptopLab]:
    """Return a fleet with one running gateway."""
    with LaptopLab("refuse", GOOD, BAD) as lab:
        lab.gateways["us-west-2"].start(Transport.UDP)
        yield lab


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_invalid_client_is_refused(case: Case, lab: LaptopLab) -> None:
    """The gateway's log has the reason, and a valid laptop connects to the same gateway."""
    gateway, bad, good = lab.gateways["us-west-2"], lab.laptops[BAD], lab.laptops[GOOD]
    profile, before = case.profile(lab), len(gateway.log())
    client = bad.connect(profile)

    until(lambda: case.reason in gateway.log()[before:], 20, f"no log says {case.reason}")

    assert "Initialization Sequence Completed" not in client.output
    assert not bad.host.pings(NODE, times=1, seconds=0.3)
    client.end(SIGKILL)
    good.connect(lab.profile(GOOD))
    good.wait()
    until(lambda: good.host.pings(NODE), 10, "nobody answers the good laptop")


@pytest.mark.parametrize(
    ("use", "name", "reason"),
    [
        (Use.CLIENT, "gateway.cellar.lab.internal", "error=unsuitable certificate purpose: CN=gateway.cellar"),
        (Use.SERVER, "eve.laptop", "VERIFY X509NAME ERROR: CN=eve.laptop"),
    ],
    ids=["laptop-s-certificate", "other-name"],
)
def test_a_laptop_rejects_a_false_gateway(use: Use, name: str, reason: str, lab: LaptopLab) -> None:
    """The certificate of a laptop or another one of the fleet is not that of a gateway."""
    gateway, laptop = lab.gateways["cellar"], lab.laptops[GOOD]
    lab.send("cellar", AccessList(lab.keys.revocations(), lab.devices))
    lab.impersonate("cellar", use, name)
    profile = "\n".join(line for line in lab.profile(GOOD).splitlines() if not line.startswith("remote 52.")) + "\n"

    client = laptop.connect(profile)

    until(lambda: reason in client.output, 20, f"the laptop does not say {reason}")
    assert "Initialization Sequence Completed" not in client.output
    client.end(SIGKILL)
    lab.impersonate("cellar", Use.SERVER, gateway.gateway.name)
    laptop.connect(profile)
    laptop.wait()
