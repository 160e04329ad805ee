"""Tests of certificate changes that are killed at each system call on the disk: the folder is old or new."""

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
from vpn.gateways import load_shared_keys, make_shared_keys
from vpn.pki import AUTHORITY, TLS_CRYPT, NoAuthority, PkiFolder, bundle_of, deployable_crl, read_root, write_new_root
from vpn.signing import renew_crl

CHILD = Path(__file__).with_name("pki_child.py")
# Only these system calls change the disk, so a crash at another call needs no test.
DISK_CALLS = {"mkdir", "write", "pwrite64", "fsync", "rename", "unlink", "ftruncate"}
SECRET = ("PRIVATE KEY", "tls-crypt-v2")
CHANGES, PUSHED = ["begin", "add", "renew", "revoke", "relist", "make keys"], {"add", "revoke"}


def command(name: str, folder: PkiFolder) -> list[str]:
    """Return the command that makes a change."""
    return [sys.executable, "-B", str(CHILD), name, str(folder.path)]


def seeded(root: Path, name: str) -> PkiFolder:
    """Return a new folder for a change: with one laptop certificate, or empty for `begin`."""
    root.mkdir()
    if name == "begin":
        return PkiFolder(root / "fleet.pki")
    folder = begun_in(root, MOMENT)
    added(folder, "ada", now=MOMENT)
    if name == "make keys":
        make_shared_keys(pki_in(folder), PAIRS[:1], unasked)
    return folder


def copied(folder: PkiFolder, root: Path) -> PkiFolder:
    """Return a copy of a folder, with its file modes."""
    root.mkdir()
    if folder.path.exists():
        shutil.copytree(folder.path, root / "fleet.pki")
    return PkiFolder(root / "fleet.pki")


def damage(folder: PkiFolder, old: PkiFolder) -> set[str]:
    """Return the damage in a folder after a change was killed, and the damage that the next change finds."""
    problems = {f"readable {file.name}" for file in folder.path.rglob("*") if file.is_file() and _is_readable(file)}
    try:
        journal, before = pki_in(folder).journal.lines, _lines(old)
        problems |= {"torn journal"} if journal[: len(before)] != before else set()
        problems |= {f"torn or unknown {file.name}" for file in _certified(folder) if not _is_known(file, folder)}
        problems |= (
            {"tunnel key lost"} if load_shared_keys(pki_in(old), PAIRS, unasked).keys() - _opened(folder) else set()
        )
    except NoAuthority:
        problems |= {"authority lost"} if old.authority.exists() else set()
    return problems


def _lines(folder: PkiFolder) -> tuple[str, ...]:
    return pki_in(folder).journal.lines if folder.authority.exists() else ()


def _is_readable(file: Path) -> bool:
    return bool(file.stat().st_mode & 0o077) and any(text.encode() in file.read_bytes() for text in SECRET)


def _opened(folder: PkiFolder) -> AbstractSet[frozenset[str]]:
    """Return the pairs whose tunnel keys are complete; raise InputError if one is damaged."""
    return load_shared_keys(pki_in(folder), PAIRS, unasked).keys()


def _certified(folder: PkiFolder) -> list[Path]:
    others = (AUTHORITY, TLS_CRYPT)
    return [file for file in folder.keys.glob("*.pem") if file.stem not in others and file.stem[:7] != "tunnel."]


def _is_known(file: Path, folder: PkiFolder) -> bool:
    """Return whether a certificate is complete and in the journal: others could not be revoked."""
    bundle = parse_bundle(file.read_text())
    return (
        x509.load_pem_x509_certificate(bundle.certificate.encode()).serial_number in pki_in(folder).certificates.issued
    )


