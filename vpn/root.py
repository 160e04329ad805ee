"""A root whose key an operator keeps away from the fleet: read only while it signs an authority and its own list."""

from datetime import datetime
from pathlib import Path

from cryptography import x509

from bedplate.errors import InputError
from bedplate.writer import told_plainly, write_whole
from vpn.authority import new_root
from vpn.certificate import Issuer, certificate_text, key_text
from vpn.judgement import authority_faults
from vpn.lists import read_root_list
from vpn.passphrase import Passphrase, lock_of, unlocked
from vpn.pki_folder import PkiFolder, read_chain, root_list_beside
from vpn.revocation import Reason, Revocation, RootList, number_of


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


def list_replacing(file: Path, root: Issuer, now: datetime) -> RootList:
    """Return the root's next list, which revokes the authority of an authority.crt as well.

    InputError if another root signed that authority, or root.crl.pem beside it is not the root's list.
    """
    replaced = read_chain(file)
    if replaced.root != root.certificate:
        raise InputError(
            f"{file.name} was not signed by this root", where=str(file), fix="name the authority.crt to replace"
        )
    last = read_root_list(root_list_beside(file), root.certificate)
    before = (Revocation(row.serial_number, row.revocation_date_utc, Reason.REPLACED) for row in last)
    own = Revocation(replaced.certificate.serial_number, now, Reason.REPLACED)
    return RootList(number_of(last) + 1, (*before, own))


def certificate_file(file: Path) -> Path:
    """Return where the certificate of a root's key lies."""
    return file.with_name(f"{file.name}.crt")
