"""The keys that hide a gateway from whoever has none: tls-crypt-v2, one for all gateways and one for each laptop.

A packet that bears no such key is dropped before TLS begins. Format: doc/tls-crypt-v2.txt of OpenVPN 2.6.
"""

import base64
import hmac
import os
import struct
from hashlib import sha256

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bedplate.errors import InputError

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
