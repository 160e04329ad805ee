"""Drift: what the preview of a refresh says about one resource whose state differs from AWS."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi.automation.events import StepEventMetadata, StepEventStateMetadata

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
    """Yield the differences of a step of a refresh.

    The provider names the properties that the next `up` would correct; values that AWS merely computes are not drift.
    """
    kind = str(getattr(step.op, "value", step.op))
    if kind == "delete":
        yield Difference(step.urn, "", step.old.id if step.old else None, None)
    elif kind == "update":
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
