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
    """The certificate that issues all others; under a root also the root, and a self-signed twin of `certificate`.

    The twin has the same key, name and key identifier.
    """

    certificate: x509.Certificate
    root: x509.Certificate | None = None
    twin: x509.Certificate | None = None

    @property
    def chain(self) -> str:
        """The text of authority.crt, in PEM: the issuing certificate, then the root."""
        return "".join(certificate_text(one) for one in (self.certificate, self.root) if one is not None)

    @property
    def trusted(self) -> str:
        """The only certificate that OpenVPN trusts, in PEM. A root would vouch for replaced authorities too."""
        return certificate_text(self.twin or self.certificate)


def new_authority(fleet: str, now: datetime) -> Issuer:
    """Return an authority that signs for itself, with a new key."""
    return _signed(f"{fleet} VPN authority", now, LIFE)


def new_root(fleet: str, now: datetime) -> Issuer:
    """Return a root, with a new key; it signs authorities and their revocation, nothing else."""
    return _signed(f"{fleet} VPN root", now, ROOT_LIFE, below=1)


def authority_under(root: Issuer, fleet: str, now: datetime) -> Issuer:
    """Return an authority that the root has signed, with a new key."""
    return _signed(f"{fleet} VPN authority", now, LIFE, root=root)


def twin_of(issuer: Issuer, fleet: str, now: datetime) -> x509.Certificate:
    """Return a self-signed certificate of an authority that a root has signed, valid as long as that one."""
    life = issuer.certificate.not_valid_after_utc - now
    return _signed(f"{fleet} VPN authority", now, life, key=issuer.key).certificate


def _signed(  # noqa: PLR0913  all that differs between a root, an authority and its twin
    name: str,
    now: datetime,
    life: timedelta,
    *,
    below: int = 0,
    root: Issuer | None = None,
    key: ec.EllipticCurvePrivateKey | None = None,
) -> Issuer:
    """Return a certificate, signed by the root or by itself, with a new key unless one is given.

    `below` is the number of authorities that may be below it.
    """
    key = key or new_key()
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
