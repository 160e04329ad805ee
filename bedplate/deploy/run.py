"""Runs the steps of a deployment: the stacks of a step in parallel, the steps one after another."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from bedplate.deploy.engine import Engine
from bedplate.deploy.progress import Cause, Operation, Progress, Status, advance
from bedplate.errors import BedplateError

Task = tuple[str, Operation]
Watch = Callable[[Sequence[Progress]], object]
_PERIOD = 0.2


@dataclass(slots=True)
class Deployment:
    """The state of all operations of one command, in their order; safe for threads."""

    engine: Engine
    steps: Sequence[Sequence[Task]]
    planned: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    _states: dict[Task, Progress] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for stack, operation in (task for step in self.steps for task in step):
            self._states[stack, operation] = Progress(stack, operation, planned=self.planned.get(stack, {}))

    @property
    def states(self) -> tuple[Progress, ...]:
        """The state of each operation."""
        with self._lock:
            return tuple(self._states.values())

    def run(self, watch: Watch) -> tuple[Progress, ...]:
        """Run all steps; after a step with a failure the rest is skipped. `watch` gets the states five times a second.

        The first Ctrl-C stops the engine cleanly; the rest is skipped then, too.
        """
        with ThreadPoolExecutor(max(1, *(len(step) for step in self.steps))) as pool:
            for step in self.steps:
                if not self._is_broken():
                    self._wait([pool.submit(self._run, task).done for task in step], watch)
        for task, progress in self._states.items():
            if progress.status is Status.WAITING:
                self._update(task, replace(progress, status=Status.SKIPPED))
        watch(self.states)
        return self.states

    def _wait(self, are_done: Iterable[Callable[[], bool]], watch: Watch) -> None:
        checks = tuple(are_done)
        while not all(is_done() for is_done in checks):
            try:
                watch(self.states)
                time.sleep(_PERIOD)
            except KeyboardInterrupt:
                self.engine.command.interrupt()

    def _is_broken(self) -> bool:
        return self.engine.command.is_interrupted or any(state.status is Status.FAILED for state in self.states)

    def _run(self, task: Task) -> None:
        stack, operation = task
        started = time.monotonic()
        self._update(task, replace(self._states[task], status=Status.RUNNING))
        try:
            self.engine.run(stack, operation, lambda event: self._update(task, advance(self._states[task], event)))
            result = replace(self._states[task], status=Status.DONE)
        except BedplateError as error:
            progress = self._states[task]
            causes = progress.causes or (Cause("", error.what),)
            result = replace(progress, status=Status.FAILED, causes=causes)
        self._update(task, replace(result, current="", seconds=time.monotonic() - started))

    def _update(self, task: Task, progress: Progress) -> None:
        with self._lock:
            self._states[task] = progress


def failed(states: Iterable[Progress]) -> Iterator[Progress]:
    """Yield the operations that did not finish."""
    return (state for state in states if state.status is not Status.DONE)
