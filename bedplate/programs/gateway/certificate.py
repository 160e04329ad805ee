"""Certificates and revocation lists on a gateway: read and verified with openssl, staged and activated.

A new file is staged first: it is written beside the active file and verified. Activation renames it to the active name.
"""

import os
import pwd
import re
import shutil
import tempfile
import time
from calendar import timegm
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import strptime

from ..program import Result, replace, run, write_file
from .paths import GatewayPaths, RejectedError

_DATE = "%b %d %H:%M:%S %Y GMT"
_SERIAL = re.compile(r"^ +Serial Number: ([0-9A-F]+)$", re.MULTILINE)
_CRL_FIELDS = ("crlNumber=", "lastUpdate=", "nextUpdate=")


@dataclass(frozen=True)
class Crl:
    """A revocation list: its number, its validity in Unix time, and the revoked serials."""

    number: int
    begin: int
    end: int
    serials: frozenset[int]


# For a gateway without a list, or with a list of a former authority.
_NO_CRL = Crl(0, 0, 0, frozenset())


def certificate_end(file: Path) -> int:
    """Return the end of a certificate in Unix time."""
    return _parse_date(_field_value(_openssl("x509", "-in", str(file), "-noout", "-enddate")))


def crl_end(file: Path) -> int:
    """Return the end of a revocation list in Unix time."""
    return _parse_date(_field_value(_openssl("crl", "-in", str(file), "-noout", "-nextupdate")))


def crl_number(file: Path) -> int:
    """Return the number of a revocation list; each list has a greater number than the one before."""
    return int(_field_value(_openssl("crl", "-in", str(file), "-noout", "-crlnumber")), 16)


def read_crl(file: Path, authority: Path) -> Crl:
    """Return a revocation list; raise RejectedError if it is invalid or not signed by the authority."""
    options = ("-text", "-crlnumber", "-lastupdate", "-nextupdate", "-CAfile", str(authority))
    done = _run_openssl("crl", "-in", str(file), "-noout", *options)
    if b"verify OK" not in done.err:
        # Raises an error of its own for a file that openssl cannot read.
        _openssl("crl", "-in", str(file), "-noout")
        raise RejectedError("the revocation list is not signed by this gateway's authority")
    fields = dict(line.split("=", 1) for line in done.text.splitlines() if line.startswith(_CRL_FIELDS))
    serials = frozenset(int(serial, 16) for serial in _SERIAL.findall(done.text))
    begin, end = _parse_date(fields["lastUpdate"]), _parse_date(fields["nextUpdate"])
    return Crl(int(fields["crlNumber"], 16), begin, end, serials)


def check_identity(crl: Path, authority: Path, certificate: Path, key: Path) -> None:
    """Raise RejectedError for a revoked certificate, one of another authority, or a key of another certificate.

    `authority` must hold one certificate: daemons trust every certificate in this file.
    """
    if authority.read_text().count("-----BEGIN ") != 1:
        raise RejectedError("ca.crt must hold exactly one certificate, that of the authority")
    trusted = ("-CAfile", str(authority), "-no-CApath", "-no-CAstore")
    revocation = ("-crl_check_all", "-CRLfile", str(crl))
    done = _run_openssl("verify", *trusted, *revocation, "-purpose", "sslserver", str(certificate))
    if done.error:
        raise RejectedError(f"the gateway's certificate is not valid: {done.error}")
    public_key = _openssl("x509", "-in", str(certificate), "-noout", "-pubkey")
    if public_key != _openssl("pkey", "-in", str(key), "-pubout"):
        raise RejectedError("the gateway's private key does not match its certificate")


def _field_value(output: str) -> str:
    return output.partition("=")[2].strip()


def _parse_date(text: str) -> int:
    return timegm(strptime(text, _DATE))


def _openssl(*arguments: str) -> str:
    """Return what openssl prints about a file; raise RejectedError if it cannot read the file."""
    done = _run_openssl(*arguments)
    if done.error:
        raise RejectedError(f"cannot read {Path(arguments[2]).name}: {done.error}")
    return done.text


