"""SSH public keys: one line with type, base64 data and comment. No message contains the key's data.

The data has the format of RFC 4253 section 6.6 and RFC 5656: fields, each after its length in four bytes.
"""

import re
import string
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from functools import partial

from pydantic_core import PydanticCustomError

from bedplate.rules import Rule
from bedplate.spec.base import invalid

PRIVATE_KEY = Rule(
    "E502",
    "A private key gives access to every reader of the file.",
    "delete it, create a new key pair, and write the line of its .pub file",
)
_rule = partial(Rule, section="people")
NOT_A_KEY = _rule("E506", "sshd would ignore it.", "write the line of the .pub file")
KEY_OPTIONS = _rule("E507", "Options change what a login may do.", "delete the words before the key type")
MULTILINE_KEY = _rule("E508", "A second line would be a second key.", "write each key as an entry of the list")
KEY_TYPE = _rule("E509", "sshd does not accept this key type.", "create a key with ssh-keygen -t ed25519")
WEAK_KEY = _rule("E510", "Short RSA keys can be broken.", "create a key with ssh-keygen -t ed25519", "NIST SP 800-57")

SHORTEST_RSA = 3072
EXAMPLE = "write the line of the .pub file: a type such as ssh-ed25519, the data, and a comment"
# Number of fields of each accepted type, including the name of the type.
_FIELDS = {
    "ssh-ed25519": 2,
    "ssh-rsa": 3,
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}
_NEW_KEY = "create a key with ssh-keygen -t ed25519"
_ED25519_BYTES = 32
_PRINTABLE = frozenset(string.printable) - frozenset(string.whitespace) | {" "}
_PRIVATE = re.compile(r"-----BEGIN|PRIVATE KEY|PuTTY-User-Key-File")
_DATA = re.compile(r"AAAA[A-Za-z0-9+/=]+")
_TYPE = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+")
_SECOND_KEY = re.compile(rf"[ ,]{_TYPE.pattern} AAAA")


def check_key(line: str) -> str:
    """Return the line; raise a validation error unless it is a strong public key without options."""
    if _PRIVATE.search(line):
        raise invalid(PRIVATE_KEY, "this is a private key, which must not be in a fleet file", EXAMPLE)
    if len(line.strip().splitlines()) > 1:
        raise invalid(MULTILINE_KEY, "the key has more than one line", "write each line as an item of the list")
    if not set(line) <= _PRINTABLE or line != line.strip():
        message = "the key has characters other than printable ASCII, or surrounding spaces"
        raise invalid(NOT_A_KEY, message, "copy the line of the .pub file again, without spaces around it")
    kind, _, rest = line.partition(" ")
    _check_kind(kind, line)
    if _SECOND_KEY.search(rest):
        raise invalid(MULTILINE_KEY, "two keys in one string", "write two items of the list")
    _check_blob(kind, rest.partition(" ")[0])
    return line


def _check_kind(kind: str, line: str) -> None:
    """Raise a validation error unless the first word is an accepted key type."""
    if kind in _FIELDS:
        return
    if kind == "ssh-dss":
        raise invalid(KEY_TYPE, "OpenSSH no longer accepts DSA keys", _NEW_KEY)
    if _TYPE.fullmatch(kind):
        raise invalid(KEY_TYPE, f"{kind[:60]} is not an accepted key type", f"use one of {', '.join(_FIELDS)}")
    if any(word in _FIELDS for word in line.split(" ")):
        start = next(word for word in line.split(" ") if word in _FIELDS)
        raise invalid(KEY_OPTIONS, "the key has options before its type", f"start the line with {start}")
    if kind.endswith(".pub") or kind.startswith(("~", "/", ".")):
        raise invalid(
            NOT_A_KEY, f"{kind[:60]} is the name of a file, not a key", f"write the line that `cat {kind[:60]}` prints"
        )
    if _DATA.fullmatch(kind):
        encoded = kind[: len(kind) // 4 * 4]
        raise invalid(NOT_A_KEY, "the type before the data is missing", f"write {_kind_of(encoded)} before it")
    raise invalid(NOT_A_KEY, "this is not an OpenSSH public key", EXAMPLE)


def _kind_of(encoded: str) -> str:
    """Return the type that the data of a key names."""
    try:
        name = next(_fields(b64decode(encoded)), b"").decode("ascii", "replace")
    except (Base64Error, EOFError):
        name = ""
    return name if name in _FIELDS else "ssh-ed25519"


def _check_blob(kind: str, text: str) -> None:
    """Raise a validation error if the data is damaged, of another type than the line, or a weak key."""
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
        message = f"this RSA key has {bits} bits, at least {SHORTEST_RSA} required"
        raise invalid(WEAK_KEY, message, _NEW_KEY)


def _damaged(kind: str) -> PydanticCustomError:
    return invalid(NOT_A_KEY, f"the data after {kind} is incomplete or damaged", "copy the whole line of the .pub file")


def _fields(blob: bytes) -> Iterator[bytes]:
    """Yield the length-prefixed fields; raise EOFError if the data ends inside one."""
    start = 0
    while start < len(blob):
        end = start + 4 + int.from_bytes(blob[start : start + 4])
        if end > len(blob) or start + 4 > len(blob):
            raise EOFError
        yield blob[start + 4 : end]
        start = end
