"""Private keys that a passphrase may lock: read here, and asked for only where one is locked."""

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bedplate.errors import InputError

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
