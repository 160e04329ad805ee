"""The keys of the fleet's VPN: an authority, the certificates it issues, their revocation, and the journal of it all.

What is there is read here, and begun; `vpn.signing` changes it. Nothing is printed, sent anywhere, or taken from a
clock: moments and passphrases are given.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from bedplate.errors import InputError
from bedplate.hold import held
from bedplate.writer import told_plainly, write_together, write_whole
from vpn.authority import (
    LIFE,
    Authority,
    Freshness,
    Level,
    Reason,
    Revocation,
    RootList,
    authority_faults,
    authority_under,
    end_of,
    freshness,
    is_signed_by,
    list_faults,
    list_text,
    new_authority,
    new_root,
    number_of,
    read_lists,
    signed_list,
    twin_of,
)
from vpn.certificates import (
    Bundle,
    Issuer,
    Passphrase,
    certificate_text,
    digest,
    key_text,
    lock_of,
    new_server_key,
    parse_bundle,
    unlocked,
)
from vpn.journal import Begun, DamagedError, Journal, Listed, Roll, new_journal, parse_journal, roll_of

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


AUTHORITY, TLS_CRYPT = "authority", "tls-crypt-v2"
# What the journal calls the store that is a folder.
FOLDER = "folder"
_PRIVATE = 0o600
_PRIVATE_FOLDER = 0o700
_OTHERS = 0o077


class KeyStore(Protocol):
    """Texts by name; what is written is there, whole, when the call returns."""

    def read(self, name: str) -> str | None:
        """Return a text, or None where there is none of that name."""

    def write(self, texts: Mapping[str, str]) -> None:
        """Keep texts, each in place of what had its name."""


@dataclass(frozen=True, slots=True)
class FolderKeys:
    """A file for each name, in a folder that is its owner's alone."""

    folder: Path

    def read(self, name: str) -> str | None:
        """Return a text; MachineError if it may not be read, InputError if others may read or write it."""
        path = self._path(name)
        if not os.path.lexists(path):
            return None
        if path.is_file() and path.stat().st_mode & _OTHERS:
            raise InputError(
                "others may read or write this private key", where=str(path), fix=f"chmod 600 {shlex.quote(str(path))}"
            )
        with told_plainly(path, "read"):
            return path.read_text(encoding="ascii")

    def write(self, texts: Mapping[str, str]) -> None:
        """Keep texts in files of 0600, which they are from their first byte on."""
        with told_plainly(self.folder):
            self.folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        write_together({self._path(name): text.encode() for name, text in texts.items()}, _PRIVATE)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.pem"


# A folder that is committed leaves out what is secret, and what lasts a moment.
_IGNORED = "keys/\n.*.held\n.*.tmp.*\n"
Stores = Callable[[Begun], KeyStore]
FIRST_ROOT_LIST = RootList(1, ())


@dataclass(frozen=True, slots=True)
class Pki:
    """What a fleet's folder holds at one moment."""

    folder: PkiFolder
    store: KeyStore
    authority: Authority
    journal: Journal
    roll: Roll


def begin(  # noqa: PLR0913  all that an authority is made of
    folder: PkiFolder,
    begun: Begun,
    store: KeyStore,
    *,
    lock: bytes | None = None,
    root: Issuer | None = None,
    root_list: RootList = FIRST_ROOT_LIST,
) -> None:
    """Make a fleet's authority and its first list, under a root if one is given; fill in the digests of `begun`.

    authority.crt is written last: a killed run has begun nothing. InputError if the folder holds an authority.
    """
    folder.make()
    with held(folder.journal):
        folder.check_unused()
        _check_free(begun, store)
        own = authority_under(root, begun.fleet, begun.at) if root else new_authority(begun.fleet, begun.at)
        authority = Authority(own.certificate, root.certificate if root else None)
        server_key = new_server_key()
        begun = replace(_named(begun, authority), tls_crypt=digest(server_key))
        store.write({AUTHORITY: key_text(own.key, lock), TLS_CRYPT: server_key})
        if root:
            folder.write(_root_texts(folder, own, root, root_list, begun))
        folder.write(_first_texts(folder, own, begun))
        folder.write({folder.authority: authority.chain})


