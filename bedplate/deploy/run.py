"""Runs the steps of a deployment: the stacks of a step in parallel, the steps one after another."""

import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from bedplate.deploy.engine import Engine
from bedplate.deploy.progress import STOPPED, Cause, Operation, Progress, Status, advance
from bedplate.errors import BedplateError

Task = tuple[str, Operation]
Watch = Callable[[Sequence[Progress]], object]
_PERIOD = 0.2


@dataclass(slots=True)
class Deployment:
    """The state of all operations of one command, in their order; safe for threads."""

    engine: Engine
    steps: Sequence[Sequence[Task]]
    totals: Mapping[Task, int] = field(default_factory=dict)
    then: Callable[[Task], None] = lambda _task: None
    """What follows an operation that succeeded, in its thread, before the next step."""
    _states: dict[Task, Progress] = field(default_factory=dict)
    _started: dict[Task, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for stack, operation in (task for step in self.steps for task in step):
            self._states[stack, operation] = Progress(stack, operation, total=self.totals.get((stack, operation), 0))

    @property
    def states(self) -> tuple[Progress, ...]:
        """The state of each operation."""
        now = time.monotonic()
        with self._lock:
            return tuple(
                replace(state, seconds=now - self._started[task]) if state.status is Status.RUNNING else state
                for task, state in self._states.items()
            )

    @property
    def is_interrupted(self) -> bool:
        """Return whether the operator has pressed Ctrl-C."""
        return self.engine.command.is_interrupted

    def run(self, watch: Watch) -> tuple[Progress, ...]:
        """Run all steps; after a step with a failure the rest is skipped. `watch` gets the states five times a second.

        The first Ctrl-C stops the engine cleanly; the rest is skipped then, too.
        """
        # A KeyboardInterrupt could be raised anywhere, between the check of a state and its use too.
        handler = signal.signal(signal.SIGINT, lambda *_: self.engine.command.interrupt())
        try:
            with ThreadPoolExecutor(max(1, *(len(step) for step in self.steps))) as pool:
                for step in self.steps:
                    if not self._is_broken():
                        self._wait([pool.submit(self._run, task) for task in step], watch)
        finally:
            signal.signal(signal.SIGINT, handler)
        for task, progress in self._states.items():
            if progress.status is Status.WAITING:
                self._update(task, replace(progress, status=Status.SKIPPED))
        watch(self.states)
        return self.states

    def _wait(self, futures: Sequence[Future[None]], watch: Watch) -> None:
        running: Collection[Future[None]] = futures
        while running:
            watch(self.states)
            running = wait(running, _PERIOD).not_done
        for future in futures:
            future.result()

    def _is_broken(self) -> bool:
        return self.is_interrupted or any(state.status is Status.FAILED for state in self.states)

    def _run(self, task: Task) -> None:
        stack, operation = task
        self._started[task] = time.monotonic()
        self._update(task, replace(self._states[task], status=Status.RUNNING))
        try:
            self.engine.run(stack, operation, lambda event: self._update(task, advance(self._states[task], event)))
            self.then(task)
            result = replace(self._states[task], status=Status.DONE)
        except BedplateError as error:
            progress = self._states[task]
            message = "\n".join(filter(None, (error.what, error.fix and f"fix: {error.fix}")))
            # Before the engine listens to SIGINT, it ends at once: it has not begun.
            stopped = self.is_interrupted and not progress.causes
            causes = (STOPPED,) if stopped else progress.causes or (Cause("", message),)
            result = replace(progress, status=Status.FAILED, causes=causes, exit_code=error.exit_code)
        self._update(task, replace(result, current="", seconds=time.monotonic() - self._started[task]))

    def _update(self, task: Task, progress: Progress) -> None:
        with self._lock:
            self._states[task] = progress
