"""The authorities of a cluster, made on the operator's machine and kept in the key store of the fleet.

kubeadm on each member signs with them, so each member gets all of them. All keys are on an elliptic curve, also the
one from which the key of encryption at rest is derived: so the store encrypts each with the same passphrase.
"""

import base64
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bedplate.errors import InputError
from bedplate.foreign import parse_json
from bedplate.kubernetes.desired import kubeconfig
from bedplate.plan.cluster import ClusterPlan
from vpn.authority import is_due, new_authority
from vpn.certificates import (
    CLOCK_TOLERANCE,
    HASH,
    Issuer,
    Passphrase,
    authority_identifier,
    certificate_text,
    key_text,
    key_usage,
    load_key,
    new_key,
    parse_bundle,
    passphrase_for,
)
from vpn.pki import KeyStore

# Names in the key store; names of laptops and gateways have a dot. The first is written last: it marks a complete set.
CLUSTER = "kubernetes"
_ETCD, _FRONT_PROXY, _ACCOUNTS, _ENCRYPTION = (
    f"{CLUSTER}-{name}" for name in ("etcd", "front-proxy", "accounts", "encryption")
)
_PURPOSES = {CLUSTER: "Kubernetes", _ETCD: "etcd", _FRONT_PROXY: "front proxy"}
# The group that kubeadm binds to cluster-admin. Unlike `system:masters` it can be unbound.
_ADMINS = "kubeadm:cluster-admins"
ADMIN_LIFE = timedelta(hours=12)


@dataclass(frozen=True, slots=True, repr=False)
class Authorities:
    """The three authorities, the key of service account tokens, and the key from which Secrets are encrypted."""

    cluster: Issuer
    etcd: Issuer
    front_proxy: Issuer
    accounts: ec.EllipticCurvePrivateKey
    encryption: ec.EllipticCurvePrivateKey

    @property
    def certificate(self) -> str:
        """The certificate of the cluster's authority in PEM."""
        return certificate_text(self.cluster.certificate)

    @property
    def digest(self) -> str:
        """The SHA-256 of its file, which members report."""
        return digest(self.certificate)

    @property
    def snapshot_key(self) -> bytes:
        """The key by which members sign snapshots, as `etcd-snapshot` derives it from the file on their volumes."""
        return hmac.digest(_secret(self.encryption), b"bedplate snapshot of etcd", "sha256")

    @property
    def account_key(self) -> str:
        """The public key of service account tokens, as base64 of its DER."""
        return base64.b64encode(_public(self.accounts, Encoding.DER)).decode()

    def files(self) -> Mapping[str, str]:
        """Return the files of a member below its folder of certificates; `ca.key`, which its units wait for, last."""
        return {
            **_pair("etcd/ca", self.etcd),
            **_pair("front-proxy-ca", self.front_proxy),
            "sa.pub": _public(self.accounts, Encoding.PEM).decode(),
            "sa.key": key_text(self.accounts),
            "encryption.yaml": _encryption(self.encryption),
            **_pair("ca", self.cluster),
        }


