"""Runs the steps of a deployment, the stacks of a step in parallel, and follows the events of each stack."""

import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pulumi.automation.events import DiagnosticEvent, EngineEvent, StepEventMetadata

from bedplate.deploy.engine import Engine
from bedplate.deploy.state import Difference, differences
from bedplate.errors import BedplateError


class Operation(StrEnum):
    """What the engine does with a stack."""

    PREVIEW = "preview"
    UP = "up"
    DESTROY = "destroy"
    REFRESH = "refresh"
    CHECK = "check"


class Status(StrEnum):
    """How far the operation of a stack is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    LATER = "later"
    """Cannot be previewed: it reads outputs that this command creates."""


# The engine also reports the parts of a replacement, which `replace` counts, and operations that change nothing.
_COUNTED = frozenset({"create", "update", "delete", "replace", "import"})

_COLOUR = re.compile(r"<\{%.*?%\}>")
# What the program of a stack says about an output of another stack (stacks/options.py).
_MISSING_OUTPUT = re.compile(r"the stack (\S+) has no .* yet")
# Without the exception itself, which follows.
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+", re.MULTILINE)
# An error that is not a defect of the program.
_OWN_ERROR = re.compile(r"bedplate\.[\w.]+: ")
# What the engine says after the error itself.
_SUMMARY = re.compile(r"(preview|update|destroy) failed$|an unhandled error occurred: program exited")


@dataclass(frozen=True, slots=True)
class Cause:
    """One error: the resource, empty for an error of the program, and the engine's message.

    `log` is the whole message of a defect of the program, with its traceback; else empty.
    """

    resource: str
    message: str
    log: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """One operation of a stack.

    `steps` has the kind of each finished change by URN, `total` is the number of changes that the preview announced.
    `differences` is the drift that a check has found. `exit_code` is that of the error, `seconds` the length
    of a finished operation.
    """

    stack: str
    operation: Operation
    status: Status = Status.WAITING
    steps: Mapping[str, str] = field(default_factory=dict)
    total: int = 0
    current: str = ""
    causes: tuple[Cause, ...] = ()
    differences: tuple[Difference, ...] = ()
    exit_code: int = 0
    seconds: float = 0.0

    def waits_for(self, stacks: Collection[str]) -> bool:
        """Return whether it failed only because one of the stacks lacks an output that a deployment creates."""
        missing = [_MISSING_OUTPUT.search(cause.message) for cause in self.causes]
        return bool(missing) and all(match is not None and match[1] in stacks for match in missing)

    @property
    def changes(self) -> Mapping[str, int]:
        """The number of finished changes of each kind."""
        return Counter(self.steps.values())


def advance(progress: Progress, event: EngineEvent) -> Progress:
    """Return the state after an event."""
    if event.resource_pre_event is not None:
        step = event.resource_pre_event.metadata
        return replace(progress, current=resource_name(step.urn)) if _kind(step) in _COUNTED else progress
    if event.res_outputs_event is not None:
        return _finished(progress, event.res_outputs_event.metadata)
    if event.diagnostic_event is not None and event.diagnostic_event.severity == "error":
        return _failed(progress, event.diagnostic_event)
    return progress


def _finished(progress: Progress, step: StepEventMetadata) -> Progress:
    if _kind(step) not in _COUNTED:
        return progress
    drift = tuple(differences(step)) if progress.operation is Operation.CHECK else ()
    # A component has a second event, with its outputs.
    steps = {**progress.steps, step.urn: _kind(step)}
    return replace(progress, steps=steps, differences=(*progress.differences, *drift))


def _kind(step: StepEventMetadata) -> str:
    return str(getattr(step.op, "value", step.op))


def _failed(progress: Progress, event: DiagnosticEvent) -> Progress:
    text = _plain(event.message)
    *before, error = _TRACEBACK.split(text)
    is_defect = bool(before) and not _OWN_ERROR.match(error)
    message = _OWN_ERROR.sub("", error, count=1) if before else text
    cause = Cause(resource_name(event.urn or ""), message, text if is_defect else "")
    is_known = cause in progress.causes or _SUMMARY.match(cause.message)
    return progress if is_known else replace(progress, causes=(*progress.causes, cause))


def _plain(message: str) -> str:
    """Return an engine's message without its colour marks and empty lines."""
    text = _COLOUR.sub("", message)
    return "\n".join(line for line in text.strip().removeprefix("error: ").splitlines() if line.strip())


def resource_name(urn: str) -> str:
    """Return the type and name in a URN: `aws:ec2/vpc:Vpc lab`; empty for the stack itself."""
    parts = urn.split("::")
    if len(parts) < 4:  # noqa: PLR2004  urn:pulumi:STACK::PROJECT::TYPE::NAME
        return ""
    kind, name = parts[2].rpartition("$")[2], "::".join(parts[3:])
    return "" if kind == "pulumi:pulumi:Stack" else f"{kind} {name}"


Task = tuple[str, Operation]
Watch = Callable[[Sequence[Progress]], object]
_PERIOD = 0.2


@dataclass(slots=True)
class Deployment:
    """The state of all operations of one command, in their order; safe for threads."""

    engine: Engine
    steps: Sequence[Sequence[Task]]
    totals: Mapping[Task, int] = field(default_factory=dict)
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
            result = replace(self._states[task], status=Status.DONE)
        except BedplateError as error:
            progress = self._states[task]
            message = "\n".join(filter(None, (error.what, error.fix and f"fix: {error.fix}")))
            # Before the engine listens to SIGINT, it ends at once: it has not begun.
            stopped = self.is_interrupted and not progress.causes
            causes = (Cause("", "interrupted"),) if stopped else progress.causes or (Cause("", message),)
            result = replace(progress, status=Status.FAILED, causes=causes, exit_code=error.exit_code)
        self._update(task, replace(result, current="", seconds=time.monotonic() - self._started[task]))

    def _update(self, task: Task, progress: Progress) -> None:
        with self._lock:
            self._states[task] = progress
