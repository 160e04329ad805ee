"""Requests for certificates, as kubelet and joining machines make them, and texts that parsers may read differently."""

import base64
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class NodeKey:
    """A private key of a machine."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def public(self) -> bytes:
        """Its public key in DER."""
        return self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @property
    def hash(self) -> str:
        """The SHA-256 of its public key."""
        return sha256(self.public).hexdigest()

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

    def sign(self, content: bytes) -> bytes:
        """Return a signed request in DER with any content."""
        algorithm = _tlv(0x30, bytes.fromhex("06082a8648ce3d040302"))
        return _tlv(0x30, content, algorithm, _tlv(0x03, b"\0", self.key.sign(content, ec.ECDSA(SHA256()))))


def certificate(
    key: NodeKey, name: str, names: Sequence[str] = (), group: str = "system:nodes", purpose: str = "client auth"
) -> bytes:
    """Return a certificate of a node, signed by its own key."""
    request = x509.load_pem_x509_csr(key.request(name, names=names, group=group))
    now, usage = datetime.now(UTC), {"client auth": "CLIENT_AUTH", "server auth": "SERVER_AUTH"}[purpose]
    builder = x509.CertificateBuilder(
        request.subject, request.subject, key.key.public_key(), 1, now, now + timedelta(1)
    )
    for extension in request.extensions:
        builder = builder.add_extension(extension.value, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, usage)]), critical=False)
    return builder.sign(key.key, SHA256()).public_bytes(Encoding.PEM)


@dataclass
class Texts:
    """Seeded requests for the names of one machine, in which another parser may see `foreign` names or another node.

    Those in canonical form are `plain`; `build` is the plain one in DER.
    """

    key: NodeKey
    name: str
    addresses: Sequence[str]
    foreign: tuple[str, Sequence[str]]
    seed: int

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311  a repeatable test
        self.content = self._content(self.name, _VERSION, self._plain_attributes())

    def generate(self, count: int) -> Iterator[tuple[bytes, bool]]:
        """Yield texts, and whether each is in canonical form."""
        for number in range(count):
            content = self.content if number % 3 == 0 else self._changed_content()
            text = _pem(self.key.sign(content))
            changed = self._changed_text(text) if number % 3 == 2 or (number % 3 == 0 and number % 9) else text
            yield changed, content == self.content and changed == text

    def odd(self) -> Sequence[bytes]:
        """Return texts that Go accepts: a version and a kind of name that `cryptography` refuses, and two attributes.

        Of these it reads the first, which has the own names; Go reads the second.
        """
        own, foreign = self._names(self.addresses), self._names(self.foreign[1])
        extension = _extension(_tlv(0x30, *map(_name, self.addresses), _tlv(0xA3, b"\1\0")))
        two = _requested(own, identifier=_MICROSOFT) + _requested(foreign)
        contents = (
            self._content(self.name, b"\2\1\1", self._plain_attributes()),
            self._content(self.name, _VERSION, _requested(extension)),
            self._content(self.name, _VERSION, two),
        )
        return [_pem(self.key.sign(content)) for content in contents]

    def _changed_text(self, text: bytes) -> bytes:
        """Return one or two blocks with changes of lines and text between them."""
        pick = self._random.choice
        second = self.key.request(self.foreign[0], names=self.foreign[1] if self.addresses else ())
        blocks = [self._changed_block(text), self._changed_block(second)]
        if pick((False, False, True)):
            blocks.reverse()
        blocks = blocks[: pick((1, 2, 2, 2))]
        return b"".join(pick(_JUNK) + block for block in blocks) + pick(_JUNK)

    def _changed_block(self, text: bytes) -> bytes:
        pick, lines = self._random.choice, text.splitlines()
        for _ in range(pick((0, 1, 1, 2))):
            index = pick((0, 1, len(lines) - 2, len(lines) - 1))
            lines[index] = pick(_LINES)(lines[index])
        return pick((b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\n")).join(lines) + pick((b"\n", b"\n", b"", b" \n"))

    def _changed_content(self) -> bytes:
        """Return a content with another version, subject or attributes, or with changed bytes."""
        pick = self._random.choice
        name = pick((self.name, self.name, self.foreign[0]))
        version = pick((_VERSION, _VERSION, b"\2\1\1", b"\2\1\2", b"\2\1\xff", b"\2\2\0\0", b"\2\0"))
        attributes = b"".join(pick(self._attributes())() for _ in range(pick((0, 1, 1, 2, 2, 3))))
        content = bytearray(self._content(name, version, attributes, plain=pick((True, False))))
        for _ in range(pick((0, 0, 1, 2))):
            content[self._random.randrange(len(content))] = self._random.randrange(256)
        return bytes(content)

    def _content(self, name: str, version: bytes, attributes: bytes, *, plain: bool = True) -> bytes:
        pick = self._random.choice if not plain else lambda _: 0x0C
        common = f"system:node:{name}".encode()
        entries = [_entry(10, b"system:nodes", pick(_STRINGS)), _entry(3, common, pick(_STRINGS))]
        if not plain:
            more = _entry(3, f"system:node:{self.foreign[0]}".encode(), pick(_STRINGS))
            changes = (entries, [*entries, more], [more, *entries], [entries[0], entries[1] + more], entries[1:])
            entries = list(self._random.choice(changes))
        subject = _tlv(0x30, *(_tlv(0x31, entry) for entry in entries))
        return _tlv(0x30, version, subject, self.key.public, _tlv(0xA0, attributes))

    def _plain_attributes(self) -> bytes:
        return _requested(self._names(self.addresses)) if self.addresses else b""

    def _attributes(self) -> Sequence[Callable[[], bytes]]:
        own, foreign = self._names(self.addresses), self._names(self.foreign[1])
        odd = [_tlv(tag, value) for tag, value in _ODD_NAMES]
        return (
            lambda: _requested(own),
            lambda: _requested(foreign),
            lambda: _requested(own, identifier=_MICROSOFT),
            lambda: _requested(own, foreign),
            lambda: _requested(_extension(_tlv(0x30, self._random.choice(odd)))),
            lambda: _requested(own + foreign),
            lambda: _requested(_extension(_tlv(0x30), identifier=_CONSTRAINTS)),
            lambda: _tlv(0x30, _PASSWORD, _tlv(0x31, _tlv(0x0C, b"word"))),
            lambda: _tlv(0x30, _EXTENSIONS, _tlv(0x31)),
        )

    @staticmethod
    def _names(names: Sequence[str]) -> bytes:
        return _extension(_tlv(0x30, *(_name(text) for text in names)))


_VERSION = b"\2\1\0"
# Object identifiers: requested extensions, Microsoft's, a password; alternative names, basic constraints.
_EXTENSIONS, _MICROSOFT = bytes.fromhex("06092a864886f70d01090e"), bytes.fromhex("060a2b06010401823702010e")
_PASSWORD, _NAMES, _CONSTRAINTS = (
    bytes.fromhex(text) for text in ("06092a864886f70d010907", "0603551d11", "0603551d13")
)
# UTF8String, PrintableString, IA5String, T61String, BMPString, UniversalString, NumericString.
_STRINGS = (0x0C, 0x13, 0x16, 0x14, 0x1E, 0x1C, 0x12)
# x400Address, otherName, directoryName, ediPartyName, registeredID, URI, mail, an empty and a long address.
_ODD_NAMES = (
    (0xA3, b"\1\0"), (0xA0, b"\6\1\1\xa0\2\5\0"), (0xA4, b"\x30\0"), (0xA5, b""), (0x88, b"\1"), (0x86, b"https://x"),
    (0x81, b"a@b.c"), (0x87, b""), (0x87, bytes(16)), (0x82, b"a\nb"), (0x82, b"\xff"), (0x82, b""),
)  # fmt: skip
_JUNK = (b"", b"", b"", b"\n", b"text\n", b"\xef\xbb\xbf", b" ", b"\t", b"-----BEGIN ", b"-----END X-----\n", b"\0")
_LINES = (
    lambda line: line + b" .",
    lambda line: line + b" ",
    lambda line: line + b"\t",
    lambda line: b" " + line,
    lambda line: b"\t" + line,
    lambda line: line[:-1],
    lambda line: line.replace(b"CERTIFICATE", b"NEW CERTIFICATE"),
    lambda line: line[:20] + b"\n" + line[20:],
    lambda line: line + b"\nProc-Type: 4,ENCRYPTED\n",
    lambda line: line + b"\n" + line,
    lambda line: line.replace(b"-----", b"----"),
    lambda line: line.lower(),
    lambda line: line[:0],
)


def _tlv(tag: int, *contents: bytes) -> bytes:
    """Return a value of DER."""
    content = b"".join(contents)
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2) if size > 255 else bytes([0x81, size])
    return bytes([tag]) + length + content


def _entry(number: int, value: bytes, kind: int) -> bytes:
    """Return an entry of a subject: 3 is the common name, 10 the organization."""
    wide = {0x1E: "utf-16-be", 0x1C: "utf-32-be"}
    text = value.decode().encode(wide[kind]) if kind in wide else value
    return _tlv(0x30, bytes((6, 3, 0x55, 4, number)), _tlv(kind, text))


def _name(text: str) -> bytes:
    return _tlv(0x87, IPv4Address(text).packed) if text[0].isdigit() else _tlv(0x82, text.encode())


def _extension(value: bytes, identifier: bytes = _NAMES) -> bytes:
    return _tlv(0x30, identifier, _tlv(0x04, value))


def _requested(*extensions: bytes, identifier: bytes = _EXTENSIONS) -> bytes:
    """Return an attribute with requested extensions; each one is a value of its own."""
    return _tlv(0x30, identifier, _tlv(0x31, *(_tlv(0x30, extension) for extension in extensions)))


def _pem(content: bytes) -> bytes:
    text = base64.b64encode(content)
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return b"\n".join((b"-----BEGIN CERTIFICATE REQUEST-----", *lines, b"-----END CERTIFICATE REQUEST-----", b""))
