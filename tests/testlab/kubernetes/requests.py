"""Requests for certificates, as kubelet and joining machines make them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class NodeKey:
    """A private key of a machine."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def hash(self) -> str:
        """The SHA-256 of its public key."""
        public = self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return sha256(public).hexdigest()

    def request(
        self, name: str, *, names: Sequence[str] = (), group: str = "system:nodes", user: str = "system:node:"
    ) -> bytes:
        """Return a signing request of a node, with alternative names."""
        subject = [(NameOID.ORGANIZATION_NAME, group), (NameOID.COMMON_NAME, f"{user}{name}")]
        attributes = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
        builder = x509.CertificateSigningRequestBuilder(subject_name=attributes)
        if names:
            values = [x509.IPAddress(IPv4Address(text)) if text[0].isdigit() else x509.DNSName(text) for text in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(values), critical=False)
        return builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)
