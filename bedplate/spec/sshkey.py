"""SSH public keys: one line of a type, a blob and a comment. Never repeats in a message what a key holds.

The blob is read as RFC 4253 section 6.6 and RFC 5656 lay it out: fields, each with its length in four bytes before it.
"""

import re
import string
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator

from pydantic_core import PydanticCustomError

from bedplate.spec.base import invalid

SHORTEST_RSA = 3072
EXAMPLE = "write one line such as: ssh-ed25519 AAAAC3... ada@laptop"
# How many fields a blob of each accepted type has, its own name included.
_FIELDS = {
    "ssh-ed25519": 2,
    "ssh-rsa": 3,
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}
_ED25519_BYTES = 32
_PRINTABLE = frozenset(string.printable) - frozenset(string.whitespace) | {" "}
_PRIVATE = re.compile(r"-----BEGIN|PRIVATE KEY|PuTTY-User-Key-File")
_TYPE = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+")


def check_key(line: str) -> str:
    """Return the line; a invalid names what it is instead of a strong public key without options."""
    if _PRIVATE.search(line):
        raise invalid("E502", "this is a private key; it must never be in a fleet file", EXAMPLE)
    if len(line.strip().splitlines()) > 1:
        raise invalid("E508", "there is more than one line here; each key is an item of the list", EXAMPLE)
    if not set(line) <= _PRINTABLE or line != line.strip():
        raise invalid("E506", "a public key is one line of printable ASCII without spaces around it", EXAMPLE)
    kind, _, rest = line.partition(" ")
    _check_kind(kind, line)
    _check_blob(kind, rest.partition(" ")[0])
    return line


def _check_kind(kind: str, line: str) -> None:
    """Refuse a line whose first word is no accepted type."""
    if kind in _FIELDS:
        return
    if kind == "ssh-dss":
        raise invalid(
            "E509",
            "this is a DSA key, which OpenSSH no longer accepts",
            "make one with ssh-keygen -t ed25519",
        )
    if _TYPE.fullmatch(kind):
        raise invalid("E509", f"{kind[:60]} is no accepted key type", f"use one of {', '.join(_FIELDS)}")
    if any(word in _FIELDS for word in line.split(" ")):
        raise invalid("E507", "there are options before the key; bedplate writes its own", EXAMPLE)
    raise invalid("E506", "this is no OpenSSH public key", EXAMPLE)


def _check_blob(kind: str, text: str) -> None:
    """Refuse a blob that is damaged, of another type than the line says, or weak."""
    try:
        fields = tuple(_fields(b64decode(text, validate=True)))
    except (Base64Error, EOFError):
        raise _damaged(kind) from None
    if len(fields) != _FIELDS[kind] or fields[0] != kind.encode():
        raise _damaged(kind)
    if kind.endswith("ed25519") and len(fields[1]) != _ED25519_BYTES:
        raise _damaged(kind)
    bits = int.from_bytes(fields[-1]).bit_length()
    if kind == "ssh-rsa" and bits < SHORTEST_RSA:
        message = f"this RSA key has {bits} bits; {SHORTEST_RSA} is the least"
        raise invalid("E510", message, "make one with ssh-keygen -t ed25519")


def _damaged(kind: str) -> PydanticCustomError:
    return invalid(
        "E506", f"what follows {kind} is no key of that type: cut off or damaged", "copy the whole .pub file"
    )


def _fields(blob: bytes) -> Iterator[bytes]:
    """Yield the length-prefixed fields; EOFError when the blob ends inside one."""
    start = 0
    while start < len(blob):
        end = start + 4 + int.from_bytes(blob[start : start + 4])
        if end > len(blob) or start + 4 > len(blob):
            raise EOFError
        yield blob[start + 4 : end]
        start = end
