"""A rehearsal as an operator reads it: a line a stack, what changed, what failed, and what comes next."""

from collections import Counter
from collections.abc import Iterator

from bedplate.rehearsal import urn as urns
from bedplate.rehearsal.kind import Support
from bedplate.rehearsal.report import Phase, Report, StackReport, support
from bedplate.rehearsal.step import Failure, Op, Step
from bedplate.report.columns import aligned, counted

HEAD = ("stack", "created", "again", "changed", "destroyed", "kept", "time")
FIGURES = (1, 3, 4)
NONE = "-"


def rehearsal_lines(report: Report) -> Iterator[str]:
    """Yield a table of the stacks, then each change, each failure, and what was made of what."""
    yield from aligned([HEAD, *(_row(stack) for stack in report.stacks)], right=FIGURES)
    for stack in report.stacks:
        yield from change_lines(stack)
    for stack in report.stacks:
        yield from failure_lines(stack)
    yield from _types(report)


def change_lines(stack: StackReport) -> Iterator[str]:
    """Yield what `--changed` did to each resource in the cloud, and which of its inputs moved."""
    steps = [step for step in stack.changes(Phase.CHANGE) if step.is_in_cloud]
    if steps:
        yield from ("", f"what the change does to {stack.name}:")
        yield from aligned(_change(step) for step in steps)


def failure_lines(stack: StackReport) -> Iterator[str]:
    """Yield each resource that failed, with the reason, and how many were not tried because of it."""
    failures = [failure for failure in stack.failures if not failure.skipped]
    for failure in failures:
        yield from ("", f"{stack.name}  {_subject(failure)}   {failure.code}")
        yield f"    {failure.message}"
    skipped = len(stack.failures) - len(failures)
    if skipped:
        yield f"    {counted(skipped, 'resource')} that need it were not tried"


def _row(stack: StackReport) -> tuple[str, ...]:
    return (
        stack.name,
        f"{stack.count(Phase.CREATE, Op.CREATE):,}",
        _again(stack),
        f"{sum(step.is_in_cloud for step in stack.changes(Phase.CHANGE)):,}" if _reached(stack, Phase.CHANGE) else NONE,
        f"{stack.count(Phase.DESTROY, Op.DELETE):,}",
        f"{len(stack.kept)} protected" if stack.kept else NONE,
        f"{stack.seconds:.1f} s",
    )


def _reached(stack: StackReport, phase: Phase) -> bool:
    return phase in stack.runs


def _again(stack: StackReport) -> str:
    if not _reached(stack, Phase.AGAIN):
        return NONE
    changed = len(stack.changes(Phase.AGAIN))
    return counted(changed, "change") if changed else "no change"


def _change(step: Step) -> tuple[str, ...]:
    urn = urns.parse(step.urn)
    return (f"  {step.op.value}", urn.type, urn.name, ", ".join(step.keys))


def _subject(failure: Failure) -> str:
    if not failure.urn:
        return "the program"
    urn = urns.parse(failure.urn)
    key = f" {failure.key}" if failure.key else ""
    return f"{urn.type} {urn.name}{key}"


def _types(report: Report) -> Iterator[str]:
    counts = sum((Counter(stack.types) for stack in report.stacks), Counter[str]())
    faked = [token for token in sorted(counts) if support(token) is Support.FAKED]
    told = f", {counted(len(faked), 'type')} faked ({', '.join(faked)})" if faked else ""
    yield ""
    yield (
        f"{counted(counts.total(), 'resource')} of {counted(len(counts), 'type')} in a simulated AWS{told}, "
        f"{report.seconds:.1f} s"
    )
