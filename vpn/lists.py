"""The lists of what was revoked, as they lie in the folder: whether they still serve, and may be deployed."""

import os
from datetime import datetime
from pathlib import Path

from cryptography import x509

from bedplate.errors import InputError
from bedplate.writer import told_plainly
from vpn.judgement import Level, is_signed_by, list_faults
from vpn.pki import Pki, public_key
from vpn.revocation import Freshness, end_of, freshness, list_text, number_of, read_lists


def read_list(pki: Pki) -> x509.CertificateRevocationList | None:
    """Return the authority's list, whatever it is worth; None where none can be read."""
    try:
        return read_lists(_text(pki.folder.lists))[0]
    except InputError:
        return None


def current_list(pki: Pki, now: datetime) -> x509.CertificateRevocationList | None:
    """Return the authority's list where it is the last that was signed and not yet due for renewal."""
    found = read_list(pki)
    if found is None:
        return None
    is_last = pki.roll.listed is not None and number_of(found) == pki.roll.listed.number
    is_own = is_last and found.is_signature_valid(public_key(pki.authority))
    return found if is_own and freshness(found, now) is Freshness.FRESH else None


def deployable_lists(pki: Pki, now: datetime) -> str:
    """Return the authority's list in PEM; InputError if it would lock people out, or let the revoked in."""
    found = read_lists(_text(pki.folder.lists))[0]
    faults = [fault for fault in list_faults(found, pki.authority.certificate, now) if fault.level is Level.ERROR]
    if pki.roll.listed is None or number_of(found) != pki.roll.listed.number:
        raise InputError(
            "crl.pem is not the last list that was signed", where=str(pki.folder.lists), fix="`bedplate vpn sync`"
        )
    if faults:
        raise InputError(f"crl.pem {faults[0].message}", where=str(pki.folder.lists), fix="`bedplate vpn sync`")
    return list_text(found)


def read_root_list(file: Path, root: x509.Certificate) -> x509.CertificateRevocationList:
    """Return the list of a root.crl.pem; InputError unless the file holds one list that the root signed."""
    try:
        lists = read_lists(_text(file))
    except InputError:
        lists = ()
    if len(lists) != 1 or not is_signed_by(lists[0], root):
        raise InputError(
            f"{file.name} must hold one revocation list, signed by the root in authority.crt",
            where=str(file),
            fix="restore it from where it is committed",
        )
    return lists[0]


def root_texts(pki: Pki, now: datetime) -> tuple[str, ...]:
    """Return the root's list in PEM, nothing without a root; InputError if the list is damaged or has expired."""
    if pki.authority.root is None:
        return ()
    found = read_root_list(pki.folder.root_list, pki.authority.root)
    if end_of(found) <= now:
        raise InputError(
            f"root.crl.pem expired on {end_of(found):%Y-%m-%d}",
            where=str(pki.folder.root_list),
            fix="move fleet.pki away, then `bedplate vpn init --root KEY --replaces MOVED/authority.crt`",
        )
    return (list_text(found),)


def _text(path: Path) -> str:
    with told_plainly(path, "read"):
        return path.read_text(encoding="ascii", errors="replace") if os.path.lexists(path) else ""