def damage_after_retry(name: str, folder: PkiFolder) -> set[str]:
    """Return the damage after the same change was made again, and all files for gateways were read."""
    with suppress(InputError):  # the change was complete before the crash
        change(name, folder)
    now = LATER if name == "relist" else MOMENT
    renew_crl(pki_in(folder), now, unasked)
    pki = pki_in(folder)
    serials = [line.partition('"serial":"')[2].partition('"')[0] for line in pki.journal.lines if '"issued"' in line]
    for holder in pki.certificates.holders():
        bundle_of(pki, holder, unasked)
    assert deployable_crl(pki, now)
    assert name != "make keys" or _opened(folder) == set(PAIRS)
    problems = {"serial used twice"} if len(set(serials)) != len(serials) else set()
    problems |= {"journal copy out of date"} if folder.copy.read_bytes() != folder.journal.read_bytes() else set()
    return problems | (
        {"temporary file"} if [file for file in folder.path.rglob("*") if ".tmp." in file.name] else set()
    )


def root_damage(folder: PkiFolder) -> set[str]:
    """Return the damage after the creation of a root was killed, and made again with the same path."""
    file = root_of(folder)
    problems = {f"readable {other.name}" for other in file.parent.iterdir() if _is_readable(other)}
    if not file.exists():
        write_new_root(file, "lab", folder, MOMENT, None)
    read_root(file, MOMENT, unasked)
    return problems | ({"temporary file"} if len(list(file.parent.iterdir())) > len(("key", "certificate")) else set())


def killed_root(root: Path, point: Point) -> set[str]:
    """Return the damage after the creation of a root was killed at one point."""
    folder = rootless(root / str(point))
    die_at(point, command("root", folder))
    return root_damage(folder)


def rootless(root: Path) -> PkiFolder:
    """Return an empty folder, and create the folder for its root key."""
    folder = PkiFolder(root / "fleet.pki")
    root_of(folder).parent.mkdir(parents=True)
    return folder


def killed(name: str, root: Path, old: PkiFolder, point: Point) -> set[str]:
    """Return the damage after a change was killed at one point."""
    folder = copied(old, root / str(point))
    die_at(point, command(name, folder))
    return damage(folder, old) or damage_after_retry(name, folder)


@pytest.mark.parametrize(
    "name", [name if name in PUSHED else pytest.param(name, marks=pytest.mark.nightly) for name in CHANGES]
)
def test_a_crash_at_any_write_leaves_old_or_new(name: str, tmp_path: Path) -> None:
    """Keys always have mode 0600; the command succeeds when run again, and no serial is used twice."""
    need_program("strace")
    old = seeded(tmp_path / "old", name)
    traced = crash_points(command(name, copied(old, tmp_path / "traced")), tmp_path / "trace")
    points = [point for point in traced if point.call in DISK_CALLS]

    with ThreadPoolExecutor(2) as pool:
        problems = dict(zip(points, pool.map(partial(killed, name, tmp_path, old), points), strict=True))

    assert {"write", "fsync", "rename"} <= {point.call for point in points}
    assert {str(point): wrong for point, wrong in problems.items() if wrong} == {}


def test_a_root_can_be_created_again_after_a_crash(tmp_path: Path) -> None:
    """Its key always has mode 0600, and no key is left without its certificate."""
    need_program("strace")
    traced = crash_points(command("root", rootless(tmp_path / "traced")), tmp_path / "trace")
    points = [point for point in traced if point.call in DISK_CALLS]

    with ThreadPoolExecutor(2) as pool:
        problems = dict(zip(points, pool.map(partial(killed_root, tmp_path), points), strict=True))

    assert {"write", "fsync", "rename"} <= {point.call for point in points}
    assert {str(point): wrong for point, wrong in problems.items() if wrong} == {}


def test_readable_and_torn_files_are_found(tmp_path: Path) -> None:
    """The control case: a key with mode 0644 and a truncated journal are damage."""
    old = seeded(tmp_path / "old", "add")
    readable, torn = copied(old, tmp_path / "readable"), copied(old, tmp_path / "torn")
    (readable.keys / "ada.laptop.pem").chmod(0o644)
    torn.journal.write_text(torn.journal.read_text()[:-9])

    assert damage(readable, old) == {"readable ada.laptop.pem"}
    with pytest.raises(InputError):
        damage(torn, old)