def open_pki(folder: PkiFolder, fleet: str, stores: Stores) -> Pki:
    """Return what the folder holds; NoAuthority, DamagedJournal, or InputError where it is another fleet's."""
    authority = read_authority(folder)
    journal = read_journal(folder, public_key(authority))
    begun = journal.begun
    if begun.fleet != fleet:
        raise InputError(
            f"{folder.path.name} belongs to another fleet: {begun.fleet}",
            where=str(folder.path),
            fix="put the fleet's own folder beside the fleet file",
        )
    if begun != _named(begun, authority):
        raise InputError(
            "authority.crt does not match the first entry of the journal",
            where=str(folder.authority),
            fix="restore authority.crt as `bedplate vpn init` wrote it, from the first commit of the folder",
        )
    return Pki(folder, stores(begun), authority, journal, roll_of(journal))


def reopened(pki: Pki) -> Pki:
    """Return what the folder holds by now; the same value where nobody has written the journal since."""
    if read_authority(pki.folder) == pki.authority and is_unchanged(pki.folder, pki.journal):
        return pki
    return open_pki(pki.folder, pki.journal.begun.fleet, lambda _: pki.store)


def opened_issuer(pki: Pki, passphrase: Passphrase) -> tuple[Issuer, bytes | None]:
    """Return the authority with its key, and the passphrase that locks it; InputError where they do not fit."""
    text = pki.store.read(AUTHORITY)
    if text is None:
        fix = "sign where it is kept, or put it back; without it only a new authority helps"
        raise InputError("the authority's private key is not here", where=str(pki.folder.path), fix=fix)
    lock = lock_of(text, passphrase)
    key = unlocked(text, lock, "the authority's private key")
    if key.public_key() != public_key(pki.authority):
        raise InputError(
            "the private key is of another authority", fix="put back the one that belongs to authority.crt"
        )
    return Issuer(pki.authority.certificate, key), lock


def bundle_of(pki: Pki, name: str, passphrase: Passphrase) -> Bundle:
    """Return what a laptop or gateway proves itself by, its key unlocked; InputError where the store has none."""
    text = pki.store.read(name)
    if text is None:
        raise InputError(
            f"there is no key of {name}", fix=f"`bedplate vpn renew` makes one; {name} may have to be added"
        )
    bundle = parse_bundle(text)
    key = unlocked(bundle.key, lock_of(bundle.key, passphrase), f"the private key of {name}")
    return Bundle(bundle.certificate, key_text(key), bundle.tls_crypt)


def public_key(authority: Authority) -> ec.EllipticCurvePublicKey:
    """Return the key that an authority's signatures are checked by; InputError where it is of another kind."""
    key = authority.certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError("authority.crt has no key on an elliptic curve", fix="take back the one that is committed")
    return key


def _check_free(begun: Begun, store: KeyStore) -> None:
    """Raise InputError where the account keeps an authority that this folder knows nothing of."""
    if begun.keys != FOLDER and store.read(AUTHORITY) is not None:
        raise InputError(
            f"the account keeps an authority of {begun.fleet} already",
            fix="put the fleet.pki it belongs to beside the fleet file; only if that is lost, delete the key in AWS",
        )


def _named(begun: Begun, authority: Authority) -> Begun:
    root = _digest(authority.root) if authority.root else ""
    return replace(begun, authority=_digest(authority.certificate), root=root)


def _digest(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(SHA256()).hex()


def _root_texts(folder: PkiFolder, own: Issuer, root: Issuer, first: RootList, begun: Begun) -> dict[Path, str]:
    """Return the files that only an authority under a root has; the root's list lasts as long as the authority."""
    made = signed_list(root, first.revoked, first.number, begun.at, LIFE)
    twin = twin_of(own, begun.fleet, begun.at)
    return {folder.twin: certificate_text(twin), folder.root_list: list_text(made)}


def _first_texts(folder: PkiFolder, own: Issuer, begun: Begun) -> dict[Path, str]:
    """Return the files of an authority that has issued nothing."""
    revoked = signed_list(own, (), 1, begun.at)
    journal = new_journal(begun).with_entries((Listed(begun.at, 1, end_of(revoked)),)).text(own.key)
    kept = {folder.path / ".gitignore": _IGNORED, folder.lists: list_text(revoked)}
    return {**kept, folder.copy: journal, folder.journal: journal}


def read_list(pki: Pki) -> x509.CertificateRevocationList | None:
    """Return the authority's list, whatever it is worth; None where none can be read."""
    try:
        return read_lists(_lists_text(pki.folder.lists))[0]
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
    found = read_lists(_lists_text(pki.folder.lists))[0]
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
        lists = read_lists(_lists_text(file))
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


def _lists_text(path: Path) -> str:
    with told_plainly(path, "read"):
        return path.read_text(encoding="ascii", errors="replace") if os.path.lexists(path) else ""


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
