"""Dates and signatures, asked of the openssl that every gateway has."""

import re
import subprocess
from calendar import timegm
from dataclasses import dataclass
from pathlib import Path
from time import strptime

from .trouble import Refusal

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
