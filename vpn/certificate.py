"""Certificates of gateways and laptops, and the keys that go with them: made here, stored and sent nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vpn.pkcs8 import encrypted_text
from vpn.subject import Subject, Use

CURVE = ec.SECP384R1
HASH = hashes.SHA384
LIFE = timedelta(days=90)
# Clocks of laptops are behind by minutes: a certificate made this moment is valid there already.
SLACK = timedelta(minutes=5)
USES: Mapping[Use, x509.ObjectIdentifier] = MappingProxyType(
    {
        Use.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
        Use.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
        Use.PEER: ExtendedKeyUsageOID.IPSEC_IKE,
    }
)


@dataclass(frozen=True, slots=True)
class Issuer:
    """A certificate that others hang on, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key on P-384."""
    return ec.generate_private_key(CURVE())


def issue(
    issuer: Issuer, subject: Subject, key: ec.EllipticCurvePublicKey, serial: int, now: datetime
) -> x509.Certificate:
    """Return a certificate for a subject: 90 days, and never longer than the issuer's own."""
    until = min(now + LIFE, issuer.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(subject.name))
        .issuer_name(issuer.certificate.subject)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - SLACK)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([USES[subject.use]]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(authority_identifier(issuer.certificate), critical=False)
    )
    if subject.use is not Use.CLIENT:
        builder = builder.add_extension(_names(subject), critical=False)
    return builder.sign(issuer.key, HASH())


def usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return what a key may do: sign handshakes, or certificates and revocation lists."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def common_name(name: str) -> x509.Name:
    """Return the name of a certificate that has no part but this."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def authority_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return how certificates and lists name the key that signed them."""
    own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def key_text(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> str:
    """Return a private key as PKCS 8 in PEM, encrypted where there is a passphrase."""
    if passphrase:
        return encrypted_text(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), passphrase)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def certificate_text(certificate: x509.Certificate) -> str:
    """Return a certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM).decode()


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key, in hexadecimal."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    return digest.finalize().hex()


def _names(subject: Subject) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [x509.DNSName(subject.name), *(x509.IPAddress(address) for address in subject.addresses)]
    )
