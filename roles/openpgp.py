"""Fingerprints of OpenPGP keys, computed from the keys themselves; it verifies no signature and knows no secret key."""

import base64
import re
from collections.abc import Iterator
from hashlib import sha1

_BLOCK = re.compile(r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(.*?)\n?-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)
_PRIMARY_KEY = 6
_LONG, _TWO_OCTETS = 255, 192
# Lengths of an old packet's length, by its two last bits. Source: RFC 9580 section 4.2.2.
_OLD_LENGTHS = (1, 2, 4)


def fingerprints(armored: str) -> tuple[str, ...]:
    """Return the fingerprint of each primary key, in upper-case hex; ValueError for what is no key of version 4."""
    found = tuple(
        _fingerprint(body)
        for block in _BLOCK.findall(armored)
        for tag, body in _packets(_binary(block))
        if tag == _PRIMARY_KEY
    )
    if not found:
        raise ValueError("this is no OpenPGP public key in armour")
    return found


def _binary(block: str) -> bytes:
    """Return what an armoured block holds: after its headers, before its checksum."""
    _, _, text = f"\n{block}".partition("\n\n")
    return base64.b64decode("".join(line for line in text.split("\n") if not line.startswith("=")), validate=True)


def _fingerprint(body: bytes) -> str:
    if body[:1] != b"\x04":
        raise ValueError(f"a key of version {body[0] if body else 'none'}; only those of version 4 are known here")
    # What RFC 9580 section 5.5.4 says that a fingerprint is; its strength is that of the algorithm.
    digest = sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False)
    return digest.hexdigest().upper()


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the body of each packet. RFC 9580 section 4.2."""
    at = 0
    while at < len(data):
        head = data[at]
        tag, start, length = _new(data, at) if head & 0x40 else _old(data, at)
        if not head & 0x80 or start + length > len(data):
            raise ValueError("the key is cut off or not OpenPGP")
        yield tag, data[start : start + length]
        at = start + length


def _old(data: bytes, at: int) -> tuple[int, int, int]:
    kind = data[at] & 0x03
    if kind == len(_OLD_LENGTHS):
        raise ValueError("a packet of unknown length is no part of a key")
    start = at + 1 + _OLD_LENGTHS[kind]
    return (data[at] & 0x3C) >> 2, start, int.from_bytes(data[at + 1 : start], "big")


def _new(data: bytes, at: int) -> tuple[int, int, int]:
    tag, first = data[at] & 0x3F, data[at + 1]
    if first == _LONG:
        return tag, at + 6, int.from_bytes(data[at + 2 : at + 6], "big")
    if first < _TWO_OCTETS:
        return tag, at + 2, first
    return tag, at + 3, ((first - _TWO_OCTETS) << 8) + data[at + 2] + _TWO_OCTETS
