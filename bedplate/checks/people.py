"""People: one account and one key each, groups that are nobody's own, and somebody who may mend things."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.checks.context import Evidence, repeated
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.spec.base import shown


def check_people(evidence: Evidence) -> Iterator[Fault]:
    """Tell people who could be taken for one another, and a fleet that nobody may mend."""
    people = evidence.fleet.people.items()
    for name in sorted(evidence.declared.names("people").difference(evidence.fleet.people)):
        if name.casefold() in evidence.fleet.people:
            yield fault("E505", f"people.{name.casefold()}", f"{shown(name)} is {name.casefold()} but for case")
    keys = ((f"people.{name}.keys.{i}", line) for name, person in people for i, line in enumerate(person.keys))
    for key, _, first in repeated((key, tuple(line.split(" ")[:2])) for key, line in keys):
        yield fault("W511", key, f"{first.split('.')[1]} has the same key")
    yield from _groups(evidence)
    if people and evidence.is_whole("people") and not any(person.admin for _, person in people):
        yield fault("W512", "people", "nobody is an administrator")


def _groups(evidence: Evidence) -> Iterator[Fault]:
    """Tell groups that are called like a person, and those that a person is in twice."""
    people = evidence.declared.names("people")
    for name, person in evidence.fleet.people.items():
        listed = tuple((f"people.{name}.groups.{i}", group) for i, group in enumerate(person.groups))
        for key, group in listed:
            if group in people:
                yield fault("E514", key, f"{group} is a person, with a group of their own")
        for key, group, _ in repeated(listed):
            yield fault("E515", key, f"{name} is in {group} already")


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


SECRET_RULES = (
    Rule(
        "E501",
        "secret",
        "Fleet files are committed and shown.",
        "delete it here, revoke it where it came from, keep secrets in SSM parameters",
    ),
    Rule(
        "E502",
        "private-key",
        "Whoever reads the file could act as its owner.",
        "delete it here, make a new key, and give the .pub file's line",
    ),
)

PERSON_RULES = (
    Rule("E503", "user-name", "It is an account on every node.", "write it as ada", "useradd(8)"),
    Rule(
        "E505",
        "users-alike",
        "Names equal but for case are one person to most readers.",
        "rename one",
        at_key=True,
    ),
    Rule("E506", "not-a-key", "sshd would ignore it in silence.", "write the one line of the .pub file"),
    Rule(
        "E507",
        "key-options",
        "Options would change what a login may do.",
        "delete what stands before the type",
    ),
    Rule("E508", "key-lines", "A second line would be a second key.", "make each key an item of its own"),
    Rule("E509", "key-type", "sshd does not accept the type.", "make one with ssh-keygen -t ed25519"),
    Rule(
        "E510",
        "weak-key",
        "Short RSA keys can be broken.",
        "make one with ssh-keygen -t ed25519",
        "NIST SP 800-57",
    ),
    Rule(
        "W511",
        "key-twice",
        "Logins by a shared key cannot be told apart.",
        "give each person a key of their own",
    ),
    Rule("W512", "no-administrator", "Nobody could mend a node.", "write `admin: true` for somebody"),
    Rule("E513", "group-name", "It is a group on every node.", "write it as vision", "groupadd(8)"),
    Rule(
        "E514",
        "group-like-person",
        "Everybody has a group of their own, called like them.",
        "call the group otherwise",
    ),
    Rule("E515", "group-twice", "To be in a group again changes nothing.", "delete one of them"),
    Rule("E517", "ids-exhausted", "An id is never given to anybody else.", "take names that the lock knows"),
    Rule("E518", "name-recorded", "Files belong to whoever had the name before.", "choose another name"),
)
