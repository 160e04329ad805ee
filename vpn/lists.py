"""The lists of what was revoked, as they lie in the folder: whether they still serve, and may be deployed."""

import os
from datetime import datetime
from pathlib import Path

from cryptography import x509

from bedplate.errors import InputError
from bedplate.writer import told_plainly
from vpn.judgement import Level, list_faults
from vpn.pki import Pki, public_key
from vpn.pki_folder import PkiFolder
from vpn.revocation import Freshness, freshness, number_of, read_lists


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
    """Return what gateways are given, in PEM; InputError where it would lock people out, or let the revoked in."""
    text = _text(pki.folder.lists)
    found = read_lists(text)
    faults = [fault for fault in list_faults(found[0], pki.authority.certificate, now) if fault.level is Level.ERROR]
    if pki.roll.listed is None or number_of(found[0]) != pki.roll.listed.number:
        raise InputError(
            "crl.pem is not the last list that was signed", where=str(pki.folder.lists), fix="`bedplate vpn sync`"
        )
    if faults:
        raise InputError(f"crl.pem {faults[0].message}", where=str(pki.folder.lists), fix="`bedplate vpn sync`")
    return text


def root_text(folder: PkiFolder) -> str:
    """Return the root's own list, in PEM; empty where the authority signed itself."""
    return _text(folder.root_list)


def _text(path: Path) -> str:
    with told_plainly(path, "read"):
        return path.read_text(encoding="ascii", errors="replace") if os.path.lexists(path) else ""
