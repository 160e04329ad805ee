"""Only strong public keys without options are taken, and no message repeats what a key holds."""

from base64 import b64encode

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from pydantic_core import PydanticCustomError

from bedplate.spec.sshkey import check_key

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


def line(key: PublicKey) -> str:
    """Return the line that OpenSSH writes of a public key."""
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


ED25519 = line(ed25519.Ed25519PrivateKey.generate().public_key())
ECDSA = line(ec.generate_private_key(ec.SECP384R1()).public_key())


def rsa_of(bits: int) -> str:
    """Return the line of an RSA key with a modulus of so many bits; nobody holds its private half."""
    modulus = (1 << (bits - 1)) + 1
    return line(rsa.RSAPublicNumbers(65537, modulus).public_key())


@pytest.mark.parametrize(
    "key",
    [ED25519, ECDSA, rsa_of(3072), rsa_of(4096), f"{ED25519} ada@laptop, the new one"],
    ids=["ed25519", "ecdsa", "rsa-3072", "rsa-4096", "with a comment"],
)
def test_strong_public_keys_are_taken(key: str) -> None:
    """With any comment, or none."""
    assert check_key(key) == key


BLOB = ED25519.split()[1]
REFUSED = {
    "a private key": (
        "E502",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
    ),
    "PuTTY's private key": ("E502", "PuTTY-User-Key-File-3: ssh-ed25519"),
    "two lines": ("E508", f"{ED25519} a\n{ED25519} b"),
    "options": ("E507", f'command="id",no-pty {ED25519}'),
    "DSA": ("E509", f"ssh-dss {BLOB}"),
    "a certificate": ("E509", f"ssh-ed25519-cert-v01@openssh.com {BLOB}"),
    "RSA of 2048 bits": ("E510", rsa_of(2048)),
    "RSA of 3071 bits": ("E510", rsa_of(3071)),
    "another type than the blob's": ("E506", f"ssh-rsa {BLOB}"),
    "a blob cut short": ("E506", f"ssh-ed25519 {BLOB[:-8]}"),
    "a blob with something behind": ("E506", f"ssh-ed25519 {BLOB}AAAA"),
    "no base64": ("E506", "ssh-ed25519 AAAA!"),
    "an empty blob": ("E506", "ssh-ed25519"),
    "an endless length": ("E506", "ssh-ed25519 " + b64encode(b"\xff\xff\xff\xffx").decode()),
    "a fingerprint": ("E506", "SHA256:abcdefghijklmnopqrstuvwxyz"),
    "spaces around": ("E506", f" {ED25519}"),
    "a control character": ("E506", f"{ED25519} a\x1b[2J"),
    "a comment in another script": ("E506", f"{ED25519} \u0430da"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_anything_else_is_refused_by_what_it_is(what: str) -> None:
    """The refusal names the kind and holds nothing of the key."""
    code, text = REFUSED[what]

    with pytest.raises(PydanticCustomError) as refused:
        check_key(text)

    assert refused.value.type == code
    assert refused.value.context is not None
    assert BLOB[:24] not in str(refused.value.context)
