"""The folder fleet.pki with the keys of the fleet's VPN: authority, audit log, revocation lists and key store.

This module creates the folder and reads it; `vpn.signing` issues and revokes. It prints nothing and reads no clock:
callers pass times and passphrases.
"""

import os
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
from bedplate.files import check_private, held, os_errors_as_machine_errors, write_together, write_whole
from bedplate.rules import Level
from vpn.audit_log import (
    AuditLog,
    Begun,
    CertificateIndex,
    DamagedError,
    Listed,
    index_of,
    new_audit_log,
    parse_audit_log,
)
from vpn.authority import (
    LIFE,
    Authority,
    Freshness,
    Reason,
    Revocation,
    RootCrl,
    authority_under,
    crl_end,
    crl_findings,
    crl_number,
    crl_text,
    freshness,
    is_signed_by,
    new_authority,
    new_root,
    parse_crls,
    root_findings,
    self_signed_twin,
    sign_crl,
)
from vpn.certificates import (
    Bundle,
    Issuer,
    Passphrase,
    certificate_text,
    digest,
    key_text,
    load_key,
    new_server_key,
    parse_bundle,
    passphrase_for,
)

_NAME = "fleet.pki"
_UNVERIFIED = (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm)
# The lines of an audit log before anything is issued: the authority, the first revocation list, the signature.
_EMPTY_LINES = 3


class NoAuthority(InputError):
    """The fleet's VPN has no authority yet."""


class DamagedAuditLog(InputError):
    """The audit log is damaged. It is not changed, and nothing is signed."""


@dataclass(frozen=True, slots=True)
class PkiFolder:
    """The paths of the files in fleet.pki."""

    path: Path

    @property
    def journal(self) -> Path:
        """The audit log."""
        return self.path / "journal"

    @property
    def copy(self) -> Path:
        """The copy of the audit log, for recovery."""
        return self.path / "journal.copy"

    @property
    def authority(self) -> Path:
        """The issuing certificate, followed by its root if it has one."""
        return self.path / "authority.crt"

    @property
    def twin(self) -> Path:
        """The self-signed twin of an issuing certificate under a root."""
        return self.path / "trusted.crt"

    @property
    def lists(self) -> Path:
        """The authority's revocation list."""
        return self.path / "crl.pem"

    @property
    def root_list(self) -> Path:
        """The root's revocation list, signed together with the authority."""
        return root_crl_beside(self.authority)

    @property
    def keys(self) -> Path:
        """The folder of private keys."""
        return self.path / "keys"

    def write(self, texts: Mapping[Path, str]) -> None:
        """Write files; all are complete before the first is renamed to its path."""
        write_together({path: text.encode() for path, text in texts.items()})

    def create(self) -> None:
        """Create the folder, with the list of files that are not committed, if they do not exist."""
        with os_errors_as_machine_errors(self.path):
            self.path.mkdir(exist_ok=True)
        if not os.path.lexists(ignored := self.path / ".gitignore"):
            write_whole(ignored, _IGNORED.encode())

    def check_unused(self) -> None:
        """Raise InputError if the folder has an authority already."""
        if os.path.lexists(self.authority) or _has_entries(self.journal) or _has_entries(self.copy):
            raise InputError(
                f"{self.path.name} already has an authority",
                where=str(self.path),
                fix="keep it, because all profiles depend on it; to start with a new authority, rename the folder",
            )


def folder_of(fleet_file: Path) -> PkiFolder:
    """Return the folder of a fleet file, in the same directory."""
    return PkiFolder(fleet_file.with_name(_NAME))


def read_authority(folder: PkiFolder) -> Authority:
    """Return the authority; raise NoAuthority without one, InputError if a signature is not valid."""
    if not os.path.lexists(folder.authority):
        raise NoAuthority(
            "the fleet's VPN has no authority yet", where=str(folder.path), fix="`bedplate vpn init` creates one"
        )
    authority = read_chain(folder.authority)
    return authority if authority.root is None else replace(authority, twin=_read_twin(folder.twin, authority))


