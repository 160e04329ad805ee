"""Certificates of laptops and gateways: subjects, keys, tls-crypt-v2 keys, PEM texts.

A laptop is named `<user>.<device>`, a gateway by its name in the fleet's domain; the two never collide.
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
# X.520 limits a common name to 64 characters; OpenVPN identifies a client by it.
_MAX_NAME, _MAX_USER, _MAX_DEVICE = 64, 32, 31
# The same as bedplate.plan.laptops.NAME_PREFIX, which is not imported: keys are made without a plan.
GATEWAY_PREFIX = "gateway."
_PART = re.compile(r"[a-z_][a-z0-9_-]*")
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]*(\.[a-z0-9_][a-z0-9_-]*)*")


class Use(StrEnum):
    """The use of a certificate: a laptop, a gateway of laptops, or a gateway at the end of a tunnel."""

    CLIENT = "client"
    SERVER = "server"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a certificate; `addresses` are the public addresses of a gateway."""

    name: str
    use: Use
    addresses: tuple[IPv4Address, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > _MAX_NAME:
            raise InputError(
                f"{self.name!r} is not a valid certificate name",
                fix=f"use a-z, 0-9, _, - and inner dots, at most {_MAX_NAME} characters",
            )


def laptop(user: str, device: str = DEFAULT_DEVICE) -> Subject:
    """Return the subject of a person's device; raise InputError for an invalid user or device name."""
    for kind, word, limit in (("user name", user, _MAX_USER), ("device name", device, _MAX_DEVICE)):
        if not _PART.fullmatch(word) or len(word) > limit:
            near = re.sub("[^a-z0-9_]+", "-", re.split("[@.]", word.lower())[0]).strip("-")
            form = f"use a-z, 0-9, _ and -, start with a letter or _, at most {limit} characters"
            is_valid = _PART.fullmatch(near) and len(near) <= limit
            raise InputError(f"{word!r} is not a valid {kind}", fix=f"write {near}" if is_valid else form)
    if f"{user}." == GATEWAY_PREFIX:
        raise InputError(f"the user name {user} is reserved for gateways", fix="choose another user name")
    return Subject(f"{user}.{device}", Use.CLIENT)


def gateway_subject(place: str, domain: str, *addresses: IPv4Address) -> Subject:
    """Return the subject of the gateway of laptops in a region or site."""
    return Subject(f"{GATEWAY_PREFIX}{place}.{domain}", Use.SERVER, addresses)


def device_words(name: str) -> str:
    """Return the arguments of `vpn add` and `vpn renew` for a laptop: the user, and the option of another device."""
    user, _, device = name.partition(".")
    return user if device == DEFAULT_DEVICE else f"{user} --device {device}"


def user_of(name: str) -> str:
    """Return the user in the certificate name of a laptop."""
    return name.partition(".")[0]


_SERVER, _CLIENT = "OpenVPN tls-crypt-v2 server key", "OpenVPN tls-crypt-v2 client key"
# An OpenVPN key has 64 bytes for a cipher and 64 for a MAC; AES-256 and SHA-256 use the first 32 of each.
_KEY, _USED, _MAC_AT = 128, 32, 64
_CLIENT_KEY, _TAG = 2 * _KEY, 32
_USER_DEFINED = b"\x00"


def new_server_key() -> str:
    """Return a new tls-crypt-v2 key for the fleet's gateways, in PEM."""
    return _pem(_SERVER, os.urandom(_KEY))


def digest(server_key: str) -> str:
    """Return the SHA-256 of the gateways' tls-crypt-v2 key."""
    return sha256(server_key.encode()).hexdigest()


def client_key(server_key: str, name: str) -> str:
    """Return a new tls-crypt-v2 key for the laptop of this name, in PEM; gateways with the server key accept it."""
    key, metadata = os.urandom(_CLIENT_KEY), _USER_DEFINED + name.encode()
    return _pem(_CLIENT, key + _wrap(_parse_pem(server_key, _SERVER), key + metadata))


def _wrap(key: bytes, plain: bytes) -> bytes:
    tag = _tag(key, plain)
    return tag + _crypt(key, tag, plain) + _length(plain)


def _tag(key: bytes, plain: bytes) -> bytes:
    return hmac.digest(key[_MAC_AT : _MAC_AT + _USED], _length(plain) + plain, sha256)


def _crypt(key: bytes, tag: bytes, text: bytes) -> bytes:
    """Return the text encrypted or decrypted: the same in counter mode. The tag's first half starts the counter."""
    encryptor = Cipher(algorithms.AES256(key[:_USED]), modes.CTR(tag[:16])).encryptor()
    return encryptor.update(text) + encryptor.finalize()


def _length(plain: bytes) -> bytes:
    return struct.pack("!H", _TAG + len(plain) + 2)


def _pem(kind: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""))


