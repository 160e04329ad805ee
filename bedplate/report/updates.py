"""docs/updates.md: every key's promise, as a page made from the policies."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from pydantic import BaseModel

from bedplate.report.columns import aligned, counted
from bedplate.update.edit import Consequence
from bedplate.update.policies import POLICIES, Effect, Event, Policy

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
        yield f"| `{row.key}` | {row.event.value} | {row.summary} | {row.does} | {row.way} |"


_LONGEST = 32
_MARKS = {Event.ADDED: "+", Event.REMOVED: "-", Event.CHANGED: " "}
_TOLD = {
    Effect.FREE: "free: nothing that lives is touched",
    Effect.NEW_NODES: "new nodes only: what runs stays as it is",
    Effect.ROLLING: "rolling replace: machines are replaced a few at a time",
    Effect.REPLACES: "replaces: what was there goes, and another comes",
    Effect.REMOVES: "removes: what stands there goes",
    Effect.REFUSED: "refused: it cannot be done to a fleet that lives",
}


def diff_lines(consequences: Iterable[Consequence]) -> Iterator[str]:
    """Yield the edits under what they do, the hardest first; then how many there are of each."""
    told = tuple(consequences)
    if not told:
        yield "the two files say the same"
        return
    for effect, same in groupby(told, key=lambda one: one.effect):
        yield from (_TOLD[effect], *aligned(_row(one) for one in same))
        yield from _ways(one for one in told if one.effect is effect)
        yield ""
    yield ", ".join(f"{sum(one.effect is effect for one in told)} {effect}" for effect in _present(told))


def diff_document(consequences: Iterable[Consequence]) -> dict[str, Any]:
    """Return the edits as JSON's own types."""
    return {"edits": [_entry(one) for one in consequences]}


def _present(told: tuple[Consequence, ...]) -> tuple[Effect, ...]:
    return tuple(dict.fromkeys(one.effect for one in told))


def _row(one: Consequence) -> tuple[str, ...]:
    return (f"  {_MARKS[one.edit.event]} {one.edit.key}", _change(one), one.does)


def _change(one: Consequence) -> str:
    edit = one.edit
    if edit.event is Event.CHANGED:
        return f"{_shown(edit.old)} -> {_shown(edit.new)}"
    return _shown(edit.new if edit.event is Event.ADDED else edit.old)


def _shown(value: object) -> str:
    """Return a value as the file would write it, or what it is where that is long."""
    if isinstance(value, BaseModel):
        given = value.model_dump(mode="json", exclude_unset=True)
        words = ", ".join(f"{key}: {each}" for key, each in given.items() if not isinstance(each, dict | list))
        return _cut(words)
    if isinstance(value, tuple | list):
        return _cut(", ".join(_shown(each) for each in value))
    if isinstance(value, Mapping):
        return counted(len(value), "entry", "entries")
    return _cut(str(value).lower() if isinstance(value, bool) else str(value))


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def _ways(refused: Iterable[Consequence]) -> Iterator[str]:
    ways = dict.fromkeys(one.way for one in refused if one.way)
    yield from (f"    instead: {way}" for way in ways)


def _entry(one: Consequence) -> dict[str, Any]:
    edit = one.edit
    return {
        "key": edit.key,
        "event": edit.event.value,
        "old": _plain(edit.old),
        "new": _plain(edit.new),
        "effect": one.effect.value,
        "does": one.does,
        "instead": one.way or None,
    }


def _plain(value: object) -> Any:  # noqa: ANN401  # JSON's own types
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value if value is None or isinstance(value, bool | int | float) else str(value)