def read_chain(file: Path) -> Authority:
    """Return the authority of an authority.crt without its twin; raise InputError if a signature is not valid."""
    try:
        issuing, *roots = _read_certificates(file)
        (signer,) = roots or [issuing]
        issuing.verify_directly_issued_by(signer)
    except _UNVERIFIED:
        raise InputError(
            f"{file.name} must hold one self-signed certificate, or one certificate and the root that signed it",
            where=str(file),
            fix="restore it from the first commit of the folder",
        ) from None
    return Authority(issuing, roots[0] if roots else None)


def _read_certificates(file: Path) -> list[x509.Certificate]:
    """Return the certificates of a file; raise ValueError if it has any other text, which other programs may read."""
    text = _read_text(file)
    certificates = x509.load_pem_x509_certificates(text.encode())
    if "".join(map(certificate_text, certificates)) != text:
        raise ValueError("text besides the certificates")
    return certificates


def root_crl_beside(authority: Path) -> Path:
    """Return the path of the root's revocation list for an authority.crt."""
    return authority.with_name("root.crl.pem")


def _read_twin(file: Path, authority: Authority) -> x509.Certificate:
    """Return the twin; only the owner of the issuing key can sign one."""
    issuing = authority.certificate
    try:
        (twin,) = _read_certificates(file)
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


def read_audit_log(folder: PkiFolder, key: ec.EllipticCurvePublicKey) -> AuditLog:
    """Return the audit log; raise DamagedAuditLog, with the way to recover, if it is damaged or older than its copy."""
    # The copy is written last. Reading it first never finds it newer than a log that is being written.
    copy_text, text = _read_text(folder.copy), _read_text(folder.journal)
    try:
        log = parse_audit_log(text, key)
    except DamagedError as error:
        raise _damaged(folder, str(error), _parse_or_none(copy_text, key)) from None
    copy = None if text == copy_text else _parse_or_none(copy_text, key)
    if copy is not None and copy.lines != log.lines[: len(copy.lines)]:
        if copy.lines[: len(log.lines)] != log.lines:
            raise _damaged(folder, "journal and journal.copy have diverged", None)
        raise _damaged(folder, "journal.copy is newer, so journal was replaced by an older version", copy)
    return log


def is_unchanged(folder: PkiFolder, log: AuditLog) -> bool:
    """Return whether the files of the audit log still have the text that was read."""
    return _read_text(folder.journal) == log.sealed == _read_text(folder.copy)


def _parse_or_none(text: str, key: ec.EllipticCurvePublicKey) -> AuditLog | None:
    try:
        return parse_audit_log(text, key)
    except DamagedError:
        return None


def _damaged(folder: PkiFolder, why: str, copy: AuditLog | None) -> DamagedAuditLog:
    fix = "restore journal and journal.copy from the last commit or a backup"
    if copy is not None:
        state = f"{folder.copy} is intact: {len(copy.lines)} lines up to {copy.entries[-1].at:%Y-%m-%d %H:%M} UTC"
        fix = f"{state}. Run `mv journal journal.damaged && cp journal.copy journal` in {folder.path}"
    return DamagedAuditLog(f"the VPN's audit log is damaged: {why}", where=str(folder.journal), fix=fix)


def _read_text(path: Path) -> str:
    """Return a file's text, empty if it is absent. Damaged text stays: whoever parses it reports the damage."""
    with os_errors_as_machine_errors(path, "read"):
        return path.read_text(encoding="ascii", errors="replace") if os.path.lexists(path) else ""


def _has_entries(path: Path) -> bool:
    return len(_read_text(path).splitlines()) > _EMPTY_LINES


AUTHORITY, TLS_CRYPT = "authority", "tls-crypt-v2"
# The kind of a key store in a folder, as the audit log names it.
FOLDER = "folder"
_PRIVATE = 0o600
_PRIVATE_FOLDER = 0o700


class KeyStore(Protocol):
    """Private keys by name. A key is stored completely when `write` returns."""

    def read(self, name: str) -> str | None:
        """Return a key, or None if the store does not have it."""

    def write(self, texts: Mapping[str, str]) -> None:
        """Store keys; each replaces the former key of its name."""


