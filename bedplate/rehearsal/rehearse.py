"""A rehearsal: stacks created in the simulated AWS, run again, changed and destroyed, wave by wave.

The stacks of one wave do not read each other and run side by side; a wave starts when the one before is done.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from bedplate.plan.document import Origin, unknown_origin
from bedplate.rehearsal import schema
from bedplate.rehearsal import state as urns
from bedplate.rehearsal.faults import Fault, Shortage
from bedplate.rehearsal.kind import Support
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import Aws, Simulation, running
from bedplate.rehearsal.stack import Run, Stack, World, destroy, run
from bedplate.rehearsal.state import Entry, Failure, Op, Step
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


_DAY = timedelta(days=1)


def pass_a_day(simulation: Simulation, stacks: tuple[Stack, ...]) -> None:
    """Advance the simulated clock by a day, and register a node in each private zone that nodes write to."""
    simulation.elapsed += _DAY
    aws = simulation.region("us-east-1")
    for stack in stacks:
        if stack.node_zone:
            _register(aws, stack.node_zone)


def _register(aws: Aws, domain: str) -> None:
    """Write the record of a node into the private zones of a domain."""
    record = {
        "Name": f"rehearsal-1.{domain}",
        "Type": "TXT",
        "TTL": 60,
        "ResourceRecords": [{"Value": '"i-0123456789abcdef0"'}],
    }
    batch = {"Changes": [{"Action": "UPSERT", "ResourceRecordSet": record}]}
    for zone in aws.call("route53", "list_hosted_zones_by_name", DNSName=domain)["HostedZones"]:
        if zone["Name"] == f"{domain}." and zone["Config"]["PrivateZone"]:
            aws.call("route53", "change_resource_record_sets", HostedZoneId=zone["Id"], ChangeBatch=batch)


Waves = Sequence[Sequence[Stack]]
# Told of every step as it is taken: the stack's name, the phase, the step. Called from the stack's own thread.
Watch = Callable[[str, Phase, Step], None]


@dataclass(slots=True)
class Rehearsal:
    """The world of one rehearsal, and what has become of each stack in it so far."""

    world: World
    watch: Watch
    faults: Collection[Fault] = ()
    reports: dict[str, StackReport] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether anything has failed without an injected fault."""
        return any(report.real_failures(injected=bool(self.faults)) for report in self.reports.values())

    def create(self, waves: Waves) -> None:
        """Create the stacks under the injected faults; then end the faults and create what is missing."""
        simulation = self.world.simulation
        simulation.faults.active = frozenset(self.faults)
        self.run(Phase.CREATE, waves)
        if self.faults:
            simulation.end_faults()
            self.run(Phase.RECOVER, waves)

    def run(self, phase: Phase, waves: Waves) -> None:
        """Run the stacks of each wave; stop after a wave in which something failed."""
        for wave in waves:
            if not self.failed:
                self._side_by_side(phase, wave, run)

    def pass_a_day(self, waves: Waves) -> None:
        """Let a day pass for what exists."""
        pass_a_day(self.world.simulation, tuple(stack for wave in waves for stack in wave))

    def destroy(self, phase: Phase, waves: Waves) -> None:
        """Destroy the stacks, those of the last wave first, whatever has failed."""
        for wave in reversed(waves):
            self._side_by_side(phase, wave, destroy)

    def _side_by_side(self, phase: Phase, wave: Sequence[Stack], act: Callable[..., Run]) -> None:
        def one(stack: Stack) -> Run:
            return act(stack, self.world, watch=lambda step: self.watch(stack.name, phase, step))

        with ThreadPoolExecutor(max(1, len(wave))) as threads:
            for stack, done in zip(wave, threads.map(one, wave), strict=True):
                self.reports.setdefault(stack.name, StackReport(stack.name)).runs[phase] = done


def rehearse(
    account: str,
    waves: Waves,
    changed: Waves = (),
    watch: Watch = lambda *_: None,
    faults: Collection[Fault] = (),
) -> Report:
    """Create every stack, run each again, run what the `changed` programs declare instead, and destroy everything.

    With faults, the stacks are created as far as the faults allow, and completed after the faults end.
    A phase is run only when nothing has failed before it; the destruction always is. A day passes before the change
    and before the destruction.
    """
    started = time.perf_counter()
    _load_sdk()
    with running(account) as simulation:
        rehearsal = Rehearsal(World(simulation), watch, faults)
        rehearsal.create(waves)
        rehearsal.run(Phase.AGAIN, waves)
        if changed:
            rehearsal.pass_a_day(waves)
            rehearsal.run(Phase.CHANGE, changed)
            rehearsal.destroy(Phase.CHANGE, _without(waves, changed))
        rehearsal.pass_a_day(changed or waves)
        rehearsal.destroy(Phase.DESTROY, changed or waves)
    seconds = time.perf_counter() - started
    hits = {fault: simulation.faults.hits[fault] for fault in faults}
    shortages = tuple(simulation.faults.shortages.values())
    return Report(tuple(rehearsal.reports.values()), seconds, simulation.calls, hits, shortages)


def create(account: str, waves: Waves, watch: Watch = lambda *_: None) -> Report:
    """Create every stack and leave it at that: for what only looks at what was made."""
    started = time.perf_counter()
    _load_sdk()
    with running(account) as simulation:
        rehearsal = Rehearsal(World(simulation), watch)
        rehearsal.run(Phase.CREATE, waves)
    return Report(tuple(rehearsal.reports.values()), time.perf_counter() - started, simulation.calls)


def _load_sdk() -> None:
    """Load the SDK's modules now: it does so on first use, by means that are not safe in threads."""
    for token in KINDS:
        schema.resource_class(token)


def _without(waves: Waves, changed: Waves) -> Waves:
    """Return the stacks that the changed programs no longer have."""
    kept = {stack.name for wave in changed for stack in wave}
    return [[stack for stack in wave if stack.name not in kept] for wave in waves]
