"""Gateways that must be refused, with the reason in a log; a valid counterpart connects."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.testlab.keys.authority import (
    CertificateAuthority,
    certificates_for,
    changed,
    open_authority,
    serial_of,
    with_certificate,
)
from tests.testlab.network.gateways import ATTIC, CELLAR, RACK, Amend, as_rendered, one_key, pair
from tests.testlab.network.netlab import until
from vpn.certificates import Use
from vpn.sites.files import RenderedFile
from vpn.sites.gateway import Peer, Proof, Proofs, SharedKey, TunnelCertificate

pytestmark = pytest.mark.nightly

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
# Certificates and lists are valid for 90 days and start 5 minutes before they are signed.
STRONG_IKE, STRONG_ESP = "aes256gcm16-prfsha384-ecp384", "aes256gcm16-ecp384"
WEAK_IKE, WEAK_ESP = "aes128-sha1-modp1024", "aes128-sha1"


@dataclass(frozen=True)
class Side:
    """The proofs of both gateways, and the changes to the dialling end's configuration."""

    proofs: Callable[[], Proofs]
    caller: Amend = as_rendered


@dataclass(frozen=True)
class Case:
    """A gateway that must be refused, the reason in a log, and the valid counterpart."""

    bad: Side
    reason: str
    good: Side


def _new_authority() -> CertificateAuthority:
    """Return an authority of today, because the daemons use the real clock."""
    return open_authority(datetime.now(UTC))


def _with_caller(change: Callable[[CertificateAuthority, TunnelCertificate], TunnelCertificate]) -> Side:
    """Change the certificates of the gateway that dials."""

    def proofs() -> Proofs:
        authority = _new_authority()
        return changed(certificates_for(authority), CELLAR, lambda certificate: change(authority, certificate))

    return Side(proofs)


def _with_lists(revocation_lists: Callable[[CertificateAuthority], tuple[str, ...]]) -> Side:
    """Change the revocation lists of the gateway that waits."""

    def proofs() -> Proofs:
        authority = _new_authority()
        return changed(
            certificates_for(authority),
            ATTIC,
            lambda certificate: replace(certificate, revoked=revocation_lists(authority)),
        )

    return Side(proofs)


def _issued(at: timedelta) -> Side:
    return _with_caller(
        lambda authority, certificate: with_certificate(certificate, authority.certificate(CELLAR, at=at))
    )


def _of_another_authority(authority: CertificateAuthority, certificate: TunnelCertificate) -> TunnelCertificate:
    """Use a certificate of another authority with the same name."""
    return with_certificate(certificate, _new_authority().certificate(CELLAR))


def _named(name: str) -> Side:
    return _with_caller(
        lambda authority, certificate: with_certificate(certificate, authority.certificate(CELLAR, named=name))
    )


def _of_a_laptop() -> Side:
    """Use the certificate of a laptop of the same authority, and its name."""
    side = _with_caller(
        lambda authority, certificate: with_certificate(
            certificate, authority.certificate(CELLAR, named="ada.laptop", use=Use.CLIENT)
        )
    )
    return replace(side, caller=_caller_says(CELLAR.identity, '"CN=ada.laptop"').caller)


def _revoking(peer: Peer) -> Side:
    def revocation_list(authority: CertificateAuthority) -> tuple[str, ...]:
        return (replace(authority, revoked=frozenset({serial_of(peer)})).revocation_list(),)

    return _with_lists(revocation_list)


def _listed(at: timedelta) -> Side:
    return _with_lists(lambda authority: (authority.revocation_list(at=at),))


def _keys_of(cellar_key: bytes, attic_key: bytes) -> Side:
    def proof(near: Peer, far: Peer) -> Proof:
        return SharedKey(cellar_key if near == CELLAR else attic_key)

    return Side(lambda: proof)


def _caller_says(old: str, new: str) -> Side:
    def caller(file: RenderedFile) -> str:
        return re.sub(rf"(?<=\W){re.escape(old)}$", new, file.text, flags=re.MULTILINE)

    return Side(one_key, caller)


GOOD = _issued(timedelta())
CASES = {
    "revoked": Case(_revoking(CELLAR), "certificate was revoked", _revoking(ATTIC)),
    "expired": Case(_issued(-91 * DAY), "subject certificate invalid", _issued(-89 * DAY)),
    "not-yet-valid": Case(_issued(7 * MINUTE), "subject certificate invalid", _issued(3 * MINUTE)),
    "of-another-authority": Case(_with_caller(_of_another_authority), "no issuer certificate found", GOOD),
    "of-another-name": Case(_named("loft.gateways.lab.internal"), "no trusted ECDSA", _named(CELLAR.identity)),
    "of-a-laptop": Case(_of_a_laptop(), "no matching peer config found", _named(CELLAR.identity)),
    "without-a-list": Case(_with_lists(lambda _: ()), "certificate status is not available", GOOD),
    "with-an-old-list": Case(_listed(-91 * DAY), "crl is stale", _listed(-89 * DAY)),
    "of-another-key": Case(
        _keys_of(b"one key.", b"another."), "but MAC mismatched", _keys_of(b"one key.", b"one key.")
    ),
    "of-weak-ike": Case(
        _caller_says(STRONG_IKE, WEAK_IKE),
        "received proposals unacceptable",
        _caller_says(STRONG_IKE, f"{WEAK_IKE},{STRONG_IKE}"),
    ),
    "of-weak-esp": Case(
        _caller_says(STRONG_ESP, WEAK_ESP),
        "no acceptable proposal found",
        _caller_says(STRONG_ESP, f"{WEAK_ESP},{STRONG_ESP}"),
    ),
    "of-ikev1": Case(_caller_says("version = 2", "version = 1"), "no IKE config found", _caller_says("x", "x")),
}


@pytest.mark.parametrize("name", CASES)
def test_an_invalid_gateway_is_refused(name: str) -> None:
    """No packet passes, no SA exists, and a log has the reason; the counterpart connects."""
    case = CASES[name]
    with pair(case.bad.proofs(), caller=case.bad.caller) as lab:
        lab.start()
        until(lambda: any(case.reason in gateway.log for gateway in lab.gateways), 15, f"no reason; {lab.log_tails}")
        # The end that waits dials after a while, which must fail too.
        until(lambda: "vici initiate" in lab.attic.log, 15, "who answers never dialled")
        assert not lab.desk.pings(RACK)
        assert not any("INSTALLED" in gateway.swanctl("--list-sas") for gateway in lab.gateways)

    with pair(case.good.proofs(), caller=case.good.caller) as lab:
        lab.start()
        lab.wait()
        assert case.reason not in lab.attic.log + lab.cellar.log


def test_a_revoked_gateway_is_disconnected() -> None:
    """A new revocation list does not end an established tunnel; after terminating it, the gateway cannot reconnect."""
    authority = _new_authority()
    with pair(certificates_for(authority)) as lab:
        lab.start()
        lab.wait()
        lists = lab.attic.host.folder / "etc/tunnels/x509crl/cellar-1.crl"
        lists.write_text(replace(authority, revoked=frozenset({serial_of(CELLAR)})).revocation_list(number=2))
        lab.attic.load()
        stood = lab.desk.pings(RACK)

        lab.attic.swanctl("--flush-certs")
        lab.attic.swanctl("--terminate", "--ike", "cellar", "--timeout", "5")
        until(lambda: "certificate was revoked" in lab.attic.log, 15, "did not come again")

        assert stood
        assert not lab.desk.pings(RACK)