@dataclass(frozen=True, slots=True)
class FolderKeys:
    """A key store with one file for each key, in a folder that only its owner can read."""

    folder: Path

    def read(self, name: str) -> str | None:
        """Return a key; raise MachineError if it cannot be read, InputError if other users can access the file."""
        path = self._path(name)
        if not os.path.lexists(path):
            return None
        check_private(path, "this private key")
        return _read_text(path)

    def write(self, texts: Mapping[str, str]) -> None:
        """Store keys in files that are created with mode 0600."""
        with os_errors_as_machine_errors(self.folder):
            self.folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        write_together({self._path(name): text.encode() for name, text in texts.items()}, _PRIVATE)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.pem"


# Private keys, locks and temporary files are not committed.
_IGNORED = "keys/\n.*.held\n.*.tmp.*\n"
Stores = Callable[[Begun], KeyStore]
FIRST_ROOT_CRL = RootCrl(1, ())


@dataclass(frozen=True, slots=True)
class Pki:
    """The content of a fleet's folder at one moment."""

    folder: PkiFolder
    store: KeyStore
    authority: Authority
    journal: AuditLog
    certificates: CertificateIndex


def create_authority(  # noqa: PLR0913  all that an authority is made of
    folder: PkiFolder,
    begun: Begun,
    store: KeyStore,
    *,
    passphrase: bytes | None = None,
    root: Issuer | None = None,
    root_list: RootCrl = FIRST_ROOT_CRL,
) -> None:
    """Create a fleet's authority and first revocation list, under a root if there is one; set the digests of `begun`.

    `passphrase` encrypts the private keys. authority.crt is written last, so that a killed run can be
    repeated; with keys in AWS the stored ones must be deleted first. Raise InputError if the folder has an authority.
    """
    folder.create()
    with held(folder.journal):
        folder.check_unused()
        _check_store_unused(begun, store)
        issuer = authority_under(root, begun.fleet, begun.at) if root else new_authority(begun.fleet, begun.at)
        authority = Authority(issuer.certificate, root.certificate if root else None)
        server_key = new_server_key()
        begun = replace(_with_digests(begun, authority), tls_crypt=digest(server_key))
        store.write({AUTHORITY: key_text(issuer.key, passphrase), TLS_CRYPT: server_key})
        if root:
            crl = sign_crl(root, root_list.revoked, root_list.number, begun.at, LIFE)
            begun = replace(begun, root_list=_list_identity(crl))
            folder.write(_root_files(folder, issuer, crl, begun))
        folder.write(_first_files(folder, issuer, begun))
        folder.write({folder.authority: authority.chain})


def open_pki(folder: PkiFolder, fleet: str, stores: Stores) -> Pki:
    """Return the folder's content; raise NoAuthority, DamagedAuditLog, or InputError for another fleet's folder."""
    authority = read_authority(folder)
    log = read_audit_log(folder, public_key(authority))
    begun = log.begun
    if begun.fleet != fleet:
        raise InputError(
            f"{folder.path.name} belongs to another fleet: {begun.fleet}",
            where=str(folder.path),
            fix=f"put the folder of {fleet} next to the fleet file",
        )
    if begun != _with_digests(begun, authority):
        raise InputError(
            "authority.crt does not match the first entry of the audit log",
            where=str(folder.authority),
            fix="restore authority.crt as `bedplate vpn init` wrote it, from the first commit of the folder",
        )
    return Pki(folder, stores(begun), authority, log, index_of(log))


def reload_pki(pki: Pki) -> Pki:
    """Return the present content of the folder: the same value if nothing was written since."""
    if read_authority(pki.folder) == pki.authority and is_unchanged(pki.folder, pki.journal):
        return pki
    return open_pki(pki.folder, pki.journal.begun.fleet, lambda _: pki.store)


def open_issuer(pki: Pki, passphrase: Passphrase) -> tuple[Issuer, bytes | None]:
    """Return the authority with its private key, and the passphrase of the key; raise InputError if it is unusable."""
    text = pki.store.read(AUTHORITY)
    if text is None:
        raise InputError(
            "the authority's private key is missing",
            where=str(pki.folder.path),
            fix="sign on the machine that has it, or restore it; if it is lost, create a new authority",
        )
    password = passphrase_for(text, passphrase)
    key = load_key(text, password, "the authority's private key")
    if key.public_key() != public_key(pki.authority):
        raise InputError("the private key does not match authority.crt", fix="restore the key of authority.crt")
    return Issuer(pki.authority.certificate, key), password


