"""Private keys encrypted by a passphrase: PKCS 8 with PBES2 (RFC 8018), in PEM, as openssl reads it.

`cryptography` and openssl write the same format with 2,048 rounds, too few for a passphrase of twelve characters.
"""

import base64
import os
from hashlib import pbkdf2_hmac

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

# OWASP Password Storage Cheat Sheet, PBKDF2-HMAC-SHA256, read 2026-11.
ROUNDS = 600_000
_SALT, _KEY, _BLOCK = 16, 32, 16
_INTEGER, _OCTETS, _OBJECT, _SEQUENCE, _NULL = 0x02, 0x04, 0x06, 0x30, 0x05
_LONG_FORM = 0x80
# RFC 8018 appendix A and C, and NIST's id for AES-256 in CBC mode, without tag and length.
_PBES2, _PBKDF2 = bytes.fromhex("2a864886f70d01050d"), bytes.fromhex("2a864886f70d01050c")
_HMAC_SHA256, _AES256_CBC = bytes.fromhex("2a864886f70d0209"), bytes.fromhex("60864801650304012a")


def encrypted_text(key: bytes, passphrase: bytes) -> str:
    """Return a private key, given as PKCS 8 in DER, encrypted by a passphrase, in PEM."""
    salt, vector = os.urandom(_SALT), os.urandom(_BLOCK)
    derived = pbkdf2_hmac("sha256", passphrase, salt, ROUNDS, _KEY)
    prf = _der(_SEQUENCE, _der(_OBJECT, _HMAC_SHA256), _der(_NULL))
    rounds = _der(_INTEGER, ROUNDS.to_bytes(ROUNDS.bit_length() // 8 + 1, "big"))
    kdf = _algorithm(_PBKDF2, _der(_SEQUENCE, _der(_OCTETS, salt), rounds, prf))
    scheme = _algorithm(_PBES2, _der(_SEQUENCE, kdf, _algorithm(_AES256_CBC, _der(_OCTETS, vector))))
    text = base64.encodebytes(_der(_SEQUENCE, scheme, _der(_OCTETS, _encrypted(key, derived, vector)))).decode()
    return f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{text}-----END ENCRYPTED PRIVATE KEY-----\n"


def _encrypted(plain: bytes, key: bytes, vector: bytes) -> bytes:
    padder, step = PKCS7(8 * _BLOCK).padder(), Cipher(algorithms.AES256(key), modes.CBC(vector)).encryptor()
    return step.update(padder.update(plain) + padder.finalize()) + step.finalize()


def _algorithm(name: bytes, parameters: bytes) -> bytes:
    return _der(_SEQUENCE, _der(_OBJECT, name), parameters)


def _der(tag: int, *parts: bytes) -> bytes:
    """Return a value with its tag and length (X.690 section 8.1)."""
    content = b"".join(parts)
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    is_short = len(content) < _LONG_FORM
    return bytes([tag]) + (b"" if is_short else bytes([_LONG_FORM | len(length)])) + (length or b"\0") + content
