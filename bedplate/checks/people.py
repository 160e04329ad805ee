"""People: accounts, SSH keys, groups and administrators; and secrets that do not belong into the file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bedplate.checks.diagnostics import Context, one_of, repeated
from bedplate.plan.cluster import PEOPLE, person_name
from bedplate.plan.faults import NAME_IN_CLUSTER
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.base import shown
from bedplate.spec.sshkey import PRIVATE_KEY


def check_people(context: Context) -> Iterator[Fault]:
    """Yield faults of names, keys, groups and messages of people, and a warning if nobody is an administrator."""
    people = context.fleet.people.items()
    for name in sorted(context.declared.names("people").difference(context.fleet.people)):
        if name.casefold() in context.fleet.people:
            message = f"{shown(name)} differs from {name.casefold()} only in case"
            yield fault(SIMILAR_USERS, f"people.{name.casefold()}", message)
    keys = ((f"people.{name}.keys.{i}", line) for name, person in people for i, line in enumerate(person.keys))
    for key, _, first in repeated((key, tuple(line.split(" ")[:2])) for key, line in keys):
        yield fault(SHARED_KEY, key, f"{first.split('.')[1]} has the same key")
    yield from _check_groups(context)
    hub = context.fleet.hub
    for name, person in people:
        mail = {"hub.relay": hub and hub.relay, "hub.sender": hub and hub.sender, f"people.{name}.email": person.email}
        needs = {"hub": hub, **(mail if person.notify == "mail" else {})} if person.notify else {}
        if missing := ", ".join(key for key, value in needs.items() if not value):
            message = f"without {missing} there are no messages by {person.notify}"
            yield fault(NO_MESSAGES, f"people.{name}.notify", message, f"write {missing}")
    jobs = context.fleet.jobs
    for table, names in (("budgets", jobs.budgets), ("shares", jobs.shares)):
        for name in names.keys() - context.fleet.people:
            yield fault(JOBS_OF_NOBODY, f"jobs.{table}.{name}", f"{name} is no person", one_of(context.fleet.people))
    if people and context.is_whole("people") and not any(person.admin for _, person in people):
        yield fault(NO_ADMINISTRATOR, "people", "the fleet has no administrator")


def _check_groups(context: Context) -> Iterator[Fault]:
    """Yield faults of groups with the name of a person, and of duplicate groups of a person."""
    people = context.declared.names("people")
    for name, person in context.fleet.people.items():
        groups = tuple((f"people.{name}.groups.{index}", group) for index, group in enumerate(person.groups))
        for key, group in groups:
            if group in people:
                yield fault(GROUP_NAMED_LIKE_PERSON, key, f"{group} is a person, who has a group of the same name")
        for key, group, _ in repeated(groups):
            yield fault(DUPLICATE_GROUP, key, f"{group} is listed twice")


# Programs in pods that ask for NAME.LABEL get the Service NAME of the namespace LABEL, before a host of that name.
_DOMAINS = "com net org edu gov mil int io ai dev app co cloud info local internal arpa svc pods cluster"
_NAMESPACES = frozenset({"default", PEOPLE, *_DOMAINS.split()})


def check_cluster_names(context: Context) -> Iterator[Fault]:
    """Yield faults of people whose name in the cluster is used by another person or by Kubernetes, or is empty."""
    people = context.fleet.people if context.fleet.kubernetes else ()
    labels = [(f"people.{name}", person_name(name)) for name in people]
    for key, label in labels:
        if not label:
            yield fault(NAME_IN_CLUSTER, key, "the name has no letter or digit for Kubernetes")
        elif label in _NAMESPACES or label.startswith("kube-") or label.endswith("-system"):
            yield fault(NAME_IN_CLUSTER, key, f"the cluster needs the name {label} itself")
        elif label in context.fleet.sites or label in context.fleet.regions:
            yield fault(
                NAME_IN_CLUSTER, key, f"in pods, machines of {label} would have the names of this person's services"
            )
    for key, label, first in repeated(labels):
        if label:
            yield fault(
                NAME_IN_CLUSTER, key, f"{first.removeprefix('people.')} has the same name in the cluster, {label}"
            )


SECRET = Rule(
    "E501", "Fleet files are committed and displayed.", "delete it here, revoke it, and keep secrets in SSM parameters"
)


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """The pattern of one kind of secret; `letters` is a substring of every match, for a quick first search."""

    kind: str
    letters: str
    form: str
    rule: Rule = SECRET


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a text: its rule, its kind, and its start and end."""

    rule: Rule
    kind: str
    start: int
    end: int


