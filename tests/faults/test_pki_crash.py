"""Changes of the VPN's keys, killed at every call that touches the disk: old or new, whole, and nobody else's."""

import shutil
import sys
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from bedplate.errors import InputError
from tests.faults.pki_child import LATER, MOMENT, PAIRS, change, root_of
from tests.testlab.keys.authority import added, begun_in, pki_in, unasked
from tests.testlab.run import Point, crash_points, die_at, need_program
from vpn.certificates import parse_bundle
from vpn.peers import kept_keys, make_keys
from vpn.pki import AUTHORITY, TLS_CRYPT, NoAuthority, PkiFolder, bundle_of, deployable_lists, read_root, write_new_root
from vpn.signing import relist

CHILD = Path(__file__).with_name("pki_child.py")
# Between two of these the disk holds the same: what else a program calls needs no death of its own.
TOUCHING = {"mkdir", "write", "pwrite64", "fsync", "rename", "unlink", "ftruncate"}
SECRET = ("PRIVATE KEY", "tls-crypt-v2")
CHANGES = ["begin", "add", "renew", "revoke", "relist", "make keys"]


def command(what: str, folder: PkiFolder) -> list[str]:
    """Return the command that makes a change."""
    return [sys.executable, "-B", str(CHILD), what, str(folder.path)]


def seeded(root: Path, what: str) -> PkiFolder:
    """Return a new folder in which a change can be made: one laptop has a certificate, but where all is to begin."""
    root.mkdir()
    if what == "begin":
        return PkiFolder(root / "fleet.pki")
    folder = begun_in(root, MOMENT)
    added(folder, "ada", now=MOMENT)
    if what == "make keys":
        make_keys(pki_in(folder), PAIRS[:1], unasked)
    return folder


def copied(folder: PkiFolder, root: Path) -> PkiFolder:
    """Return a copy of a folder, with its modes."""
    root.mkdir()
    if folder.path.exists():
        shutil.copytree(folder.path, root / "fleet.pki")
    return PkiFolder(root / "fleet.pki")


def damage(folder: PkiFolder, old: PkiFolder) -> set[str]:
    """Return what is wrong with a folder in which a change was killed, and with what the next change makes of it."""
    found = {f"loose {file.name}" for file in folder.path.rglob("*") if file.is_file() and _is_loose(file)}
    try:
        journal, before = pki_in(folder).journal.lines, _lines(old)
        found |= {"torn journal"} if journal[: len(before)] != before else set()
        found |= {f"torn or unknown {file.name}" for file in _certified(folder) if not _is_known(file, folder)}
        found |= {"tunnel's key lost"} if kept_keys(pki_in(old), PAIRS, unasked).keys() - _opened(folder) else set()
    except NoAuthority:
        found |= {"authority lost"} if old.authority.exists() else set()
    return found


def _lines(folder: PkiFolder) -> tuple[str, ...]:
    return pki_in(folder).journal.lines if folder.authority.exists() else ()


def _is_loose(file: Path) -> bool:
    return bool(file.stat().st_mode & 0o077) and any(word.encode() in file.read_bytes() for word in SECRET)


def _opened(folder: PkiFolder) -> AbstractSet[frozenset[str]]:
    """Return whose tunnels have a key that is whole; InputError where one is torn."""
    return kept_keys(pki_in(folder), PAIRS, unasked).keys()


def _certified(folder: PkiFolder) -> list[Path]:
    others = (AUTHORITY, TLS_CRYPT)
    return [each for each in folder.keys.glob("*.pem") if each.stem not in others and each.stem[:7] != "tunnel."]


def _is_known(file: Path, folder: PkiFolder) -> bool:
    """Tell whether a certificate is whole and the journal tells of it: of another, nobody would know to revoke it."""
    bundle = parse_bundle(file.read_text())
    return x509.load_pem_x509_certificate(bundle.certificate.encode()).serial_number in pki_in(folder).roll.issued


