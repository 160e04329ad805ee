"""What must hold for a run after kills at any moment: it was started once at most, and has one end everywhere."""

from collections.abc import Mapping
from dataclasses import dataclass

# Each line is there once, and each start is counted outside of what a run has.
# A shell reports on stderr that a process of it was killed.
SCRIPT = """exec 2>/dev/null
echo x >>"$0"
for i in 1 2 3 4 5 6 7 8; do echo "line $i"; sleep {pause}; done
exit {code}"""
LINES = "".join(f"line {number}\n" for number in range(1, 9))


@dataclass(frozen=True)
class KilledRun:
    """What a run has left: the starts of its program, the output, and its end in the folder, on the hub and for bp.

    `code` is that of the program if nobody kills it, `status` the one with which the agent or bp ended.
    """

    code: int
    status: int
    starts: int
    output: str
    end: Mapping[str, object]
    record: Mapping[str, object]
    has_processes: bool = False

    def problems(self) -> str:
        """Return what is wrong; empty if nothing is."""
        own, end = self.end.get("code"), self.end.get("cause")
        is_whole = self.output == LINES if self.status == self.code else LINES.startswith(self.output)
        checks = {
            "it was started more than once": self.starts <= 1,
            "it has no end": bool(end),
            "the hub has another end": (self.record.get("state"), self.record.get("cause")) == ("ended", end),
            "the hub has another status": self.record.get("status") == self.end.get("status"),
            "the program ended otherwise": self.status != 0 or own == self.code,
            "output is lost or doubled": is_whole,
            "processes are left": not self.has_processes,
        }
        return ", ".join(text for text, is_right in checks.items() if not is_right)
