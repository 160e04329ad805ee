"""What looks like a secret: keys and tokens by the marks that their issuers give them, private keys by their header.

Told by kind and position only; nothing here returns what was found.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """How one kind of secret is known: the letters it is sure to hold, which are quick to look for, and its form."""

    kind: str
    letters: str
    form: str
    code: str = "E501"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a text: the rule it breaks, its kind, and from where to where it goes."""

    code: str
    kind: str
    start: int
    end: int


MARKS = (
    Mark("a private key", "PRIVATE KEY", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY", "E502"),
    Mark("a PuTTY key", "PuTTY-User-Key-File", r"PuTTY-User-Key-File-[0-9]", "E502"),
    Mark("an OpenVPN static key", "OpenVPN Static key", r"-----BEGIN OpenVPN Static key"),
    Mark("an age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]+"),
    Mark("an AWS access key", "AKIA", r"\bAKIA[A-Z0-9]{16}\b"),
    Mark("an AWS session key", "ASIA", r"\bASIA[A-Z0-9]{16}\b"),
    Mark("a GitHub token", "gh", r"\bgh[opsur]_[A-Za-z0-9]{36,}"),
    Mark("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    Mark("a GitLab token", "glpat-", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    Mark("a Slack token", "xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    Mark("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
    Mark("an API key", "sk-", r"\bsk-(?=[a-z0-9_-]{0,200}[A-Z])[A-Za-z0-9_-]{20,}"),
    Mark("a Google API key", "AIza", r"\bAIza[A-Za-z0-9_-]{35}"),
    Mark("an npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    Mark("a PyPI token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{16,}"),
    Mark("a Pulumi token", "pul-", r"\bpul-[0-9a-f]{40}\b"),
    Mark("a JSON web token", "eyJ", r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    Mark("a password in an address", "://", r"://[^\s/:@]{1,64}:[^\s/@]{1,256}@"),
)
_WORD = re.compile(r"[A-Za-z0-9/+=]{40,}")
# The secret half of an AWS key has no mark but its length; a hash in hexadecimal has no upper case.
_AWS_SECRET = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9/+]{40}")


def secrets_in(text: str) -> Iterator[Secret]:
    """Yield what looks like a secret."""
    for mark in MARKS:
        if mark.letters in text:
            for match in re.finditer(mark.form, text):
                yield Secret(mark.code, mark.kind, match.start(), match.end())
    for match in _WORD.finditer(text):
        if _AWS_SECRET.fullmatch(match[0]):
            yield Secret("E501", "an AWS secret access key", match.start(), match.end())
