"""What the compliance checks found on one machine: a verdict a rule, or why the machine was not reached."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What became of a rule on a node."""

    KEPT = "kept"
    VIOLATED = "violated"
    UNJUDGED = "not judged"
    UNSEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule on one node: `promise` is its sentence, `words` say what is otherwise, or why nobody could tell."""

    role: str
    rule: str
    promise: str
    outcome: Outcome
    words: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Findings:
    """A node's verdicts; `apart` counts the rules that do not concern it, `unreached` says why there may be none."""

    node: str
    verdicts: tuple[Verdict, ...] = ()
    apart: int = 0
    unreached: str = ""
    seconds: float = 0.0

    def of(self, outcome: Outcome) -> tuple[Verdict, ...]:
        """Return the verdicts of an outcome."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is outcome)

    def text(self) -> str:
        """Return the findings as a JSON document."""
        return json.dumps(asdict(self))


def findings_of(text: str) -> tuple[Findings, ...]:
    """Return the findings of a list of such documents."""
    return tuple(_findings(told) for told in json.loads(text))


def _findings(told: dict[str, Any]) -> Findings:
    verdicts = (Verdict(**{**each, "outcome": Outcome(each["outcome"])}) for each in told["verdicts"])
    return Findings(**{**told, "verdicts": tuple(verdicts)})
