"""Whom a certificate names, and what for.

A laptop is `<user>.<device>`, a gateway its whole name in the fleet's domain: the two never meet.
"""

import base64
import hmac
import os
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import pbkdf2_hmac, sha256
from ipaddress import IPv4Address
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bedplate.errors import InputError

DEFAULT_DEVICE = "laptop"
# X.520 ends a common name at 64 characters, and OpenVPN names a client by nothing else.
_LONGEST_NAME, _LONGEST_USER, _LONGEST_DEVICE = 64, 32, 31
# As bedplate.plan.laptops.NAME_PREFIX: the plan knows no keys, and keys are made without a plan.
GATEWAY_PREFIX = "gateway."
_PART = re.compile(r"[a-z_][a-z0-9_-]*")
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_][a-z0-9_-]*)*")


class Use(StrEnum):
    """What a certificate may be used for: a laptop, a gateway that laptops dial, an end of a site's tunnel."""

    CLIENT = "client"
    SERVER = "server"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a certificate names; `addresses` are those at which others reach a gateway."""

    name: str
    use: Use
    addresses: tuple[IPv4Address, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > _LONGEST_NAME:
            raise InputError(
                f"{self.name!r} is no name for a certificate",
                fix=f"a-z, 0-9, _, - and inner dots, {_LONGEST_NAME} characters at the most",
            )


def laptop(user: str, device: str = DEFAULT_DEVICE) -> Subject:
    """Return a person's device; InputError where either word cannot be part of a name."""
    for what, word, longest in (("user name", user, _LONGEST_USER), ("name of a device", device, _LONGEST_DEVICE)):
        if not _PART.fullmatch(word) or len(word) > longest:
            fix = f"a-z, 0-9, _ and -, a letter or _ first, {longest} characters at the most"
            raise InputError(f"{word!r} is no {what}", fix=fix)
    if f"{user}." == GATEWAY_PREFIX:
        raise InputError(f"nobody may be called {user}: laptops know gateways by it", fix="take another user name")
    return Subject(f"{user}.{device}", Use.CLIENT)


def gateway(place: str, domain: str, *addresses: IPv4Address) -> Subject:
    """Return the gateway that laptops dial in a region or on a site."""
    return Subject(f"{GATEWAY_PREFIX}{place}.{domain}", Use.SERVER, addresses)


def user_of(name: str) -> str:
    """Return whose device a certificate's name is."""
    return name.partition(".")[0]


_SERVER, _CLIENT = "OpenVPN tls-crypt-v2 server key", "OpenVPN tls-crypt-v2 client key"
# A key of OpenVPN's is 64 bytes for a cipher and 64 for a MAC, of which AES-256 and SHA-256 use the first 32 each.
_KEY, _USED, _MAC_AT = 128, 32, 64
_CLIENT_KEY, _TAG = 2 * _KEY, 32
_USER_DEFINED = b"\x00"


def new_server_key() -> str:
    """Return a key for the fleet's gateways, in PEM."""
    return _pem(_SERVER, os.urandom(_KEY))


def digest(server_key: str) -> str:
    """Return the SHA-256 of the gateways' key, which does not reveal it."""
    return sha256(server_key.encode()).hexdigest()


def client_key(server_key: str, name: str) -> str:
    """Return a new key for a laptop, in PEM: known to every gateway that has the server's key, bound to a name."""
    key, metadata = os.urandom(_CLIENT_KEY), _USER_DEFINED + name.encode()
    return _pem(_CLIENT, key + _wrapped(_unpacked(server_key, _SERVER), key + metadata))


def _wrapped(key: bytes, plain: bytes) -> bytes:
    tag = _tag(key, plain)
    return tag + _crypted(key, tag, plain) + _length(plain)


def _tag(key: bytes, plain: bytes) -> bytes:
    return hmac.digest(key[_MAC_AT : _MAC_AT + _USED], _length(plain) + plain, sha256)


def _crypted(key: bytes, tag: bytes, text: bytes) -> bytes:
    """Encrypt or decrypt, which in counter mode are the same; the tag's first half is the counter's start."""
    step = Cipher(algorithms.AES256(key[:_USED]), modes.CTR(tag[:16])).encryptor()
    return step.update(text) + step.finalize()


def _length(plain: bytes) -> bytes:
    return struct.pack("!H", _TAG + len(plain) + 2)


def _pem(kind: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""))


def _unpacked(text: str, kind: str) -> bytes:
    head, tail = f"-----BEGIN {kind}-----\n", f"-----END {kind}-----\n"
    if not (text.startswith(head) and text.endswith(tail)):
        raise InputError(f"it is no {kind}", fix="take it from where it was written")
    return base64.b64decode(text.removeprefix(head).removesuffix(tail))