def _run_openssl(*arguments: str) -> Result:
    return run("/usr/bin/openssl", *arguments)


def read_active_crl(paths: GatewayPaths, authority: Path) -> Crl:
    """Return the active revocation list, or an empty one if the authority did not sign it."""
    try:
        return read_crl(paths.crl, authority)
    except RejectedError:
        return _NO_CRL


@contextmanager
def staged_crl(paths: GatewayPaths, text: str, authority: Path, active: Crl) -> Iterator[Crl]:
    """Stage a new revocation list and yield it. It is deleted at the end, unless `activate_crl` has activated it.

    Raise RejectedError if the list has expired, is not valid yet, is not signed by the authority, is older than the
    active list, or has the number of the active list but other content.
    """
    staged = staged_crl_file(paths)
    try:
        write_file(staged, text.encode())
        crl = read_crl(staged, authority)
        _check_crl(paths, crl, active)
        yield crl
    finally:
        staged.unlink(missing_ok=True)


def activate_crl(paths: GatewayPaths) -> None:
    """Activate the staged revocation list."""
    if paths.crl.exists():
        # OpenVPN reads the file again only if its size or its modification time in seconds has changed.
        later = max(int(time.time()), int(paths.crl.stat().st_mtime) + 1)
        os.utime(staged_crl_file(paths), (later, later))
    replace(staged_crl_file(paths), paths.crl)


def staged_crl_file(paths: GatewayPaths) -> Path:
    """Return the path of the staged revocation list."""
    return paths.settings / ".crl.new"


def _check_crl(paths: GatewayPaths, crl: Crl, active: Crl) -> None:
    now = time.time()
    if crl.end <= now:
        raise RejectedError(f"the revocation list expired on {_date_text(crl.end)}")
    if crl.begin > now:
        # OpenVPN rejects every client until the list is valid.
        raise RejectedError(
            f"the revocation list is not valid before {_date_text(crl.begin)}; this gateway's clock says"
            f" {_date_text(now)}. Set the wrong clock, of the gateway or of the signing machine"
            ' (docs/vpn-keys.md, "The clock was ahead")'
        )
    if crl.number < active.number:
        raise RejectedError(f"revocation list {crl.number} is older than the active list {active.number}")
    if crl.number == active.number and staged_crl_file(paths).read_bytes() != paths.crl.read_bytes():
        raise RejectedError(
            f"two different revocation lists have the number {crl.number}: the active one was signed in another copy"
            " of fleet.pki. Get that copy (git pull), then run `bedplate vpn sync`"
        )


def _date_text(moment: float) -> str:
    return time.strftime("%d %B %Y, %H:%M UTC", time.gmtime(moment))


IDENTITY_FILES = ("ca.crt", "server.crt", "server.key", "tls-crypt-v2.key")
_SECRET_FILES = ("server.key", "tls-crypt-v2.key")


@contextmanager
def staged_identity(paths: GatewayPaths, files: Mapping[str, str] | None) -> Iterator[Path | None]:
    """Stage a new certificate with its keys and yield the folder; yield None if nothing changes.

    Only the user of the daemons can read the keys, from the moment they are written.
    """
    if files is None or all(_read_file(paths.settings / name) == files[name] for name in IDENTITY_FILES):
        yield None
        return
    staged = Path(tempfile.mkdtemp(prefix=".identity-", dir=paths.settings))
    try:
        for name in IDENTITY_FILES:
            mode, owner = (0o400, _user_id(paths.owner)) if name in _SECRET_FILES else (0o444, -1)
            write_file(staged / name, files[name].encode(), mode, (owner, -1))
        yield staged
    finally:
        shutil.rmtree(staged)


def activate_identity(paths: GatewayPaths, staged: Path) -> None:
    """Activate a staged certificate and its keys; daemons load them when they restart."""
    for name in IDENTITY_FILES:
        replace(staged / name, paths.settings / name)


def _user_id(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise RejectedError(f"no user {name} on this gateway: apply the role openvpn first") from None


def _read_file(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
