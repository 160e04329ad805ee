"""What a node answers when a role asks about it: recorded output of the facts' own commands, and no other answer.

`tests/data/facts/debian-12.json` was recorded on a Debian 12 root, but for what a root in a container cannot tell:
mounts, modules and version of the kernel, the time zone, the file of sources. `ubuntu-24.04.json` was written from
what is known of 24.04, for there was no Ubuntu to ask; the versions of packages in it mean nothing. A key is the
fact's name, with its arguments where the answer depends on them; a value is the lines of the command's output, None
where it gives none.
"""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyinfra.api.facts import FactBase

FACTS = Path(__file__).parents[1] / "data" / "facts"
SYSTEMS = ("debian-12", "ubuntu-24.04")
Lines = tuple[str, ...] | None


class UnexpectedQuestionError(AssertionError):
    """A role asked what its test did not expect."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A table of answers."""

    name: str
    answers: Mapping[str, Lines]

    def but(self, answers: Mapping[str, Lines]) -> "Recorded":
        """Return the same table with other or more answers."""
        return replace(self, answers=MappingProxyType({**self.answers, **answers}))

    def ask(self, fact: FactBase[Any], arguments: Mapping[str, object]) -> object:
        """Return the answer in the fact's own form."""
        lines = self._lines(fact.name, arguments)
        if callable(fact.command):  # some facts keep for `process` what `command` was told
            fact.command(**arguments)
        return fact.process(list(lines)) if lines else fact.default()

    def _lines(self, name: str, arguments: Mapping[str, object]) -> Lines:
        exact = question(name, arguments)
        for key in (exact, name):
            if key in self.answers:
                return self.answers[key]
        raise UnexpectedQuestionError(f"a role asked {self.name} for {exact}, and its table has no answer")


def question(name: str, arguments: Mapping[str, object]) -> str:
    """Return the key of a question: `server.Which(command=swapon)`."""
    told = ", ".join(f"{key}={value}" for key, value in arguments.items() if value not in (None, False))
    return f"{name}({told})" if told else name


def bound(fact: FactBase[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question's arguments by name, without those that steer how pyinfra asks."""
    own = {key: value for key, value in kwargs.items() if not key.startswith("_")}
    return dict(inspect.signature(fact.command).bind(*args, **own).arguments) if args or own else {}


@cache
def recorded(name: str) -> Recorded:
    """Return the table of a distribution, `debian-12` or `ubuntu-24.04`."""
    table = json.loads((FACTS / f"{name}.json").read_text())
    answers = {key: None if lines is None else tuple(lines) for key, lines in table.items()}
    return Recorded(name, MappingProxyType(answers))