def digest(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def new_authorities(fleet: str, now: datetime) -> Authorities:
    """Return the authorities of a new cluster."""
    cluster, etcd, front_proxy = (new_authority(fleet, now, purpose) for purpose in _PURPOSES.values())
    return Authorities(cluster, etcd, front_proxy, new_key(), new_key())


def write_authorities(store: KeyStore, authorities: Authorities, passphrase: bytes | None) -> None:
    """Store all keys, encrypted if there is a passphrase; a killed run leaves no set that counts as complete."""
    issuers = {CLUSTER: authorities.cluster, _ETCD: authorities.etcd, _FRONT_PROXY: authorities.front_proxy}
    keys = {_ACCOUNTS: authorities.accounts, _ENCRYPTION: authorities.encryption}
    texts = {name: key_text(key, passphrase) for name, key in keys.items()}
    for name, issuer in issuers.items():
        texts[name] = certificate_text(issuer.certificate) + key_text(issuer.key, passphrase)
    last = texts.pop(CLUSTER)
    store.write(texts)
    store.write({CLUSTER: last})


def read_authorities(store: KeyStore, passphrase: Passphrase) -> Authorities | None:
    """Return the stored authorities, or None if there are none. Raises InputError for damaged ones."""
    if store.read(CLUSTER) is None:
        return None
    cluster, etcd, front_proxy = (_issuer(store, name, passphrase) for name in _PURPOSES)
    accounts, encryption = (_load(_text(store, name), name, passphrase) for name in (_ACCOUNTS, _ENCRYPTION))
    return Authorities(cluster, etcd, front_proxy, accounts, encryption)


def _issuer(store: KeyStore, name: str, passphrase: Passphrase) -> Issuer:
    bundle = parse_bundle(_text(store, name))
    issuer = Issuer(x509.load_pem_x509_certificate(bundle.certificate.encode()), _load(bundle.key, name, passphrase))
    if issuer.key.public_key() != issuer.certificate.public_key():
        raise InputError(f"the key of {name} does not match its certificate", fix="restore the file from a backup")
    return issuer


def _load(text: str, name: str, passphrase: Passphrase) -> ec.EllipticCurvePrivateKey:
    return load_key(text, passphrase_for(text, passphrase), f"the private key of {name}")


def _text(store: KeyStore, name: str) -> str:
    text = store.read(name)
    if text is None:
        raise InputError(f"the key store lacks {name}", fix="restore it from a backup of the key store")
    return text


def _public(key: ec.EllipticCurvePrivateKey, encoding: Encoding) -> bytes:
    return key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)


def _pair(path: str, issuer: Issuer) -> dict[str, str]:
    return {f"{path}.crt": certificate_text(issuer.certificate), f"{path}.key": key_text(issuer.key)}


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    scalar = key.private_numbers().private_value.to_bytes((key.key_size + 7) // 8, "big")
    return HKDF(SHA256(), 32, None, b"bedplate encryption at rest").derive(scalar)


def _encryption(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the EncryptionConfiguration of the API server: new Secrets are encrypted, old ones can be read."""
    return f"""apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - secretbox:
          keys: [{{name: first, secret: {base64.b64encode(_secret(key)).decode()}}}]
      - identity: {{}}
"""


def admin_config(cluster: ClusterPlan, issuer: Issuer, operator: str, now: datetime) -> str:
    """Return a kubeconfig with a new key of an operator, whose certificate is valid for half a day."""
    key = new_key()
    certificate = _client_certificate(issuer, f"bedplate:{operator}", key.public_key(), now)
    user = {
        "client-certificate-data": _base64(certificate_text(certificate)),
        "client-key-data": _base64(key_text(key)),
    }
    document = kubeconfig(cluster, certificate_text(issuer.certificate), operator, user)
    return json.dumps(document, indent=1) + "\n"


def is_usable(config: Path, cluster: ClusterPlan, authority: str, now: datetime) -> bool:
    """Return whether a kubeconfig is of this cluster, and less than half of the life of its certificate is over."""
    try:
        document = parse_json(config.read_text(encoding="utf-8"))
        server = document["clusters"][0]["cluster"]
        text = document["users"][0]["user"]["client-certificate-data"]
        certificate = x509.load_pem_x509_certificate(base64.b64decode(text))
    except (OSError, ValueError, LookupError, TypeError):
        return False
    (expected,) = kubeconfig(cluster, authority, "", {})["clusters"]
    return bool(server == expected["cluster"]) and not is_due(
        certificate.not_valid_before_utc, certificate.not_valid_after_utc, now
    )


def _client_certificate(issuer: Issuer, name: str, key: ec.EllipticCurvePublicKey, now: datetime) -> x509.Certificate:
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ADMINS), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + ADMIN_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(authority_identifier(issuer.certificate), critical=False)
        .sign(issuer.key, HASH())
    )


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
