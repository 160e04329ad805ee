"""Findings of checks, and the verdict on a machine as JSON, as Prometheus metrics and as text."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum


class Action(StrEnum):
    """The action that a finding requires, in ascending order of severity."""

    NONE = "none"
    MONITOR = "monitor"
    REPAIR = "repair"
    REBOOT = "reboot"
    REPLACE = "replace"


_ACCEPTED = (Action.NONE, Action.MONITOR)


@dataclass(frozen=True)
class Finding:
    """The result of a check, in words; it failed unless the action is none or monitor."""

    check: str
    text: str
    action: Action = Action.NONE

    @property
    def ok(self) -> bool:
        """Whether the machine may work."""
        return self.action in _ACCEPTED


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

    def document(self) -> dict[str, object]:
        """Return it for JSON."""
        findings = [{**asdict(finding), "action": finding.action, "ok": finding.ok} for finding in self.findings]
        summary = {"version": 1, "ok": self.ok, "action": self.action, "time": self.time, "boot": self.boot}
        return {**summary, "findings": findings}

    def metrics(self) -> str:
        """Return it as Prometheus metrics; a check has one line, for any number of findings."""
        failed = {finding.check for finding in self.findings if not finding.ok}
        checks = sorted({finding.check for finding in self.findings})
        lines = [f'bedplate_gate_ok{{check="{check}"}} {int(check not in failed)}' for check in checks]
        return "\n".join((*lines, f"bedplate_gate_time_seconds {self.time}", ""))

    def lines(self) -> Sequence[str]:
        """Return the failed findings, then the result."""
        failed = [finding for finding in self.findings if finding.action is not Action.NONE]
        words = "passed" if self.ok else f"failed: {self.action}"
        return [*(f"{finding.check}: {finding.text} ({finding.action})" for finding in failed), f"gate {words}"]

    def report(self) -> Sequence[str]:
        """Return all findings, then the result of a burn-in."""
        words = "passed" if self.ok else f"failed: {self.action}"
        return [*(f"{finding.check}: {finding.text}" for finding in self.findings), f"burn-in {words}"]
