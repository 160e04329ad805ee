"""What a rehearsal came to, stack by stack, as values."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from bedplate.plan.origin import Origin, unknown_origin
from bedplate.rehearsal import urn as urns
from bedplate.rehearsal.faults import Fault, Shortage
from bedplate.rehearsal.kind import Support
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.stack import Run
from bedplate.rehearsal.step import Failure, Op, Step
from bedplate.rehearsal.wire import masked


class Phase(StrEnum):
    """What a rehearsal does with a stack, in this order."""

    CREATE = "create"
    RECOVER = "recover"
    """Run after the injected faults have ended, to create what is missing."""
    AGAIN = "again"
    CHANGE = "change"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True)
class StackReport:
    """What became of one stack in each phase that reached it. Counts are of resources in the cloud."""

    name: str
    runs: dict[Phase, Run] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The time of all its phases."""
        return sum(run.seconds for run in self.runs.values())

    def real_failures(self, *, injected: bool) -> tuple[Failure, ...]:
        """Return what failed in a phase without injected faults."""
        excused = {Phase.CREATE} if injected else set()
        return tuple(failure for phase, run in self.runs.items() if phase not in excused for failure in run.failures)

    @property
    def missing(self) -> tuple[str, ...]:
        """The URNs of the resources in the cloud that only the run after the faults created."""
        return tuple(step.urn for step in self._steps(Phase.RECOVER) if step.op is Op.CREATE and step.is_in_cloud)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Everything that failed, in any phase."""
        return tuple(failure for run in self.runs.values() for failure in run.failures)

    def count(self, phase: Phase, op: Op) -> int:
        """Return how many resources in the cloud took a step in a phase."""
        return sum(step.op is op and step.is_in_cloud for step in self._steps(phase))

    def changes(self, phase: Phase) -> tuple[Step, ...]:
        """Return the steps of a phase that changed anything, components and providers included."""
        return tuple(step for step in self._steps(phase) if step.is_change)

    @property
    def types(self) -> Mapping[str, int]:
        """How many resources of each type there are when all is made."""
        return dict(sorted(Counter(entry.type for entry in self._left_by(self._whole)).items()))

    @property
    def exports(self) -> Mapping[str, Any]:
        """What is exported when all is made, secrets masked."""
        made = self.runs.get(self._whole)
        return {name: masked(value) for name, value in made.snapshot.exports.items()} if made else {}

    @property
    def kept(self) -> tuple[str, ...]:
        """The URNs of what the destruction left: what is protected, and what that needs."""
        # A stack that a changed fleet no longer has is destroyed by the change.
        last = Phase.DESTROY if Phase.DESTROY in self.runs else Phase.CHANGE
        return tuple(entry.urn for entry in self._left_by(last))

    @property
    def _whole(self) -> Phase:
        return Phase.RECOVER if Phase.RECOVER in self.runs else Phase.CREATE

    def _steps(self, phase: Phase) -> tuple[Step, ...]:
        return self.runs[phase].steps if phase in self.runs else ()

    def _left_by(self, phase: Phase) -> tuple[Entry, ...]:
        entries = self.runs[phase].snapshot.entries.values() if phase in self.runs else ()
        return tuple(entry for entry in entries if entry.is_in_cloud)


@dataclass(frozen=True, slots=True)
class Report:
    """What a whole rehearsal came to."""

    stacks: tuple[StackReport, ...]
    seconds: float
    calls: int
    fault_hits: Mapping[Fault, int] = field(default_factory=dict)
    """How many requests each injected fault failed."""
    shortages: tuple[Shortage, ...] = ()

    @property
    def real_failures(self) -> tuple[Failure, ...]:
        """Everything that failed without an injected fault."""
        return tuple(
            failure for stack in self.stacks for failure in stack.real_failures(injected=bool(self.fault_hits))
        )

    @property
    def is_partial(self) -> bool:
        """Whether something failed, or a group could not start its instances."""
        return bool(self.shortages) or any(stack.failures for stack in self.stacks)

    @property
    def is_stable(self) -> bool:
        """Whether nothing failed but by an injected fault, and running again changed nothing."""
        return not self.real_failures and not any(stack.changes(Phase.AGAIN) for stack in self.stacks)

    @property
    def ok(self) -> bool:
        """Whether nothing failed, nothing is missing and the second run changed nothing."""
        return self.is_stable and not self.is_partial


def support(token: str) -> Support:
    """Return how far the model of a type can be trusted."""
    return KINDS[token].support


def note(token: str) -> str:
    """Return what the model of a type leaves out; of a fake, why it is one."""
    return KINDS[token].note


def document(report: Report, origin: Origin = unknown_origin) -> dict[str, object]:
    """Return a report in the form of `rehearse --json`."""
    stacks = {stack.name: _stack_document(stack, origin) for stack in report.stacks}
    figures = {"seconds": round(report.seconds, 3), "calls": report.calls, "ok": report.ok}
    return {"stacks": stacks, **figures, **_faults_document(report)}


def _faults_document(report: Report) -> dict[str, object]:
    return {
        "injected_faults": [{"fault": str(fault), "hits": hits} for fault, hits in report.fault_hits.items()],
        "missing": {stack.name: list(stack.missing) for stack in report.stacks if stack.missing},
        "shortages": [asdict(shortage) for shortage in report.shortages],
    }


def _stack_document(stack: StackReport, origin: Origin) -> dict[str, object]:
    return {
        "created": stack.count(Phase.CREATE, Op.CREATE),
        "second_run": {
            "same": stack.count(Phase.AGAIN, Op.SAME),
            "changed": sum(step.is_in_cloud for step in stack.changes(Phase.AGAIN)),
        },
        "changed": [_step_document(step) for step in stack.changes(Phase.CHANGE)],
        "destroyed": stack.count(Phase.DESTROY, Op.DELETE),
        "kept": list(stack.kept),
        "outputs": dict(stack.exports),
        "failures": [_failure_document(stack.name, one, origin) for one in stack.failures],
        "seconds": round(stack.seconds, 3),
        "types": {token: _type_document(token, count) for token, count in stack.types.items()},
    }


def _type_document(token: str, count: int) -> dict[str, object]:
    return {"count": count, "support": support(token).value, "note": note(token)}


def _failure_document(stack: str, failure: Failure, origin: Origin) -> dict[str, object]:
    place = origin(stack, urns.parse(failure.urn).name) if failure.urn else ""
    told = {"urn": failure.urn, "code": failure.code, "message": failure.message, "key": failure.key}
    return {**told, "from": place}


def _step_document(step: Step) -> dict[str, object]:
    return {
        "op": step.op.value,
        "urn": step.urn,
        "keys": list(step.keys),
        "replace_keys": list(step.replace_keys),
        "paths": list(step.paths),
    }
