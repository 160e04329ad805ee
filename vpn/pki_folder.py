"""`fleet.pki`, the folder beside the fleet file: authority, journal and revocation list as files that anybody may read.

Reads strictly and writes whole. What lies under `keys/` is the key store's.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from bedplate.errors import InputError
from bedplate.writer import told_plainly, write_together
from vpn.authority import Authority
from vpn.journal import DamagedError, Journal, parse_journal

_NAME = "fleet.pki"
_UNVERIFIED = (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm)
# What a journal holds before anything was issued: its beginning, the first list, the seal.
_EMPTY_LINES = 3


class NoAuthority(InputError):
    """A fleet whose VPN has no authority yet."""


class DamagedJournal(InputError):
    """A journal that is not as it was written; it stays as it is, and nothing is done on its word."""


@dataclass(frozen=True, slots=True)
class PkiFolder:
    """The paths of the files."""

    path: Path

    @property
    def journal(self) -> Path:
        """Who was issued what."""
        return self.path / "journal"

    @property
    def copy(self) -> Path:
        """The journal a second time: what an operator goes back to when the first was damaged."""
        return self.path / "journal.copy"

    @property
    def authority(self) -> Path:
        """The issuing certificate, then its root if there is one."""
        return self.path / "authority.crt"

    @property
    def twin(self) -> Path:
        """The self-signed twin of an issuing certificate that a root has signed."""
        return self.path / "trusted.crt"

    @property
    def lists(self) -> Path:
        """The authority's revocation list."""
        return self.path / "crl.pem"

    @property
    def root_list(self) -> Path:
        """The root's own list, signed when it signed the authority."""
        return root_list_beside(self.authority)

    @property
    def keys(self) -> Path:
        """The folder of private keys."""
        return self.path / "keys"

    def write(self, texts: Mapping[Path, str]) -> None:
        """Write files, all of them filled before the first takes its name."""
        write_together({path: text.encode() for path, text in texts.items()})

    def make(self) -> None:
        """Make the folder itself, where there is none."""
        with told_plainly(self.path):
            self.path.mkdir(exist_ok=True)

    def check_unused(self) -> None:
        """Raise InputError where there is an authority already."""
        if os.path.lexists(self.authority) or _has_entries(self.journal) or _has_entries(self.copy):
            raise InputError(
                f"{self.path.name} holds an authority already",
                where=str(self.path),
                fix="keep it: every profile hangs on it; to begin anew, move the folder away",
            )


def folder_of(fleet_file: Path) -> PkiFolder:
    """Return the folder of a fleet file: beside it."""
    return PkiFolder(fleet_file.with_name(_NAME))


def read_authority(folder: PkiFolder) -> Authority:
    """Return the authority; NoAuthority where none was begun, InputError where a certificate is not verified."""
    if not os.path.lexists(folder.authority):
        raise NoAuthority(
            "this fleet's VPN has no authority yet", where=str(folder.path), fix="`bedplate vpn init` makes one"
        )
    authority = read_chain(folder.authority)
    return authority if authority.root is None else replace(authority, twin=_twin(folder.twin, authority.certificate))


def read_chain(file: Path) -> Authority:
    """Return the authority of an authority.crt, without its twin; InputError unless each certificate is verified."""
    try:
        issuing, *roots = x509.load_pem_x509_certificates(_text(file).encode())
        (signer,) = roots or [issuing]
        issuing.verify_directly_issued_by(signer)
    except _UNVERIFIED:
        raise InputError(
            f"{file.name} must hold one self-signed certificate, or one certificate and the root that signed it",
            where=str(file),
            fix="restore it from the first commit of the folder",
        ) from None
    return Authority(issuing, roots[0] if roots else None)


def root_list_beside(authority: Path) -> Path:
    """Return the path of the root's list of an authority.crt."""
    return authority.with_name("root.crl.pem")


def _twin(file: Path, issuing: x509.Certificate) -> x509.Certificate:
    """Return the twin: only the owner of the issuing key can sign one."""
    try:
        (twin,) = x509.load_pem_x509_certificates(_text(file).encode())
        twin.verify_directly_issued_by(twin)
        is_twin = twin.subject == issuing.subject and twin.public_key() == issuing.public_key()
    except _UNVERIFIED:
        is_twin = False
    if not is_twin:
        raise InputError(
            f"{file.name} must hold the self-signed twin of the certificate in authority.crt",
            where=str(file),
            fix="restore it from the first commit of the folder",
        )
    return twin


def read_journal(folder: PkiFolder, key: ec.EllipticCurvePublicKey) -> Journal:
    """Return the journal; DamagedJournal when it is not whole, or older than its copy, with the way back."""
    # The copy is written last, so that who reads it first never finds it ahead of a journal that is being written.
    saved, text = _text(folder.copy), _text(folder.journal)
    try:
        journal = parse_journal(text, key)
    except DamagedError as error:
        raise _refusal(folder, str(error), _parsed(saved, key)) from None
    copy = None if text == saved else _parsed(saved, key)
    if copy is not None and copy.lines != journal.lines[: len(copy.lines)]:
        raise _refusal(folder, "its copy tells more, so an older one was put in its place", copy)
    return journal


def is_unchanged(folder: PkiFolder, journal: Journal) -> bool:
    """Tell whether the journal and its copy are, letter by letter, what was read before."""
    return _text(folder.journal) == journal.sealed == _text(folder.copy)


def _parsed(text: str, key: ec.EllipticCurvePublicKey) -> Journal | None:
    try:
        return parse_journal(text, key)
    except DamagedError:
        return None


def _refusal(folder: PkiFolder, why: str, copy: Journal | None) -> DamagedJournal:
    fix = "take it back from where it is committed or saved, together with journal.copy"
    if copy is not None:
        there = f"{folder.copy} is whole, with {len(copy.lines)} lines up to {copy.entries[-1].at:%Y-%m-%d %H:%M} UTC"
        fix = f"{there}: `mv journal journal.damaged && cp journal.copy journal` in {folder.path}"
    return DamagedJournal(f"the VPN's journal is refused: {why}", where=str(folder.journal), fix=fix)


def _text(path: Path) -> str:
    """Return a file's text; an absent journal is an empty one, which is damaged."""
    try:
        with told_plainly(path, "read"):
            return path.read_text(encoding="ascii") if os.path.lexists(path) else ""
    except UnicodeDecodeError:
        return ""


def _has_entries(path: Path) -> bool:
    return len(_text(path).splitlines()) > _EMPTY_LINES