def unmended(what: str, folder: PkiFolder) -> set[str]:
    """Return what is wrong after the same change was made once more, and all is asked for that a gateway is given."""
    with suppress(InputError):  # it was done before the death: nothing is left to do
        change(what, folder)
    now = LATER if what == "relist" else MOMENT
    relist(pki_in(folder), now, unasked)
    pki = pki_in(folder)
    serials = [line.partition('"serial":"')[2].partition('"')[0] for line in pki.journal.lines if '"issued"' in line]
    for name in pki.roll.holders():
        bundle_of(pki, name, unasked)
    assert deployable_lists(pki, now)
    assert what != "make keys" or _opened(folder) == set(PAIRS)
    found = {"serial given twice"} if len(set(serials)) != len(serials) else set()
    found |= {"copy behind"} if folder.copy.read_bytes() != folder.journal.read_bytes() else set()
    return found | ({"left over"} if [file for file in folder.path.rglob("*") if ".tmp." in file.name] else set())


def unmended_root(folder: PkiFolder) -> set[str]:
    """Return what is wrong where a new root was killed, and after its operator has named the same file once more."""
    file = root_of(folder)
    found = {f"loose {each.name}" for each in file.parent.iterdir() if _is_loose(each)}
    if not file.exists():
        write_new_root(file, "lab", folder, MOMENT, None)
    read_root(file, MOMENT, unasked)
    return found | ({"left over"} if len(list(file.parent.iterdir())) > len(("key", "certificate")) else set())


def killed_root(root: Path, point: Point) -> set[str]:
    """Return what is wrong after a new root died at one point."""
    folder = rootless(root / str(point))
    die_at(point, command("root", folder))
    return unmended_root(folder)


def rootless(root: Path) -> PkiFolder:
    """Return a folder that nothing was begun in, and make the one that is to hold its root's key."""
    folder = PkiFolder(root / "fleet.pki")
    root_of(folder).parent.mkdir(parents=True)
    return folder


def died(what: str, root: Path, old: PkiFolder, point: Point) -> set[str]:
    """Return what is wrong after a death at one point."""
    folder = copied(old, root / str(point))
    die_at(point, command(what, folder))
    return damage(folder, old) or unmended(what, folder)


@pytest.mark.parametrize("what", CHANGES)
def test_a_death_at_any_write_leaves_old_or_new(what: str, tmp_path: Path) -> None:
    """Keys are 0600 at each instant; the same command, run again, ends well, and no serial is given twice."""
    need_program("strace")
    old = seeded(tmp_path / "old", what)
    traced = crash_points(command(what, copied(old, tmp_path / "traced")), tmp_path / "trace")
    points = [point for point in traced if point.call in TOUCHING]

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(points, pool.map(partial(died, what, tmp_path, old), points), strict=True))

    assert {"write", "fsync", "rename"} <= {point.call for point in points}
    assert {str(point): wrong for point, wrong in found.items() if wrong} == {}


def test_a_root_that_died_as_it_was_made_is_made_once_more(tmp_path: Path) -> None:
    """Its key is 0600 at each instant, and at no point is one left whose certificate is nowhere."""
    need_program("strace")
    traced = crash_points(command("root", rootless(tmp_path / "traced")), tmp_path / "trace")
    points = [point for point in traced if point.call in TOUCHING]

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(points, pool.map(partial(killed_root, tmp_path), points), strict=True))

    assert {"write", "fsync", "rename"} <= {point.call for point in points}
    assert {str(point): wrong for point, wrong in found.items() if wrong} == {}


def test_keys_that_others_may_read_are_found_out(tmp_path: Path) -> None:
    """The control: a key whose mode is loose, and one that is torn, are damage."""
    old = seeded(tmp_path / "old", "add")
    loose, torn = copied(old, tmp_path / "loose"), copied(old, tmp_path / "torn")
    (loose.keys / "ada.laptop.pem").chmod(0o644)
    torn.journal.write_text(torn.journal.read_text()[:-9])

    assert damage(loose, old) == {"loose ada.laptop.pem"}
    with pytest.raises(InputError):
        damage(torn, old)
