"""The report of a smoke test: what each stage found, AWS's own error texts, times, and what is left in the account."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from bedplate.errors import PartialError, ViolationError
from bedplate.foreign import one_line
from bedplate.report.columns import aligned

Verdict = Literal["passed", "failed", "not run", "not chosen"]
"""A stage that was not run has a reason, and has not passed; only one that nobody wants is not chosen."""


@dataclass(frozen=True, slots=True)
class AwsError:
    """An error of AWS in its own words, and the command or launch that it answered."""

    code: str
    text: str
    call: str


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a stage: what was wrong and what to change, what it found, such as times, and AWS's errors."""

    number: int
    title: str
    verdict: Verdict
    what: str = ""
    fix: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[AwsError, ...] = ()


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """The report file. Its `source` is `aws`, or `simulation` for a run of the tests; `left` is in the account."""

    fleet: str
    regions: tuple[str, ...]
    started: str
    source: Literal["aws", "simulation"] = "aws"
    stages: tuple[StageResult, ...] = ()
    left: tuple[str, ...] = ()
    version: Literal[1] = 1

    @property
    def exit_status(self) -> int:
        """6 if anything is left or a chosen stage was not run, else 3 if one has failed."""
        verdicts = {stage.verdict for stage in self.stages}
        if self.left or ("not run" in verdicts and "failed" not in verdicts):
            return PartialError.exit_code
        return ViolationError.exit_code if "failed" in verdicts else 0

    @property
    def text(self) -> str:
        """The content of the file: no account id, and no long encoded value, which may be a key."""
        lines = json.dumps(asdict(self), indent=1, ensure_ascii=False).splitlines()
        return "".join(f"{_HIDDEN.sub('...', one_line(line))}\n" for line in lines)


_HIDDEN = re.compile(r"\b\d{12}\b|[A-Za-z0-9+/=]{60,}")
# An error code of AWS has two words, and its text follows.
_ERROR = re.compile(r"^error: (?:.*? )?([A-Z][a-z]\w*[A-Z]\w*(?:\.\w+)*): (.+)", re.MULTILINE)


def aws_errors(errors: str, call: str) -> Iterator[AwsError]:
    """Yield the errors of AWS in the error output of a command."""
    return (AwsError(code, text, call) for code, text in _ERROR.findall(errors))


DENIED = re.compile(r"AccessDenied|UnauthorizedOperation|permission denied")


def result_lines(report: SmokeReport) -> Iterator[str]:
    """Yield one line for each stage, what was wrong and the fix, and what is left in the account."""
    yield from aligned((f"{stage.number:>2}", stage.title, stage.verdict) for stage in report.stages)
    for stage in report.stages:
        if stage.what:
            yield from (f"stage {stage.number}, {stage.title}: {stage.what}", f"  fix  {stage.fix}")
    yield from (f"left in the account: {name}" for name in report.left)
