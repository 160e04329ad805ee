"""The certificate authority of a test cluster: one for servers and clients, with keys in a temporary folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = timedelta(days=1)
_NO_USE = dict.fromkeys(
    ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"),
    False,
)


@dataclass(frozen=True, slots=True)
class ClusterAuthority:
    """A folder with `ca.crt`, `ca.key`, `sa.key` and `sa.pub` for service accounts, and certificates by name."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "ClusterAuthority":
        """Create the authority and the key of service accounts."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("test-cluster")
        usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **_NO_USE)
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(folder / "ca", certificate, key)
        accounts = rsa.generate_private_key(65537, 2048)
        (folder / "sa.key").write_bytes(_pem(accounts))
        public = accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / "sa.pub").write_bytes(public)
        return cls(folder)

    @property
    def certificate(self) -> Path:
        """The file of the authority's certificate."""
        return self.folder / "ca.crt"

    def issue(self, user: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> Path:
        """Issue a certificate of a user, or of a server with these hosts; return its path without suffix."""
        path = self.folder / user.replace(":", "-")
        if path.with_name(f"{path.name}.crt").exists():
            return path
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())  # type: ignore[arg-type]
        builder = (
            _builder(_name(user, *groups), authority.subject, key.public_key())
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(signer, critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        signing_key = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        _write(path, builder.sign(signing_key, hashes.SHA256()), key)  # type: ignore[arg-type]
        return path


def _host(host: str) -> x509.GeneralName:
    return x509.IPAddress(IPv4Address(host)) if host[0].isdigit() else x509.DNSName(host)


def _name(user: str, *groups: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 30 * _DAY)
    )


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    path.with_name(f"{path.name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file = path.with_name(f"{path.name}.key")
    key_file.touch(mode=0o600)
    key_file.write_bytes(_pem(key))
