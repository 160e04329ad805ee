"""A root whose key an operator keeps away from the fleet: read for the one moment in which it signs an authority."""

from datetime import datetime
from pathlib import Path

from cryptography import x509

from bedplate.errors import InputError
from bedplate.writer import told_plainly, write_whole
from vpn.authority import new_root
from vpn.certificate import Issuer, certificate_text, key_text
from vpn.judgement import authority_faults
from vpn.passphrase import Passphrase, lock_of, unlocked
from vpn.pki_folder import PkiFolder


def write_new_root(file: Path, fleet: str, folder: PkiFolder, now: datetime, lock: bytes | None) -> Issuer:
    """Make a root, its key in `file` and its certificate in `file`.crt; InputError beside the fleet file.

    The key is written last: a run that was killed has left no key that nothing tells whose it is.
    """
    if file.resolve().is_relative_to(folder.path.resolve().parent):
        raise InputError(
            "a root beside the fleet file is no root kept elsewhere",
            where=str(file),
            fix="name a file on a disk that you take away, or leave out --root",
        )
    root = new_root(fleet, now)
    write_whole(certificate_file(file), certificate_text(root.certificate).encode())
    write_whole(file, key_text(root.key, lock).encode(), 0o600)
    return root


def read_root(file: Path, now: datetime, passphrase: Passphrase) -> Issuer:
    """Return the root of a key's file; InputError, with all that is wrong, where it cannot sign an authority."""
    beside = certificate_file(file)
    with told_plainly(file, "read"):
        text = file.read_text(encoding="ascii", errors="replace")
    with told_plainly(beside, "read"):
        certificate = beside.read_bytes() if beside.exists() else b""
    key = unlocked(text, lock_of(text, passphrase), f"the root's key in {file.name}")
    try:
        root = Issuer(x509.load_pem_x509_certificate(certificate), key)
    except ValueError:
        raise InputError("the root's certificate cannot be read", where=str(beside), fix="put it there") from None
    if faults := authority_faults(root, now):
        told = "; ".join(fault.message for fault in faults)
        raise InputError(f"the root's certificate {told}", where=str(beside), fix="bring the root's own")
    return root


def certificate_file(file: Path) -> Path:
    """Return where the certificate of a root's key lies."""
    return file.with_name(f"{file.name}.crt")
