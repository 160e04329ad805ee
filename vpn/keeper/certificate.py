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


def check_issuer(crl: Path, trusted: Path) -> None:
    """Refuse a list that the authority in `trusted` did not sign."""
    told = _openssl("crl", "-in", str(crl), "-noout", "-CAfile", str(trusted))
    if "verify OK" not in told:
        raise Refusal("the list of revoked certificates is signed by somebody else than this gateway's authority")


def _moment(told: str) -> int:
    return timegm(strptime(told.partition("=")[2].strip(), _DATE))


def _openssl(*arguments: str) -> str:
    done = subprocess.run(["/usr/bin/openssl", *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    told = done.stdout + done.stderr
    if done.returncode and "verify" not in told:
        raise Refusal(f"openssl reads no {arguments[0]} in {Path(arguments[2]).name}: {done.stderr.strip()[:200]}")
    return told
