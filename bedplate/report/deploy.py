"""The table of a deployment: stack, phase, finished operations, current resource, time; then errors and next steps."""

from collections.abc import Iterable, Iterator, Sequence

from bedplate.deploy.progress import Progress, Status, resource_name

_CHANGES = ("create", "import", "update", "replace", "delete")
# Those that remove something are shown by name.
_LISTED = ("replace", "delete")
_NAME, _STATE, _COUNT, _TIME = 24, 16, 12, 8


def progress_lines(states: Sequence[Progress], width: int) -> Iterator[str]:
    """Yield one line for each stack, at most as wide as the terminal."""
    for state in states:
        line = (
            f"{state.stack:<{_NAME}} {_state(state):<{_STATE}} {_count(state):>{_COUNT}} "
            f"{_seconds(state):>{_TIME}}  {state.current}"
        )
        yield line[:width].rstrip()


def _state(state: Progress) -> str:
    return str(state.operation) if state.status is Status.RUNNING else f"{state.operation} {state.status}"


def _count(state: Progress) -> str:
    if state.status is Status.WAITING:
        return f"{state.total}" if state.total else ""
    done = len(state.steps)
    return f"{done}/{state.total}" if state.total > done else f"{done}"


def _seconds(state: Progress) -> str:
    return f"{state.seconds:.1f} s" if state.seconds else ""


def change_lines(states: Iterable[Progress]) -> Iterator[str]:
    """Yield what a preview announces for each stack, and each replacement and deletion by its name."""
    for state in states:
        counts = ", ".join(f"{state.changes[kind]} {kind}" for kind in _CHANGES if kind in state.changes)
        yield f"{state.stack:<{_NAME}} {counts or 'no change'}"
        for urn, kind in state.steps.items():
            if kind in _LISTED:
                yield f"  {kind:<8} {resource_name(urn)}"


def cause_lines(states: Iterable[Progress]) -> Iterator[str]:
    """Yield the errors of each failed stack."""
    for state in states:
        for cause in state.causes:
            first, *rest = cause.message.splitlines() or [""]
            place = f"{state.stack} {cause.resource}".rstrip()
            yield f"error: {place}: {first}"
            yield from (f"  {line.strip()}" for line in rest)


def kept_lines(stacks: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield the number of protected resources that each stack kept."""
    for name, resources in stacks:
        if resources:
            yield f"{name:<{_NAME}} kept {resources} resources: protected data, keys and what they need"
