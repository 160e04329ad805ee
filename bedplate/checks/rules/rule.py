"""One rule of the catalogue."""

from dataclasses import dataclass

from bedplate.checks.fault import Level


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold, why, and what to do where it does not.

    `source` names who says so, where it is not bedplate. A fleet may break an `allowable` rule by naming it
    under `allow`, with the reason. `at_key`: the fault is told at the key, even where its value is one word.
    `late`: the file alone does not show whether it is broken, a plan and its lock do.
    """

    code: str
    name: str
    reason: str
    fix: str
    source: str = ""
    allowable: bool = False
    at_key: bool = False
    warns: bool = False
    late: bool = False

    @property
    def level(self) -> Level:
        """Rules of codes that start with W only warn, and so do those that say so."""
        return Level.WARNING if self.warns or self.code.startswith("W") else Level.ERROR
