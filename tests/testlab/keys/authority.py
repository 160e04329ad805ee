"""Authorities of a fleet's VPN for tests, with keys in a temporary folder and times that each test sets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random

from bedplate.plan import FleetPlan
from bedplate.tunnels import SHORTEST_KEY
from tests.testlab.fleets.variants import cellar_gateway
from tests.testlab.network.gateways import Amend
from vpn.audit_log import Begun, Issued
from vpn.authority import Reason, Revocation, crl_text, new_authority, sign_crl
from vpn.certificates import (
    Issuer,
    Subject,
    Use,
    certificate_text,
    client_key,
    issue,
    key_text,
    laptop,
    new_key,
    new_server_key,
)
from vpn.gateways import peer_subjects, tunnel_certificates
from vpn.laptops.server import LaptopKeys
from vpn.pki import FOLDER, FolderKeys, Pki, PkiFolder, create_authority, open_pki
from vpn.signing import add, issue_certificates, revoke
from vpn.sites import gateway
from vpn.sites.files import RenderedFile
from vpn.sites.gateway import (
    Gateway,
    Peer,
    PlaceProofs,
    Proof,
    Proofs,
    SharedKey,
    Tunnel,
    TunnelCertificate,
    proof_or_error,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FLEET = "lab"


def unasked() -> bytes:
    """Fail if a passphrase is asked for."""
    raise AssertionError("a passphrase was asked for")


def begun_in(path: Path, now: datetime = NOW, *, lock: bytes | None = None, root: Issuer | None = None) -> PkiFolder:
    """Create an authority in `fleet.pki` below a folder."""
    folder = PkiFolder(path / "fleet.pki")
    create_authority(folder, Begun(now, FLEET, "", FOLDER, "", ""), FolderKeys(folder.keys), passphrase=lock, root=root)
    return folder


def pki_in(folder: PkiFolder) -> Pki:
    """Return the present content of a folder."""
    return open_pki(folder, FLEET, lambda _begun: FolderKeys(folder.keys))


def added(folder: PkiFolder, *users: str, now: datetime = NOW) -> tuple[Issued, ...]:
    """Issue a certificate for a laptop of each user."""
    return add(pki_in(folder), [laptop(user) for user in users], now, unasked)


LONG = timedelta(days=90)


def moment() -> datetime:
    """Return the present time: real daemons use the machine's clock."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass
class LabKeys:
    """An authority with its gateways' tls-crypt-v2 key, and its next serial and list number."""

    issuer: Issuer = field(default_factory=lambda: new_authority("lab", moment() - timedelta(days=30)))
    hidden: str = field(default_factory=new_server_key)
    _serials: Iterator[int] = field(default_factory=lambda: count(1))
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _revoked: dict[str, Revocation] = field(default_factory=dict)
    _serial_of: dict[str, int] = field(default_factory=dict)

    @property
    def trusted(self) -> str:
        """The authority's certificate in PEM."""
        return certificate_text(self.issuer.certificate)

    def pair(self, name: str, use: Use, at: datetime | None = None) -> tuple[str, str]:
        """Return a certificate issued at a moment, and its key."""
        key, serial = new_key(), next(self._serials)
        self._serial_of[name] = serial
        signed = issue(self.issuer, Subject(name, use), key.public_key(), serial, at or moment())
        return certificate_text(signed), key_text(key)

    def laptop(self, name: str, use: Use = Use.CLIENT, at: datetime | None = None) -> LaptopKeys:
        """Return the keys of a laptop, optionally with another use or issued at another time."""
        certificate, key = self.pair(name, use, at)
        return LaptopKeys(self.trusted, certificate, key, client_key(self.hidden, name))

    def revoke(self, name: str) -> int:
        """Revoke the newest certificate of a name, and return its serial."""
        serial = self._serial_of[name]
        self._revoked[name] = Revocation(serial, moment(), Reason.LOST)
        return serial

    def revocations(self, life: timedelta = LONG, at: datetime | None = None) -> str:
        """Return the next revocation list in PEM."""
        return crl_text(sign_crl(self.issuer, self._revoked.values(), next(self._numbers), at or moment(), life))


# The authority is older than any certificate in a test.
_AGE = timedelta(days=1000)


@dataclass(frozen=True)
class CertificateAuthority:
    """An authority that issues certificates to gateways; `revoked` are the serials on its lists."""

    now: datetime
    issuer: Issuer = field(repr=False)
    revoked: frozenset[int] = frozenset()

    def certificate(
        self, peer: Peer, at: timedelta = timedelta(), named: str | None = None, use: Use = Use.PEER
    ) -> TunnelCertificate:
        """Return a gateway's certificate, issued at an offset from now, without a revocation list."""
        key, subject = new_key(), Subject(named or peer.identity, use)
        certificate = issue(self.issuer, subject, key.public_key(), serial_of(peer), self.now + at)
        return TunnelCertificate(
            certificate_text(certificate), key_text(key), (certificate_text(self.issuer.certificate),), ()
        )

    def revocation_list(self, at: timedelta = timedelta(), number: int = 1) -> str:
        """Return the revocation list, signed at an offset from now."""
        rows = [Revocation(serial, self.now + at, Reason.LEFT) for serial in sorted(self.revoked)]
        return crl_text(sign_crl(self.issuer, rows, number, self.now + at))


