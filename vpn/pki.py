"""The keys of the fleet's VPN: an authority, the certificates it issues, their revocation, and the journal of it all.

What is there is read here, and begun; `vpn.signing` changes it. Nothing is printed, sent anywhere, or taken from a
clock: moments and passphrases are given.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from bedplate.errors import InputError
from bedplate.hold import held
from vpn.authority import LIFE, Authority, authority_under, new_authority, twin_of
from vpn.bundle import Bundle, parse_bundle
from vpn.certificate import Issuer, certificate_text, key_text
from vpn.entry import Begun, Listed
from vpn.journal import Journal, new_journal
from vpn.key_store import AUTHORITY, FOLDER, TLS_CRYPT, KeyStore
from vpn.passphrase import Passphrase, lock_of, unlocked
from vpn.pki_folder import PkiFolder, is_unchanged, read_authority, read_journal
from vpn.revocation import RootList, end_of, list_text, signed_list
from vpn.roll import Roll, roll_of
from vpn.tls_crypt import digest, new_server_key

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
