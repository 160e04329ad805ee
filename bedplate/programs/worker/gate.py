"""The result of the health gate, as the node reports it: an annotation for the approver, a condition for people."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_VERDICT, _BOOT = Path("var/lib/bedplate/gate.json"), Path("proc/sys/kernel/random/boot_id")
PENDING, _PASSED, _UNKNOWN = "pending", "passed", "unknown"
_BROKEN = frozenset({"hardware", "software"})
_CONDITION, _LONGEST = "GateFailed", 1000


@dataclass(frozen=True)
class Gate:
    """A gate: `passed`, `hardware` or `software` if that is broken, `unknown` if the gate cannot tell.

    `pending`: none has run since the last boot.
    """

    report: str
    findings: str = ""

    def status(self, node: str, now: float) -> dict[str, object]:
        """Return the part of a Node with it as a condition, at a Unix time."""
        status = {_PASSED: "False", PENDING: "Unknown"}.get(self.report, "True")
        changed = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = {"lastHeartbeatTime": changed, "lastTransitionTime": changed}
        reason = {"type": _CONDITION, "status": status, "reason": self.report.capitalize()}
        condition = {**reason, "message": self.findings[:_LONGEST], **times}
        part = {"metadata": {"name": node}, "status": {"conditions": [condition]}}
        return {"apiVersion": "v1", "kind": "Node", **part}


def read_gate(root: Path) -> Gate:
    """Return the gate by its verdict since the last boot; one of another form tells nothing."""
    try:
        text = (root / _VERDICT).read_text(encoding="utf-8")
        boot = (root / _BOOT).read_text(encoding="utf-8").strip()
    except OSError:
        return Gate(PENDING)
    try:
        verdict = json.loads(text)
        # A gate that could not read its plan knows no boot.
        if verdict["boot"] not in (boot, "") or (verdict["ok"] is True and not verdict["boot"]):
            return Gate(PENDING)
        told = [entry for entry in verdict.get("findings", ()) if not entry["ok"] or entry["cause"] == _UNKNOWN]
        text = "; ".join(f"{entry['check']}: {entry['text']} ({entry['action']})" for entry in told)
        if verdict["ok"] is True:
            return Gate(_PASSED, text)
        return Gate(verdict["verdict"] if verdict["verdict"] in _BROKEN else _UNKNOWN, text)
    except (ValueError, KeyError, TypeError, RecursionError):
        return Gate(_UNKNOWN, "the verdict cannot be read")