PATTERNS = (
    SecretPattern("a private key", "PRIVATE KEY", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY", PRIVATE_KEY),
    SecretPattern("a PuTTY key", "PuTTY-User-Key-File", r"PuTTY-User-Key-File-[0-9]", PRIVATE_KEY),
    SecretPattern("an OpenVPN static key", "OpenVPN Static key", r"-----BEGIN OpenVPN Static key"),
    SecretPattern("an age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]+"),
    SecretPattern("an AWS access key", "AKIA", r"\bAKIA[A-Z0-9]{16}\b"),
    SecretPattern("an AWS session key", "ASIA", r"\bASIA[A-Z0-9]{16}\b"),
    SecretPattern("a GitHub token", "gh", r"\bgh[opsur]_[A-Za-z0-9]{36,}"),
    SecretPattern("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    SecretPattern("a GitLab token", "glpat-", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    SecretPattern("a Slack token", "xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    SecretPattern("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
    SecretPattern("an API key", "sk-", r"\bsk-(?=[a-z0-9_-]{0,200}[A-Z])[A-Za-z0-9_-]{20,}"),
    SecretPattern("a Google API key", "AIza", r"\bAIza[A-Za-z0-9_-]{35}"),
    SecretPattern("an npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    SecretPattern("a PyPI token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{16,}"),
    SecretPattern("a Pulumi token", "pul-", r"\bpul-[0-9a-f]{40}\b"),
    SecretPattern("a JSON web token", "eyJ", r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    SecretPattern("a webhook, which only the hub may have", "https://", r"https://[^\s/]+/\S*(hooks|services)/\S+"),
    SecretPattern("a password in a URL", "://", r"://[^\s/:@]{1,64}:[^\s/@]{1,256}@"),
)
_WORD = re.compile(r"[A-Za-z0-9/+=]{40,}")
# The secret half of an AWS key has no prefix, only a length; a hexadecimal hash has no upper case.
_AWS_SECRET = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9/+]{40}")


def secrets_in(text: str) -> Iterator[Secret]:
    """Yield the parts of a text that look like secrets."""
    for pattern in PATTERNS:
        if pattern.letters in text:
            for match in re.finditer(pattern.form, text):
                yield Secret(pattern.rule, pattern.kind, match.start(), match.end())
    for match in _WORD.finditer(text):
        if _AWS_SECRET.fullmatch(match[0]):
            yield Secret(SECRET, "an AWS secret access key", match.start(), match.end())


CHECKS = (check_people, check_cluster_names)
_rule = partial(Rule, section="people")
SIMILAR_USERS = _rule("E505", "Readers confuse names that differ only in case.", "rename one of the two", at_key=True)
SHARED_KEY = _rule("W511", "Logins with a shared key cannot be attributed to a person.", "write one key per person")
NO_ADMINISTRATOR = _rule("W512", "Nobody could repair a node.", "write `admin: true` for one person")
GROUP_NAMED_LIKE_PERSON = _rule("E514", "Every person has a group of the same name.", "rename the group")
DUPLICATE_GROUP = _rule("E515", "A second entry has no effect.", "delete one of the two")
JOBS_OF_NOBODY = Rule("E649", "Only people have jobs.", "delete it", section="jobs", at_key=True)
NO_MESSAGES = _rule("E516", "The hub sends messages, and mail by a relay.", "write the missing keys", at_key=True)
