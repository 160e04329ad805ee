"""Findings of checks, and the verdict on a machine as JSON, as Prometheus metrics and as text."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from ..program import MissingProgramError, ProgramError


class Action(StrEnum):
    """The action that a finding requires, in ascending order of severity."""

    NONE = "none"
    MONITOR = "monitor"
    REPAIR = "repair"
    REBOOT = "reboot"
    REPLACE = "replace"


class Cause(StrEnum):
    """What a finding says is broken. Only broken hardware ends a machine."""

    HARDWARE = "hardware"
    SOFTWARE = "software"
    UNKNOWN = "unknown"
    """The check cannot tell: a program has failed, or has printed what this version does not know."""


PASSED = "passed"
_WORDS = {
    Cause.HARDWARE: "broken hardware",
    Cause.SOFTWARE: "broken software",
    Cause.UNKNOWN: "cannot tell whether it works",
}
_ACCEPTED = (Action.NONE, Action.MONITOR)


@dataclass(frozen=True)
class Finding:
    """The result of a check, in words; it failed unless the action is none or monitor.

    `since` is the Unix time at which it was first seen, 0 if unknown.
    """

    check: str
    text: str
    action: Action = Action.NONE
    cause: Cause | None = None
    since: int = 0

    def __post_init__(self) -> None:
        """Refuse a failure without a cause, and a replacement for anything but broken hardware."""
        if self.cause is None and not self.ok:
            raise ValueError(f"{self.check}: a failed finding needs a cause")
        if self.action is Action.REPLACE and self.cause is not Cause.HARDWARE:
            raise ValueError(f"{self.check}: only broken hardware is replaced")

    @property
    def ok(self) -> bool:
        """Whether the machine may work."""
        return self.action in _ACCEPTED


def hardware(check: str, text: str, action: Action = Action.REPLACE, since: int = 0) -> Finding:
    """Return a finding of broken hardware."""
    return Finding(check, text, action, Cause.HARDWARE, since)


def software(check: str, text: str, action: Action = Action.REPAIR) -> Finding:
    """Return a finding of broken software."""
    return Finding(check, text, action, Cause.SOFTWARE)


def unknown(check: str, text: str, action: Action = Action.MONITOR, since: int = 0) -> Finding:
    """Return a finding about something that the check cannot judge."""
    return Finding(check, text, action, Cause.UNKNOWN, since)


def unfinished(check: str, error: ProgramError) -> Finding:
    """Return a finding about a program that is not installed, or cannot be run."""
    cause = Cause.SOFTWARE if isinstance(error, MissingProgramError) else Cause.UNKNOWN
    return Finding(check, str(error), Action.REPAIR, cause)


def by_action(check: str, text: str, action: str, since: int = 0) -> Finding:
    """Return a finding by its action in a table; `unknown` is one there."""
    match action:
        case "unknown":
            return unknown(check, text, since=since)
        case Action.MONITOR:
            return Finding(check, text, Action.MONITOR, since=since)
        case Action.REPAIR:
            return software(check, text)
    return hardware(check, text, Action(action), since)


@dataclass(frozen=True)
class Verdict:
    """All findings about a machine at a time (seconds since 1970)."""

    time: int
    boot: str
    findings: Sequence[Finding]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(finding.ok for finding in self.findings)

    @property
    def action(self) -> Action:
        """The most severe action of all findings."""
        return max((finding.action for finding in self.findings), key=list(Action).index, default=Action.NONE)

    @property
    def cause(self) -> Cause | None:
        """What is broken, the first of hardware, software and unknown; None if every check passed."""
        failed = {finding.cause for finding in self.findings if not finding.ok}
        return next((cause for cause in Cause if cause in failed), None)

    @property
    def _words(self) -> str:
        return f"failed: {_WORDS[self.cause]} ({self.action})" if self.cause else PASSED

    def document(self) -> dict[str, object]:
        """Return it for JSON."""
        findings = [{**asdict(finding), "ok": finding.ok} for finding in self.findings]
        head = {"version": 1, "ok": self.ok, "verdict": self.cause or PASSED, "action": self.action}
        return {**head, "time": self.time, "boot": self.boot, "findings": findings}

    def metrics(self) -> str:
        """Return it as Prometheus metrics; a check has one line, for any number of findings."""
        failed = {finding.check for finding in self.findings if not finding.ok}
        checks = sorted({finding.check for finding in self.findings})
        lines = [f'bedplate_gate_ok{{check="{check}"}} {int(check not in failed)}' for check in checks]
        verdicts = (PASSED, *Cause)
        lines += [
            f'bedplate_gate_verdict{{verdict="{name}"}} {int(name == (self.cause or PASSED))}' for name in verdicts
        ]
        return "\n".join((*lines, f"bedplate_gate_time_seconds {self.time}", ""))

    def lines(self) -> Sequence[str]:
        """Return the failed findings, then the result."""
        failed = [finding for finding in self.findings if finding.action is not Action.NONE]
        rows = (f"{finding.check}: {finding.text} ({_remark(finding)})" for finding in failed)
        return [*rows, f"gate {self._words}"]

    def report(self) -> Sequence[str]:
        """Return all findings, then the result of a burn-in."""
        return [*(f"{finding.check}: {finding.text}" for finding in self.findings), f"burn-in {self._words}"]


def _remark(finding: Finding) -> str:
    return f"{finding.cause}, {finding.action}" if finding.cause else finding.action
