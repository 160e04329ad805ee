"""A rehearsal: stacks created in the simulated AWS, run again, changed and destroyed, wave by wave.

The stacks of one wave do not read each other and run side by side; a wave starts when the one before is done.
"""

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bedplate.rehearsal import schema
from bedplate.rehearsal.faults import Fault
from bedplate.rehearsal.interim import pass_a_day
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.report import Phase, Report, StackReport
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import Run, Stack, World, destroy, run
from bedplate.rehearsal.step import Step

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