def bundle_of(pki: Pki, name: str, passphrase: Passphrase) -> Bundle:
    """Return the certificate and decrypted keys of a laptop or gateway; raise InputError if they are missing."""
    text = pki.store.read(name)
    if text is None:
        raise InputError(
            f"no private key of {name}", fix=f"`bedplate vpn renew` makes one; add {name} first if it is new"
        )
    bundle = parse_bundle(text)
    key = load_key(bundle.key, passphrase_for(bundle.key, passphrase), f"the private key of {name}")
    return Bundle(bundle.certificate, key_text(key), bundle.tls_crypt)


def public_key(authority: Authority) -> ec.EllipticCurvePublicKey:
    """Return the authority's public key; raise InputError if it is not an elliptic curve key."""
    key = authority.certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(
            "the key of authority.crt is not an elliptic curve key",
            fix="restore it from the first commit of the folder",
        )
    return key


def _check_store_unused(begun: Begun, store: KeyStore) -> None:
    """Raise InputError if the AWS account has the key of an authority that is not in this folder."""
    if begun.keys != FOLDER and store.read(AUTHORITY) is not None:
        raise InputError(
            f"the AWS account already has an authority of {begun.fleet}",
            fix="put its fleet.pki next to the fleet file; only if that is lost, delete the key in AWS",
        )


def _with_digests(begun: Begun, authority: Authority) -> Begun:
    root = _fingerprint(authority.root) if authority.root else ""
    return replace(begun, authority=_fingerprint(authority.certificate), root=root)


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(SHA256()).hex()


def _root_files(
    folder: PkiFolder, issuer: Issuer, crl: x509.CertificateRevocationList, begun: Begun
) -> dict[Path, str]:
    """Return the files of an authority under a root; the root's list is valid as long as the authority."""
    twin = self_signed_twin(issuer, begun.fleet, begun.at)
    return {folder.twin: certificate_text(twin), folder.root_list: crl_text(crl)}


def _list_identity(crl: x509.CertificateRevocationList) -> str:
    return f"{crl_number(crl)} {digest(crl_text(crl))}"


def _first_files(folder: PkiFolder, issuer: Issuer, begun: Begun) -> dict[Path, str]:
    """Return the files of an authority that has issued nothing."""
    crl = sign_crl(issuer, (), 1, begun.at)
    log = new_audit_log(begun).with_entries((Listed(begun.at, 1, crl_end(crl)),)).text(issuer.key)
    others = {folder.path / ".gitignore": _IGNORED, folder.lists: crl_text(crl)}
    return {**others, folder.copy: log, folder.journal: log}


def read_crl(pki: Pki) -> x509.CertificateRevocationList | None:
    """Return the authority's revocation list without a check, or None if it cannot be read."""
    try:
        return parse_crls(_read_text(pki.folder.lists))[0]
    except InputError:
        return None


def current_crl(pki: Pki, now: datetime) -> x509.CertificateRevocationList | None:
    """Return the authority's revocation list if it is the newest one and not due for renewal."""
    crl = read_crl(pki)
    if crl is None:
        return None
    is_newest = pki.certificates.listed is not None and crl_number(crl) == pki.certificates.listed.number
    is_signed = is_newest and crl.is_signature_valid(public_key(pki.authority))
    return crl if is_signed and freshness(crl, now) is Freshness.FRESH else None


def deployable_crl(pki: Pki, now: datetime) -> str:
    """Return the authority's revocation list in PEM; raise InputError if gateways must not load it."""
    file = pki.folder.lists
    crl = parse_crls(_read_text(file))[0]
    if pki.certificates.listed is None or crl_number(crl) != pki.certificates.listed.number:
        raise InputError("crl.pem is not the newest revocation list", where=str(file), fix="`bedplate vpn sync`")
    findings = crl_findings(crl, pki.authority.certificate, now)
    if errors := [finding for finding in findings if finding.level is Level.ERROR]:
        raise InputError(f"crl.pem {errors[0].message}", where=str(file), fix="`bedplate vpn sync`")
    return crl_text(crl)


def read_root_crl(file: Path, root: x509.Certificate) -> x509.CertificateRevocationList:
    """Return the list of a root.crl.pem; raise InputError unless the file has one list that the root signed."""
    try:
        crls = parse_crls(_read_text(file))
    except InputError:
        crls = ()
    if len(crls) != 1 or not is_signed_by(crls[0], root):
        raise InputError(
            f"{file.name} must hold one revocation list, signed by the root in authority.crt",
            where=str(file),
            fix="restore it from the last commit",
        )
    return crls[0]


