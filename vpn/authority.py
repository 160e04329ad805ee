"""The fleet's certificate authority: one key that signs for itself, or under a root whose key is kept elsewhere."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from vpn.certificate import (
    HASH,
    SLACK,
    Issuer,
    authority_identifier,
    certificate_text,
    common_name,
    new_key,
    usage,
)

# An authority's end is the end of every profile: the root outlives two authorities, an authority forty certificates.
ROOT_LIFE, LIFE = timedelta(days=20 * 365), timedelta(days=10 * 365)


@dataclass(frozen=True, slots=True)
class Authority:
    """What the fleet's certificates hang on; `root` is None where the authority signed itself."""

    certificate: x509.Certificate
    root: x509.Certificate | None = None

    @property
    def chain(self) -> str:
        """The certificates that others have to trust, in PEM, the issuing one first."""
        return "".join(certificate_text(one) for one in (self.certificate, self.root) if one is not None)


def new_authority(fleet: str, now: datetime) -> Issuer:
    """Return an authority that signs for itself, with a new key."""
    return _signed(f"{fleet} VPN authority", now, LIFE)


def new_root(fleet: str, now: datetime) -> Issuer:
    """Return a root, with a new key; it signs authorities and their revocation, nothing else."""
    return _signed(f"{fleet} VPN root", now, ROOT_LIFE, below=1)


def authority_under(root: Issuer, fleet: str, now: datetime) -> Issuer:
    """Return an authority that the root has signed, with a new key."""
    return _signed(f"{fleet} VPN authority", now, LIFE, root=root)


def _signed(name: str, now: datetime, life: timedelta, *, below: int = 0, root: Issuer | None = None) -> Issuer:
    """Return a certificate that may have so many authorities below it, signed by the root or by itself."""
    key = new_key()
    until = now + life if root is None else min(now + life, root.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(name))
        .issuer_name(common_name(name) if root is None else root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=below), critical=True)
        .add_extension(usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_named_by(key, root), critical=False)
    )
    return Issuer(builder.sign(key if root is None else root.key, HASH()), key)


def _named_by(key: ec.EllipticCurvePrivateKey, root: Issuer | None) -> x509.AuthorityKeyIdentifier:
    if root is None:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return authority_identifier(root.certificate)
