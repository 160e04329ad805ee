"""Dates and signatures, asked of the openssl that every gateway has."""

import subprocess
from calendar import timegm
from pathlib import Path
from time import strptime

from .trouble import Refusal

_DATE = "%b %d %H:%M:%S %Y GMT"


def certificate_end(file: Path) -> int:
    """Return when a certificate ends, in Unix time."""
    return _moment(_openssl("x509", "-in", str(file), "-noout", "-enddate"))


def crl_end(file: Path) -> int:
    """Return when the list of revoked certificates ends, in Unix time."""
    return _moment(_openssl("crl", "-in", str(file), "-noout", "-nextupdate"))


def crl_number(file: Path) -> int:
    """Return the number of a list of revoked certificates; each is greater than the one before it."""
    return int(_openssl("crl", "-in", str(file), "-noout", "-crlnumber").partition("=")[2], 16)


def crl_text(file: Path) -> str:
    """Return a list of revoked certificates as openssl writes it out: a line a serial, in hexadecimal."""
    return _openssl("crl", "-in", str(file), "-noout", "-text")


def check_issuer(crl: Path, trusted: Path) -> None:
    """Refuse a list that the authority in `trusted` did not sign."""
    _openssl("crl", "-in", str(crl), "-noout")
    if "verify OK" not in _asked("crl", "-in", str(crl), "-noout", "-CAfile", str(trusted)).stderr:
        raise Refusal("the list of revoked certificates is signed by somebody else than this gateway's authority")


def check_identity(trusted: Path, certificate: Path, key: Path) -> None:
    """Refuse a certificate that the authority did not sign, or a key that is not the certificate's."""
    done = _asked("verify", "-CAfile", str(trusted), "-purpose", "sslserver", str(certificate))
    if done.returncode:
        raise Refusal(f"the gateway's certificate is not one to trust: {' '.join(done.stderr.split())[:160]}")
    own = _openssl("x509", "-in", str(certificate), "-noout", "-pubkey")
    if own != _openssl("pkey", "-in", str(key), "-pubout"):
        raise Refusal("the gateway's key is not that of its certificate")


def _moment(told: str) -> int:
    return timegm(strptime(told.partition("=")[2].strip(), _DATE))


def _openssl(*arguments: str) -> str:
    """Return what openssl prints of a file; Refusal where it cannot read it."""
    done = _asked(*arguments)
    if done.returncode:
        told = done.stderr.strip().splitlines()
        raise Refusal(f"openssl reads no {arguments[0]} in {Path(arguments[2]).name}: {(told or ['?'])[0][:200]}")
    return done.stdout


def _asked(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["/usr/bin/openssl", *arguments], capture_output=True, text=True, check=False)  # noqa: S603
