"""Dates and signatures, asked of the openssl that every gateway has."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from calendar import timegm
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import strptime

from .place import Place, Refusal, fill

_DATE = "%b %d %H:%M:%S %Y GMT"
_SERIAL = re.compile(r"^ +Serial Number: ([0-9A-F]+)$", re.MULTILINE)
_LIST_FACTS = ("crlNumber=", "lastUpdate=", "nextUpdate=")


@dataclass(frozen=True)
class RevokedList:
    """A list of revoked certificates: its number, its begin and end in Unix time, and whom it names, by serial."""

    number: int
    begin: int
    end: int
    serials: frozenset[int]


def certificate_end(file: Path) -> int:
    """Return when a certificate ends, in Unix time."""
    return _moment(_value(_openssl("x509", "-in", str(file), "-noout", "-enddate")))


def crl_end(file: Path) -> int:
    """Return when the list of revoked certificates ends, in Unix time."""
    return _moment(_value(_openssl("crl", "-in", str(file), "-noout", "-nextupdate")))


def crl_number(file: Path) -> int:
    """Return the number of a list of revoked certificates; each is greater than the one before it."""
    return int(_value(_openssl("crl", "-in", str(file), "-noout", "-crlnumber")), 16)


def read_list(file: Path, trusted: Path) -> RevokedList:
    """Return what a list says; Refusal where it is none, or not signed by the authority in `trusted`."""
    asked = ("-text", "-crlnumber", "-lastupdate", "-nextupdate", "-CAfile", str(trusted))
    done = _asked("crl", "-in", str(file), "-noout", *asked)
    if "verify OK" not in done.stderr:
        _openssl("crl", "-in", str(file), "-noout")
        raise Refusal("the list of revoked certificates is signed by somebody else than this gateway's authority")
    told = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(_LIST_FACTS))
    serials = frozenset(int(each, 16) for each in _SERIAL.findall(done.stdout))
    begin, end = _moment(told["lastUpdate"]), _moment(told["nextUpdate"])
    return RevokedList(int(told["crlNumber"], 16), begin, end, serials)


def check_identity(revoked: Path, trusted: Path, certificate: Path, key: Path) -> None:
    """Refuse a certificate that the authority did not sign or has revoked, and a key of another certificate.

    `trusted` must hold nothing but the authority: daemons trust every certificate in it.
    """
    if trusted.read_text().count("-----BEGIN ") != 1:
        raise Refusal("ca.crt must hold one certificate, that of the authority")
    alone = ("-CAfile", str(trusted), "-no-CApath", "-no-CAstore")
    lists = ("-crl_check_all", "-CRLfile", str(revoked))
    done = _asked("verify", *alone, *lists, "-purpose", "sslserver", str(certificate))
    if done.returncode:
        raise Refusal(f"the gateway's certificate is not one to trust: {' '.join(done.stderr.split())[:160]}")
    own = _openssl("x509", "-in", str(certificate), "-noout", "-pubkey")
    if own != _openssl("pkey", "-in", str(key), "-pubout"):
        raise Refusal("the gateway's key is not that of its certificate")


def _value(told: str) -> str:
    return told.partition("=")[2].strip()


def _moment(told: str) -> int:
    return timegm(strptime(told, _DATE))


def _openssl(*arguments: str) -> str:
    """Return what openssl prints of a file; Refusal where it cannot read it."""
    done = _asked(*arguments)
    if done.returncode:
        told = done.stderr.strip().splitlines()
        raise Refusal(f"openssl reads no {arguments[0]} in {Path(arguments[2]).name}: {(told or ['?'])[0][:200]}")
    return done.stdout


def _asked(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["/usr/bin/openssl", *arguments], capture_output=True, errors="replace", check=False)  # noqa: S603


# What a gateway goes by that has no list, or one of an authority that another took over from.
_NO_LIST = RevokedList(0, 0, 0, frozenset())


def list_in_force(place: Place, trusted: Path) -> RevokedList:
    """Return what the list in force says, as far as the authority in `trusted` signed it."""
    try:
        return read_list(place.crl, trusted)
    except Refusal:
        return _NO_LIST


@contextmanager
def fresh_list(place: Place, text: str, trusted: Path, before: RevokedList) -> Iterator[RevokedList]:
    """Give what a new list says, judged and not yet in force: `put_list` puts it there.

    Raises Refusal for a list that is over or has not begun, older than the one before, or not signed by the authority
    in `trusted`.
    """
    fresh = fresh_file(place)
    try:
        fill(fresh, text)
        told = read_list(fresh, trusted)
        _check(place, told, before)
        yield told
    finally:
        fresh.unlink(missing_ok=True)


def put_list(place: Place) -> None:
    """Put in force the list that was judged."""
    if place.crl.exists():
        # OpenVPN reads it anew when its size or its second has changed.
        later = max(int(time.time()), int(place.crl.stat().st_mtime) + 1)
        os.utime(fresh_file(place), (later, later))
    fresh_file(place).replace(place.crl)


def fresh_file(place: Place) -> Path:
    """Return the path of a list that is not yet in force."""
    return place.settings / ".crl.new"


def _check(place: Place, told: RevokedList, before: RevokedList) -> None:
    now = time.time()
    if told.end <= now:
        raise Refusal(f"the list of revoked certificates ended on {_day(told.end)}")
    if told.begin > now:
        # With such a list OpenVPN would let in nobody, until that day.
        raise Refusal(
            f"the list of revoked certificates begins on {_day(told.begin)}, and here it is {_day(now)}: set the clock"
            ' that is wrong, this gateway\'s or that of who signs (docs/vpn-keys.md, "The clock was ahead")'
        )
    if told.number < before.number:
        raise Refusal(f"list {told.number} of revoked certificates is older than the one in force, {before.number}")
    if told.number == before.number and fresh_file(place).read_bytes() != place.crl.read_bytes():
        raise Refusal(
            f"two different lists of revoked certificates have the number {told.number}: the one in force was signed in"
            " another copy of fleet.pki. Get that copy (git pull), then `bedplate vpn sync`"
        )


def _day(moment: float) -> str:
    return time.strftime("%d %B %Y, %H:%M UTC", time.gmtime(moment))


NAMES = ("ca.crt", "server.crt", "server.key", "tls-crypt-v2.key")
_SECRET = ("server.key", "tls-crypt-v2.key")


@contextmanager
def fresh_identity(place: Place, files: Mapping[str, str] | None) -> Iterator[Path | None]:
    """Yield the folder of a new certificate and keys, not yet checked nor in force; None if none is new.

    Nobody but the daemons' own account reads the keys, at any instant.
    """
    if files is None or all(_text(place.settings / name) == files[name] for name in NAMES):
        yield None
        return
    fresh = Path(tempfile.mkdtemp(prefix=".identity-", dir=place.settings))
    try:
        for name in NAMES:
            _write(fresh / name, files[name], place.owner)
        yield fresh
    finally:
        shutil.rmtree(fresh)


def put_identity(place: Place, fresh: Path) -> None:
    """Put a certificate and its keys in force for daemons that start."""
    for name in NAMES:
        (fresh / name).replace(place.settings / name)


def _write(path: Path, text: str, owner: str) -> None:
    secret = path.name in _SECRET
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400 if secret else 0o444)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(handle)
        if secret:
            os.fchown(handle, _account(owner), -1)


def _account(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Refusal(f"there is no account {name} here: apply the role openvpn first") from None


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