def _parse_pem(text: str, kind: str) -> bytes:
    head, tail = f"-----BEGIN {kind}-----\n", f"-----END {kind}-----\n"
    if not (text.startswith(head) and text.endswith(tail)):
        raise InputError(f"not an {kind} in PEM", fix="restore the file from a backup")
    return base64.b64decode(text.removeprefix(head).removesuffix(tail))


_BLOCK = re.compile(r"-----BEGIN ([A-Za-z0-9 -]+)-----\n.*?-----END \1-----\n", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Bundle:
    """A certificate, its private key and a tls-crypt-v2 key in PEM; tunnels have no tls-crypt-v2 key.

    There is no repr, so that keys are never printed.
    """

    certificate: str
    key: str
    tls_crypt: str = ""

    @property
    def text(self) -> str:
        """The bundle as one text; in one file the parts always belong together."""
        return self.certificate + self.key + self.tls_crypt


def parse_bundle(text: str) -> Bundle:
    """Return the bundle of a text; raise InputError, without its content, for anything else."""
    blocks = {match[1]: match[0] for match in _BLOCK.finditer(text)}
    keys = [block for kind, block in blocks.items() if kind.endswith("PRIVATE KEY")]
    tls_crypt = [block for kind, block in blocks.items() if kind.startswith("OpenVPN")]
    if "".join(blocks.values()) != text or "CERTIFICATE" not in blocks or len(keys) != 1:
        raise InputError(
            "not a certificate with its private key in PEM",
            fix="laptop: `bedplate vpn renew`; gateway: delete the file, then run `bedplate vpn sync`",
        )
    return Bundle(blocks["CERTIFICATE"], keys[0], "".join(tls_crypt))


Passphrase = Callable[[], bytes]


def is_encrypted(text: str) -> bool:
    """Return whether a private key in PEM is encrypted."""
    return "ENCRYPTED" in text.partition("\n")[0]


def passphrase_for(text: str, passphrase: Passphrase) -> bytes | None:
    """Return the passphrase if a private key is encrypted, else None without asking for it."""
    return passphrase() if is_encrypted(text) else None


def load_key(text: str, passphrase: bytes | None, name: str) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a PEM text; raise InputError, with the name of the key, if it cannot be used."""
    try:
        key = load_pem_private_key(text.encode(), passphrase)
    except ValueError:
        if is_encrypted(text):
            raise InputError(f"wrong passphrase for {name}", fix="enter the passphrase that encrypted it") from None
        raise InputError(f"{name} is not a private key in PEM", fix="restore the file from a backup") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{name} is not an elliptic curve key", fix="use the key that belongs to the certificate")
    return key


# OWASP Password Storage Cheat Sheet, PBKDF2-HMAC-SHA256, 2026-11.
ROUNDS = 600_000
_SALT, _PKCS8_KEY, _PKCS8_BLOCK = 16, 32, 16
_INTEGER, _OCTETS, _OBJECT, _SEQUENCE, _NULL = 0x02, 0x04, 0x06, 0x30, 0x05
_LONG_FORM = 0x80
# Object identifiers of RFC 8018 appendix A and C, and NIST's for AES-256-CBC, without tag and length.
_PBES2, _PBKDF2 = bytes.fromhex("2a864886f70d01050d"), bytes.fromhex("2a864886f70d01050c")
_HMAC_SHA256, _AES256_CBC = bytes.fromhex("2a864886f70d0209"), bytes.fromhex("60864801650304012a")


def encrypted_text(key: bytes, passphrase: bytes) -> str:
    """Return a private key, given in PKCS 8 DER, encrypted with a passphrase, in PEM."""
    salt, vector = os.urandom(_SALT), os.urandom(_PKCS8_BLOCK)
    derived = pbkdf2_hmac("sha256", passphrase, salt, ROUNDS, _PKCS8_KEY)
    prf = _der(_SEQUENCE, _der(_OBJECT, _HMAC_SHA256), _der(_NULL))
    rounds = _der(_INTEGER, ROUNDS.to_bytes(ROUNDS.bit_length() // 8 + 1, "big"))
    kdf = _algorithm(_PBKDF2, _der(_SEQUENCE, _der(_OCTETS, salt), rounds, prf))
    scheme = _algorithm(_PBES2, _der(_SEQUENCE, kdf, _algorithm(_AES256_CBC, _der(_OCTETS, vector))))
    text = base64.encodebytes(_der(_SEQUENCE, scheme, _der(_OCTETS, _encrypt(key, derived, vector)))).decode()
    return f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{text}-----END ENCRYPTED PRIVATE KEY-----\n"


def _encrypt(plain: bytes, key: bytes, vector: bytes) -> bytes:
    padder, encryptor = PKCS7(8 * _PKCS8_BLOCK).padder(), Cipher(algorithms.AES256(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()


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
# Laptops have no revocation list: only the end of its certificate stops a stolen gateway.
LIFE: Mapping[Use, timedelta] = MappingProxyType(
    {Use.CLIENT: timedelta(days=90), Use.SERVER: timedelta(days=14), Use.PEER: timedelta(days=90)}
)
# How long before the end a warning is given. A daily `vpn sync` renews at half of a life.
EXPIRY_WARNING: Mapping[Use, timedelta] = MappingProxyType(
    {Use.CLIENT: timedelta(days=14), Use.SERVER: timedelta(days=5), Use.PEER: timedelta(days=14)}
)
# Validity starts earlier, because clocks of laptops may be minutes behind.
CLOCK_TOLERANCE = timedelta(minutes=5)
EXTENDED_KEY_USAGES: Mapping[Use, x509.ObjectIdentifier] = MappingProxyType(
    {
        Use.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
        Use.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
        Use.PEER: ExtendedKeyUsageOID.IPSEC_IKE,
    }
)


@dataclass(frozen=True, slots=True)
class Issuer:
    """The certificate of an authority and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key on P-384."""
    return ec.generate_private_key(CURVE())


def issue(
    issuer: Issuer, subject: Subject, key: ec.EllipticCurvePublicKey, serial: int, now: datetime
) -> x509.Certificate:
    """Return a certificate with the life of its use, or until the issuer's certificate ends."""
    end = min(now + LIFE[subject.use], issuer.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(subject.name))
        .issuer_name(issuer.certificate.subject)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([EXTENDED_KEY_USAGES[subject.use]]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(authority_identifier(issuer.certificate), critical=False)
    )
    if subject.use is not Use.CLIENT:
        builder = builder.add_extension(_alternative_names(subject), critical=False)
    return builder.sign(issuer.key, HASH())


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage: certificates and revocation lists for an authority, else handshakes."""
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
    """Return an X.509 name that consists of a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def authority_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return the identifier of the issuer's key, for certificates and revocation lists that it signs."""
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def key_text(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> str:
    """Return a private key in PKCS 8 PEM, encrypted if there is a passphrase."""
    if passphrase:
        return encrypted_text(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), passphrase)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def certificate_text(certificate: x509.Certificate) -> str:
    """Return a certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM).decode()


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key, in hexadecimal."""
    return sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _alternative_names(subject: Subject) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [x509.DNSName(subject.name), *(x509.IPAddress(address) for address in subject.addresses)]
    )