def open_authority(now: datetime) -> CertificateAuthority:
    """Return an authority that has existed for a long time."""
    return CertificateAuthority(now, new_authority("lab", now - _AGE))


def with_certificate(own: TunnelCertificate, of: TunnelCertificate) -> TunnelCertificate:
    """Return proofs with the certificate and key of others."""
    return replace(own, certificate=of.certificate, key=of.key)


def serial_of(peer: Peer) -> int:
    """Return the serial of a gateway's certificate."""
    return sum(peer.identity.encode()) + 1


def certificates_for(authority: CertificateAuthority) -> Proofs:
    """Return proofs for gateways with valid certificates of one authority, and its revocation list."""

    def proof(near: Peer, far: Peer) -> Proof:
        return replace(authority.certificate(near), revoked=(authority.revocation_list(),))

    return proof


def changed(proofs: Proofs, whose: Peer, change: Callable[[TunnelCertificate], TunnelCertificate]) -> Proofs:
    """Return proofs in which those of one gateway are changed."""

    def proof(near: Peer, far: Peer) -> Proof:
        before = proofs(near, far)
        return change(before) if near == whose and isinstance(before, TunnelCertificate) else before

    return proof


@dataclass(frozen=True)
class LabAuthority:
    """An authority, and the fleet of its gateways."""

    folder: PkiFolder
    plan: FleetPlan

    def issue(self, *places: str) -> None:
        """Issue new certificates to the gateways of these places."""
        issue_certificates(
            pki_in(self.folder), tuple(peer_subjects(self.plan)[place] for place in places), _now(), unasked
        )

    def revoke(self, place: str) -> None:
        """Revoke what a gateway has."""
        revoke(pki_in(self.folder), (peer_subjects(self.plan)[place].name,), Reason.LOST, _now(), unasked)

    @property
    def proofs(self) -> PlaceProofs:
        """The present proofs of the gateways."""
        certificates = tunnel_certificates(pki_in(self.folder), peer_subjects(self.plan), unasked, _now())
        return lambda near, _: proof_or_error(certificates[near])


def begun_for(plan: FleetPlan, folder: Path) -> LabAuthority:
    """Create the authority of a fleet, with certificates for all its gateways."""
    authority = LabAuthority(begun_in(folder, _now()), plan)
    authority.issue(*peer_subjects(plan))
    return authority


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


KEYS = 10_000


def random_keys(number: int) -> list[bytes]:
    """Return keys of 8 to 64 random bytes, the same each time; the first ones contain special characters."""
    dice = Random(7)  # noqa: S311  not a secret, and the same on every machine
    special = [b'"', b"}", b"#", b"\n", b"\0", b"0x", b"0s", b"include /etc/passwd", b"\xff" * 64, b" a ", b"=", b"%"]
    long = [key * -(-SHORTEST_KEY // len(key)) for key in special]
    return long + [dice.randbytes(dice.randint(SHORTEST_KEY, 64)) for _ in range(number - len(special))]


def keyed(keys: list[bytes]) -> Gateway:
    """Return a gateway with a tunnel for each key."""
    gateway = cellar_gateway()
    first = gateway.tunnels[0]
    return replace(gateway, tunnels=tuple(_keyed(first, number, key) for number, key in enumerate(keys)))


def _keyed(tunnel: Tunnel, number: int, key: bytes) -> Tunnel:
    return Tunnel(f"t{number}", number, tunnel.near, tunnel.far, tunnel.dials, SharedKey(key), tunnel.carries)


_LIVES = 4


def short_lived(ike: int, child: int) -> Amend:
    """Return a change that renews an IKE_SA and a tunnel's keys after these seconds, or one second earlier."""

    def amend(file: RenderedFile) -> str:
        text = file.text.replace(f"rekey_time = {gateway.IKE_REKEY}s", _ikes(ike))
        return text.replace(f"rekey_time = {gateway.CHILD_REKEY}s", _childs(child))

    return amend


def _ikes(seconds: int) -> str:
    return f"rekey_time = {seconds}s\n    rand_time = 1s\n    over_time = {_LIVES * seconds}s"


def _childs(seconds: int) -> str:
    return f"rekey_time = {seconds}s\n        rand_time = 1s\n        life_time = {_LIVES * seconds}s"
