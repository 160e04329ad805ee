"""A rehearsal of all stacks: create them in the simulated AWS, run them again, change and destroy them.

Stacks run in waves: the stacks of one wave do not read each other and run in parallel. The caller gives the waves of
creation, change and teardown. `rehearse` runs all phases and returns a `Report`; `document` returns that report as
JSON values, for `rehearse --json`.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from itertools import chain
from typing import Any

from bedplate.rehearsal import schema
from bedplate.rehearsal.faults import Fault, Shortage
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import Aws, Simulation, running
from bedplate.rehearsal.stack import Run, SharedState, Stack, destroy, run
from bedplate.rehearsal.state import Entry, Failure, Op, Snapshot, Step, parse_urn
from bedplate.rehearsal.wire import masked

# Returns the place in the fleet file that asks for a resource, from the names of its stack and the resource; the
# command line passes it in, because the rehearsal knows no fleet files.
Origin = Callable[[str, str], str]


def _no_origin(_stack: str, _name: str) -> str:
    return ""


class Phase(StrEnum):
    """The phases of a rehearsal, in this order."""

    CREATE = "create"
    RECOVER = "recover"
    """A run after the end of the injected faults, which creates the missing resources."""
    AGAIN = "again"
    CHANGE = "change"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True)
class StackReport:
    """The run of one stack in each phase; counts include resources in AWS only."""

    name: str
    runs: dict[Phase, Run] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The duration of all its phases."""
        return sum(run.seconds for run in self.runs.values())

    def real_failures(self, *, injected: bool) -> tuple[Failure, ...]:
        """Return the failures of the phases without injected faults."""
        ignored = {Phase.CREATE} if injected else set()
        return tuple(failure for phase, run in self.runs.items() if phase not in ignored for failure in run.failures)

    @property
    def deployed(self) -> Run | None:
        """The last run that deployed resources; None if creation did not run."""
        return next(
            (self.runs[phase] for phase in (Phase.CHANGE, Phase.RECOVER, Phase.CREATE) if phase in self.runs), None
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """The URNs of the resources that only the run after the faults created."""
        return tuple(step.urn for step in self._steps(Phase.RECOVER) if step.op is Op.CREATE and step.is_in_cloud)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of all phases."""
        return tuple(failure for run in self.runs.values() for failure in run.failures)

    def count(self, phase: Phase, op: Op) -> int:
        """Return the number of resources with this step in a phase."""
        return sum(step.op is op and step.is_in_cloud for step in self._steps(phase))

    def changes(self, phase: Phase) -> tuple[Step, ...]:
        """Return the steps of a phase that change anything, components and providers included."""
        return tuple(step for step in self._steps(phase) if step.is_change)

    @property
    def types(self) -> Mapping[str, int]:
        """The number of resources of each type after creation."""
        return dict(sorted(Counter(entry.type for entry in self._left_by(self._whole)).items()))

    @property
    def exports(self) -> Mapping[str, Any]:
        """The exports after creation, secrets masked."""
        run = self.runs.get(self._whole)
        return {name: masked(value) for name, value in run.snapshot.exports.items()} if run else {}

    @property
    def kept(self) -> tuple[str, ...]:
        """The URNs of the resources that destroy kept: protected ones and their requirements."""
        # The change destroys the stacks that a changed fleet no longer has.
        last = Phase.DESTROY if Phase.DESTROY in self.runs else Phase.CHANGE
        return tuple(entry.urn for entry in self._left_by(last))

    @property
    def _whole(self) -> Phase:
        """The phase after which all resources exist."""
        return Phase.RECOVER if Phase.RECOVER in self.runs else Phase.CREATE

    def _steps(self, phase: Phase) -> tuple[Step, ...]:
        return self.runs[phase].steps if phase in self.runs else ()

    def _left_by(self, phase: Phase) -> tuple[Entry, ...]:
        entries = self.runs[phase].snapshot.entries.values() if phase in self.runs else ()
        return tuple(entry for entry in entries if entry.is_in_cloud)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a rehearsal."""

    stacks: tuple[StackReport, ...]
    seconds: float
    calls: int
    fault_hits: Mapping[Fault, int] = field(default_factory=dict)
    """The number of requests that each injected fault failed."""
    shortages: tuple[Shortage, ...] = ()
    assumed_images: tuple[tuple[str, str], ...] = ()
    """The AMIs that the rehearsal cannot know, with their regions."""
    abandoned: tuple[str, ...] = ()
    """The groups whose machines had nothing to configure themselves with after the first deployment."""

    @property
    def real_failures(self) -> tuple[Failure, ...]:
        """The failures that no injected fault explains."""
        return tuple(
            failure for stack in self.stacks for failure in stack.real_failures(injected=bool(self.fault_hits))
        )

    @property
    def is_partial(self) -> bool:
        """Whether a resource failed, or an Auto Scaling group could not start its instances."""
        return bool(self.shortages) or any(stack.failures for stack in self.stacks)

    @property
    def is_stable(self) -> bool:
        """Whether only injected faults caused failures, and the second run changed nothing."""
        return not self.real_failures and not any(stack.changes(Phase.AGAIN) for stack in self.stacks)

    @property
    def ok(self) -> bool:
        """Whether nothing failed, nothing is missing and the second run changed nothing."""
        return self.is_stable and not self.is_partial


def document(report: Report, origin: Origin = _no_origin) -> dict[str, object]:
    """Return a report as the JSON values of `rehearse --json`."""
    stacks = {stack.name: _stack_document(stack, origin) for stack in report.stacks}
    figures = {"seconds": round(report.seconds, 3), "calls": report.calls, "ok": report.ok}
    return {"stacks": stacks, **figures, **_faults_document(report)}


def _faults_document(report: Report) -> dict[str, object]:
    return {
        "injected_faults": [{"fault": str(fault), "hits": hits} for fault, hits in report.fault_hits.items()],
        "missing": {stack.name: list(stack.missing) for stack in report.stacks if stack.missing},
        "shortages": [asdict(shortage) for shortage in report.shortages],
        "abandoned": list(report.abandoned),
        "assumed_images": [{"region": region, "image": image} for region, image in report.assumed_images],
    }


def _stack_document(stack: StackReport, origin: Origin) -> dict[str, object]:
    return {
        "created": stack.count(Phase.CREATE, Op.CREATE),
        "second_run": {
            "same": stack.count(Phase.AGAIN, Op.SAME),
            "changed": sum(step.is_in_cloud for step in stack.changes(Phase.AGAIN)),
        },
        "changed": [asdict(step) for step in stack.changes(Phase.CHANGE)],
        "destroyed": stack.count(Phase.DESTROY, Op.DELETE),
        "kept": list(stack.kept),
        "outputs": dict(stack.exports),
        "failures": [_failure_document(stack.name, failure, origin) for failure in stack.failures],
        "seconds": round(stack.seconds, 3),
        "types": {token: _type_document(token, count) for token, count in stack.types.items()},
    }


def _type_document(token: str, count: int) -> dict[str, object]:
    return {"count": count, "support": KINDS[token].support.value, "note": KINDS[token].note}


def _failure_document(stack: str, failure: Failure, origin: Origin) -> dict[str, object]:
    return {
        "urn": failure.urn,
        "code": failure.code,
        "message": failure.message,
        "key": failure.key,
        "from": origin(stack, parse_urn(failure.urn).name) if failure.urn else "",
    }


Waves = Sequence[Sequence[Stack]]


def pass_a_day(simulation: Simulation, waves: Waves) -> None:
    """Advance the simulated clock by a day, and register a node in the node zone of each stack, as nodes do."""
    simulation.elapsed += timedelta(days=1)
    aws = simulation.region("us-east-1")
    for stack in chain.from_iterable(waves):
        if stack.node_zone:
            _register_node(aws, stack.node_zone)


def _register_node(aws: Aws, domain: str) -> None:
    """Write the DNS record of a node into the private zones of a domain."""
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


@dataclass(frozen=True, slots=True)
class Wave:
    """Stacks that a change deploys, or destroys, in parallel."""

    stacks: Sequence[Stack]
    destroys: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """The steps beside the creation: a change, the waves of the teardown (by default the creation's, reversed)."""

    change: Sequence[Wave] = ()
    teardown: Waves = ()
    then: Callable[[Simulation, str], None] = lambda _simulation, _stack: None
    """What a deployment does after a stack of this name, before the next wave."""
    abandoned: Callable[[Simulation], tuple[str, ...]] = lambda _simulation: ()
    """The groups whose machines wait in vain once the first deployment has ended."""


_NO_CHANGE = Course()
# Called after each step, in the thread of the stack, with the name of the stack, the phase and the step.
StepCallback = Callable[[str, Phase, Step], None]


@dataclass(slots=True)
class Rehearsal:
    """One rehearsal: the simulated cloud with its states, and the reports of the stacks so far."""

    world: SharedState
    watch: StepCallback
    faults: Collection[Fault] = ()
    course: Course = _NO_CHANGE
    reports: dict[str, StackReport] = field(default_factory=dict)
    abandoned: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether anything failed without an injected fault."""
        return any(report.real_failures(injected=bool(self.faults)) for report in self.reports.values())

    def create(self, waves: Waves) -> None:
        """Create the stacks with the injected faults; then end the faults and create the missing resources."""
        simulation = self.world.simulation
        simulation.faults.active = frozenset(self.faults)
        self.run(Phase.CREATE, waves)
        if self.faults:
            simulation.end_faults()
            self.abandoned = self.course.abandoned(simulation)
            self.run(Phase.RECOVER, waves)

    def run(self, phase: Phase, waves: Waves) -> None:
        """Run the stacks of each wave; stop after a wave with a failure."""
        self.change([Wave(stacks) for stacks in waves], phase)

    def change(self, waves: Sequence[Wave], phase: Phase = Phase.CHANGE) -> None:
        """Deploy or destroy the stacks of each wave; stop after a wave with a failure."""
        for wave in waves:
            if not self.failed:
                self._run_wave(phase, wave.stacks, destroy if wave.destroys else run)

    def destroy(self, waves: Waves) -> None:
        """Destroy the stacks of each wave, each stack once, also after failures."""
        destroyed: set[str] = set()
        for wave in waves:
            self._run_wave(Phase.DESTROY, [stack for stack in wave if stack.name not in destroyed], destroy)
            destroyed |= {stack.name for stack in wave}

    def _run_wave(self, phase: Phase, wave: Sequence[Stack], action: Callable[..., Run]) -> None:
        def run_stack(stack: Stack) -> Run:
            if self.world.simulation.faults.fails(stack.name):
                return Run((), (Failure("", "Injected", f"the deployment of {stack.name} fails"),), Snapshot(), 0.0)
            done = action(stack, self.world, watch=lambda step: self.watch(stack.name, phase, step))
            if self.faults and phase is Phase.CREATE and not done.failures:
                self.course.then(self.world.simulation, stack.name)
            return done

        with ThreadPoolExecutor(max(1, len(wave))) as threads:
            for stack, result in zip(wave, threads.map(run_stack, wave), strict=True):
                self.reports.setdefault(stack.name, StackReport(stack.name)).runs[phase] = result


def rehearse(
    account: str,
    waves: Waves,
    course: Course = _NO_CHANGE,
    watch: StepCallback = lambda *_: None,
    faults: Collection[Fault] = (),
) -> Report:
    """Create all stacks, run them again, change them if the course has a change, and destroy everything.

    With faults, the first run creates the resources that the faults allow, and a second run after their end creates
    the rest. A phase runs only if nothing failed before; destroy always runs. The clock advances by a day before the
    change and before destroy.
    """
    started = time.perf_counter()
    _load_sdk()
    with running(account) as simulation:
        rehearsal = Rehearsal(SharedState(simulation), watch, faults, course)
        rehearsal.create(waves)
        rehearsal.run(Phase.AGAIN, waves)
        if course.change:
            pass_a_day(simulation, waves)
            rehearsal.change(course.change)
        pass_a_day(simulation, course.teardown or waves)
        # After a failed change, stacks of both fleets exist.
        created = waves[::-1] if rehearsal.failed or not course.teardown else ()
        rehearsal.destroy((*created, *course.teardown))
    seconds = time.perf_counter() - started
    hits = {fault: simulation.faults.hits[fault] for fault in faults}
    shortages = tuple(simulation.faults.shortages.values())
    assumed = tuple(simulation.assumed_images or ())
    reports = tuple(rehearsal.reports.values())
    return Report(reports, seconds, simulation.calls, hits, shortages, assumed, rehearsal.abandoned)


def create(account: str, waves: Waves, watch: StepCallback = lambda *_: None) -> Report:
    """Create all stacks and run no other phase, for commands that only read the created resources."""
    started = time.perf_counter()
    _load_sdk()
    with running(account) as simulation:
        rehearsal = Rehearsal(SharedState(simulation), watch)
        rehearsal.run(Phase.CREATE, waves)
    return Report(tuple(rehearsal.reports.values()), time.perf_counter() - started, simulation.calls)


def _load_sdk() -> None:
    """Import the SDK's modules now: its lazy import is not thread-safe."""
    for token in KINDS:
        schema.resource_class(token)