_BLOCK = re.compile(r"-----BEGIN ([A-Za-z0-9 -]+)-----\n.*?-----END \1-----\n", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Bundle:
    """Three PEM texts; gateways share one tls-crypt-v2 key, and ends of sites' tunnels have none.

    Has no repr: it would be a secret in whatever is printed.
    """

    certificate: str
    key: str
    tls_crypt: str = ""

    @property
    def text(self) -> str:
        """All of it as one text, the form in which it is kept: the parts can never be of different certificates."""
        return self.certificate + self.key + self.tls_crypt


def parse_bundle(text: str) -> Bundle:
    """Return the bundle of a text; InputError for anything else, without a word of what it holds."""
    blocks = {found[1]: found[0] for found in _BLOCK.finditer(text)}
    if "".join(blocks.values()) != text:
        raise InputError(
            "it is no certificate with its key in PEM",
            fix="renew a laptop's certificate; a gateway's file is taken away, then `bedplate vpn sync` makes another",
        )
    keys = [block for kind, block in blocks.items() if kind.endswith("PRIVATE KEY")]
    hidden = [block for kind, block in blocks.items() if kind.startswith("OpenVPN")]
    if "CERTIFICATE" not in blocks or len(keys) != 1:
        raise InputError(
            "it is no certificate with its key in PEM",
            fix="renew a laptop's certificate; a gateway's file is taken away, then `bedplate vpn sync` makes another",
        )
    return Bundle(blocks["CERTIFICATE"], keys[0], "".join(hidden))


_LOCKED = "ENCRYPTED"
Passphrase = Callable[[], bytes]


def is_locked(text: str) -> bool:
    """Tell whether a private key in PEM is encrypted."""
    return _LOCKED in text.partition("\n")[0]


def lock_of(text: str, passphrase: Passphrase) -> bytes | None:
    """Return the passphrase that a key is locked by, asking for it; None for a key that is not."""
    return passphrase() if is_locked(text) else None


def unlocked(text: str, lock: bytes | None, what: str) -> ec.EllipticCurvePrivateKey:
    """Return the key of a PEM text; InputError where it does not open, or is of another kind."""
    try:
        key = load_pem_private_key(text.encode(), lock)
    except ValueError:
        told = "the passphrase does not open" if is_locked(text) else "nothing can be read as"
        raise InputError(f"{told} {what}", fix="give the passphrase it was locked with, or the key itself") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{what} is no key on an elliptic curve", fix="give the key that belongs to the certificate")
    return key


# OWASP Password Storage Cheat Sheet, PBKDF2-HMAC-SHA256, read 2026-11.
ROUNDS = 600_000
_SALT, _PKCS8_KEY, _PKCS8_BLOCK = 16, 32, 16
_INTEGER, _OCTETS, _OBJECT, _SEQUENCE, _NULL = 0x02, 0x04, 0x06, 0x30, 0x05
_LONG_FORM = 0x80
# RFC 8018 appendix A and C, and NIST's id for AES-256 in CBC mode, without tag and length.
_PBES2, _PBKDF2 = bytes.fromhex("2a864886f70d01050d"), bytes.fromhex("2a864886f70d01050c")
_HMAC_SHA256, _AES256_CBC = bytes.fromhex("2a864886f70d0209"), bytes.fromhex("60864801650304012a")


def encrypted_text(key: bytes, passphrase: bytes) -> str:
    """Return a private key, given as PKCS 8 in DER, encrypted by a passphrase, in PEM."""
    salt, vector = os.urandom(_SALT), os.urandom(_PKCS8_BLOCK)
    derived = pbkdf2_hmac("sha256", passphrase, salt, ROUNDS, _PKCS8_KEY)
    prf = _der(_SEQUENCE, _der(_OBJECT, _HMAC_SHA256), _der(_NULL))
    rounds = _der(_INTEGER, ROUNDS.to_bytes(ROUNDS.bit_length() // 8 + 1, "big"))
    kdf = _algorithm(_PBKDF2, _der(_SEQUENCE, _der(_OCTETS, salt), rounds, prf))
    scheme = _algorithm(_PBES2, _der(_SEQUENCE, kdf, _algorithm(_AES256_CBC, _der(_OCTETS, vector))))
    text = base64.encodebytes(_der(_SEQUENCE, scheme, _der(_OCTETS, _encrypted(key, derived, vector)))).decode()
    return f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{text}-----END ENCRYPTED PRIVATE KEY-----\n"


def _encrypted(plain: bytes, key: bytes, vector: bytes) -> bytes:
    padder, step = PKCS7(8 * _PKCS8_BLOCK).padder(), Cipher(algorithms.AES256(key), modes.CBC(vector)).encryptor()
    return step.update(padder.update(plain) + padder.finalize()) + step.finalize()


def _algorithm(name: bytes, parameters: bytes) -> bytes:
    return _der(_SEQUENCE, _der(_OBJECT, name), parameters)


def _der(tag: int, *parts: bytes) -> bytes:
    """Return a value with its tag and length (X.690 section 8.1)."""
    content = b"".join(parts)
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    is_short = len(content) < _LONG_FORM
    return bytes([tag]) + (b"" if is_short else bytes([_LONG_FORM | len(length)])) + (length or b"\0") + content


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
