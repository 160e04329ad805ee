"""The state of one stack's operation, from the events of Pulumi's engine; and drift, from the preview of a refresh."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pulumi.automation.events import DiagnosticEvent, EngineEvent, StepEventMetadata, StepEventStateMetadata

# How Pulumi marks an encrypted value.
_SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105  the mark, not a secret
_PATH = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)')


@dataclass(frozen=True, slots=True)
class Difference:
    """One property that differs; `key` is empty for a resource that was deleted outside Pulumi."""

    urn: str
    key: str
    recorded: Any
    real: Any


def differences(step: StepEventMetadata) -> Iterator[Difference]:
    """Yield the differences of a step of a refresh, or of a preview, where `real` is the planned value.

    The provider names the properties that the next `up` would correct; values that AWS merely computes are not drift.
    """
    kind = str(getattr(step.op, "value", step.op))
    if kind == "delete":
        yield Difference(step.urn, "", step.old.id if step.old else None, None)
    elif kind in ("update", "replace"):
        for key in sorted(step.detailed_diff or step.diffs or ("",)):
            path = tuple(quoted or index or name for quoted, index, name in _PATH.findall(key))
            yield Difference(step.urn, key, _value(step.old, path), _value(step.new, path))


def _value(state: StepEventStateMetadata | None, path: tuple[str, ...]) -> Any:  # noqa: ANN401  any JSON value
    """Return the input, or else the output, at a path of property names and list indexes; None if it is missing."""
    if not state or not path:
        return None
    value = _at(state.inputs or {}, path)
    return _without_secrets(_at(state.outputs or {}, path) if value is None else value)


def _at(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401
    for part in path:
        if isinstance(value, Mapping):
            if _SECRET in value:
                return value
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _without_secrets(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return "[secret]" if _SECRET in value else {key: _without_secrets(item) for key, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


class Operation(StrEnum):
    """The engine's operation on a stack."""

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
_SUMMARY = re.compile(r"(preview|update|destroy) (failed|canceled)$|an unhandled error occurred: program exited")


@dataclass(frozen=True, slots=True)
class Cause:
    """One error: the resource, empty for an error of the program, and the engine's message.

    `log` is the whole message of a defect of the program, with its traceback; else empty.
    """

    resource: str
    message: str
    log: str = ""


STOPPED = Cause("", "stopped by you")


@dataclass(frozen=True, slots=True)
class Progress:
    """One operation of a stack.

    `steps` has the kind of each finished change by URN, `total` is the number of changes that the preview announced.
    `differences` is the drift that a check has found, or what a preview would change. `exit_code` is that of the error,
    `seconds` the length of a finished operation.
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
    drift = tuple(differences(step)) if progress.operation in (Operation.CHECK, Operation.PREVIEW) else ()
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
