"""docs/updates.md: every key's promise, as a page made from the policies."""

from collections.abc import Iterator
from itertools import groupby

from bedplate.update.effect import Policy
from bedplate.update.policies import POLICIES

_INTRODUCTION = """\
# What an edit does to a fleet that lives

Made by `make docs` from the policies in the code; a test rehearses an edit of each. `bedplate diff FLEET2` tells the
same of two files, and ends with 3 where something is replaced, removed or refused.

| effect | what happens |
| --- | --- |
| free | nothing that lives is touched |
| new nodes only | what runs stays as it is; machines that start from now on have it |
| rolling replace | machines of Kubernetes groups are replaced a few at a time; those for SSH and those of a fabric \
are left alone, and only their new nodes have it |
| replaces | what was there goes, and another comes |
| removes | what stands there goes |
| refused | it cannot be done to a fleet that lives; the last column says what to do instead |
"""


def updates_page() -> str:
    """Return the page: a table for each part of the fleet file."""
    parts = (_part(name, tuple(rows)) for name, rows in groupby(POLICIES.values(), key=_top))
    return "\n".join((_INTRODUCTION, *parts))


def _top(policy: Policy) -> str:
    return policy.key.partition(".")[0]


def _part(name: str, rows: tuple[Policy, ...]) -> str:
    return "\n".join((f"## {name}", "", *_table(rows), ""))


def _table(rows: tuple[Policy, ...]) -> Iterator[str]:
    yield "| key | event | effect | what is touched | instead |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        yield f"| `{row.key}` | {row.event.value} | {effect_told(row)} | {row.does} | {row.way} |"


def effect_told(policy: Policy) -> str:
    """Return the effect of a policy, and where it is another."""
    return f"{policy.effect.value}; free where it grows" if policy.grows else policy.effect.value