def _check_list_identity(crl: x509.CertificateRevocationList, file: Path, begun: Begun) -> None:
    """Raise InputError for an older or newer list of the root: the older one lacks a revoked authority."""
    if begun.root_list and begun.root_list != _list_identity(crl):
        what = f"{file.name} has number {crl_number(crl)}, the journal names another list {begun.root_list.split()[0]}"
        raise InputError(what, where=str(file), fix="restore it from the last commit, and find out who replaced it")


def root_crl_texts(pki: Pki, now: datetime) -> tuple[str, ...]:
    """Return the root's list in PEM, nothing without a root; raise InputError if it is damaged, another or expired."""
    if pki.authority.root is None:
        return ()
    crl = read_root_crl(pki.folder.root_list, pki.authority.root)
    _check_list_identity(crl, pki.folder.root_list, pki.journal.begun)
    if crl_end(crl) <= now:
        raise InputError(
            f"root.crl.pem expired on {crl_end(crl):%Y-%m-%d}",
            where=str(pki.folder.root_list),
            fix="rename fleet.pki, then run `bedplate vpn init --root KEY --replaces RENAMED/authority.crt`",
        )
    return (crl_text(crl),)


def write_new_root(file: Path, fleet: str, folder: PkiFolder, now: datetime, passphrase: bytes | None) -> Issuer:
    """Create a root, with its key in `file` and its certificate in `file`.crt; raise InputError near the fleet file.

    The key is written last: a run that was killed leaves no key without a certificate.
    """
    if file.resolve().is_relative_to(folder.path.resolve().parent):
        raise InputError(
            "the root's key must not be stored next to the fleet file",
            where=str(file),
            fix="write --root with a file on a removable disk, or leave out --root",
        )
    root = new_root(fleet, now)
    write_whole(root_certificate_file(file), certificate_text(root.certificate).encode())
    write_whole(file, key_text(root.key, passphrase).encode(), _PRIVATE)
    return root


def read_root(file: Path, now: datetime, passphrase: Passphrase) -> Issuer:
    """Return the root of a key file; raise InputError, with all reasons, if it cannot sign an authority."""
    certificate_file = root_certificate_file(file)
    with os_errors_as_machine_errors(file, "read"):
        text = file.read_text(encoding="ascii", errors="replace")
    key = load_key(text, passphrase_for(text, passphrase), f"the root's key in {file.name}")
    try:
        root = Issuer(x509.load_pem_x509_certificate(_read_text(certificate_file).encode()), key)
    except ValueError:
        fix = f"put the certificate of {file.name} in {certificate_file.name}"
        raise InputError("cannot read the root's certificate", where=str(certificate_file), fix=fix) from None
    if findings := root_findings(root, now):
        reasons = "; ".join(finding.message for finding in findings)
        fix = f"use the certificate that belongs to {file.name}"
        raise InputError(f"the root's certificate {reasons}", where=str(certificate_file), fix=fix)
    return root


def root_crl_replacing(file: Path, root: Issuer, now: datetime) -> RootCrl:
    """Return the root's next list, which also revokes the authority of an authority.crt.

    Raise InputError if another root signed that authority, or its journal names another list than root.crl.pem.
    """
    replaced = read_chain(file)
    if replaced.root != root.certificate:
        raise InputError(
            f"{file.name} was not signed by this root",
            where=str(file),
            fix="write --replaces with the authority.crt that this root signed",
        )
    last = read_root_crl(root_crl_beside(file), root.certificate)
    log = read_audit_log(PkiFolder(file.parent), public_key(replaced))
    _check_list_identity(last, root_crl_beside(file), log.begun)
    before = (Revocation(entry.serial_number, entry.revocation_date_utc, Reason.REPLACED) for entry in last)
    added = Revocation(replaced.certificate.serial_number, now, Reason.REPLACED)
    return RootCrl(crl_number(last) + 1, (*before, added))


def root_certificate_file(file: Path) -> Path:
    """Return the path of a root's certificate, next to its key."""
    return file.with_name(f"{file.name}.crt")
