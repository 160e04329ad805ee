"""Rings: the bundle that machines follow, with a sequence number that only rises, and what canary machines report."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from bedplate.errors import PartialError


@dataclass(frozen=True, slots=True)
class RingState:
    """The value of a ring's parameter in one region; `revision` counts its changes, 0 before the first."""

    bundle: str
    sequence: int
    changed: datetime | None = None
    revision: int = 0

    @property
    def text(self) -> str:
        """The value of the parameter."""
        return json.dumps({"bundle": self.bundle, "sequence": self.sequence})

    def is_same(self, other: "RingState | None") -> bool:
        """Return whether another state names the same bundle with the same sequence."""
        return other is not None and (self.bundle, self.sequence) == (other.bundle, other.sequence)


def read_ring_state(text: str, changed: datetime | None, revision: int) -> RingState:
    """Return the state in a parameter. Raises PartialError for a value that bedplate has not written."""
    try:
        document = json.loads(text)
        return RingState(str(document["bundle"]), int(document["sequence"]), changed, revision)
    except (ValueError, KeyError, TypeError):
        fix = "delete the parameter, then promote a bundle again"
        raise PartialError("invalid value of the parameter of the ring", fix=fix) from None


def next_state(states: Iterable[RingState | None], bundle: str) -> RingState:
    """Return the state that promotes a bundle in all regions, from the states there.

    The sequence rises over that of every region. Regions that already have the bundle with the highest one keep it, so
    a repeated command completes an interrupted one.
    """
    known = [state for state in states if state]
    highest = max((state.sequence for state in known), default=0)
    is_promoted = known and all(state.bundle == bundle for state in known if state.sequence == highest)
    return RingState(bundle, highest if is_promoted else highest + 1)


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """The machines of the ring `canary`: `failed` with their sentence, and `pending`, which have not run the bundle."""

    failed: Mapping[str, str]
    pending: tuple[str, ...]

    @property
    def has_passed(self) -> bool:
        """Whether every running machine has run the bundle without an error; true without machines."""
        return not self.failed and not self.pending


def canary_report(statuses: Mapping[str, Mapping[str, object] | None], bundle: str) -> CanaryReport:
    """Return the report on a bundle from the last status of each running machine; None without a status."""
    ran = {name: status for name, status in statuses.items() if status and status.get("bundle") == bundle}
    failed = {name: str(status.get("sentence") or "failed") for name, status in ran.items() if status["ok"] is not True}
    return CanaryReport(failed, tuple(name for name in statuses if name not in ran))
