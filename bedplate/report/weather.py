"""What the weather of a rehearsal did, as an operator reads it: what was missing meanwhile, and what came after."""

from collections.abc import Iterator, Sequence
from textwrap import TextWrapper

from bedplate.rehearsal import urn as urns
from bedplate.rehearsal.moto_launches import Shortage
from bedplate.rehearsal.report import Phase, Report, StackReport
from bedplate.rehearsal.weather import Trouble
from bedplate.report.columns import WIDTH, aligned, counted
from bedplate.report.types import type_name

_WRAPPER = TextWrapper(
    WIDTH, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False, break_long_words=False
)


def weather_lines(report: Report) -> Iterator[str]:
    """Yield how often each fault was met, what was missing because of it, and how all was made whole after it."""
    told = report.endured
    if not told.met:
        return
    yield ""
    for fault, count in told.met.items():
        yield f"weather {fault}: met {counted(count, 'time')}" + ("" if count else ", for nothing asked for it")
    if any(fault.partition(":")[0] == Trouble.LOST_REPLIES for fault in told.met):
        yield "  what had no client token was looked for; the AWS provider alone may make it twice (docs/faults.md)"
    yield from _missing(report.stacks)
    yield from _shortages(told.shortages)
    yield from _after(report)


def _missing(stacks: Sequence[StackReport]) -> Iterator[str]:
    short = [stack for stack in stacks if stack.missing]
    if short:
        yield "missing while it lasted:"
    for stack in short:
        yield f"  {stack.name}: {_share(stack)}"
        yield from _names(stack)


def _share(stack: StackReport) -> str:
    total, missing = sum(stack.types.values()), len(stack.missing)
    return f"all {counted(total, 'resource')}" if missing == total else f"{missing:,} of {counted(total, 'resource')}"


def _names(stack: StackReport) -> Iterator[str]:
    """Yield a line or more for each type, with the names of what is missing; nothing where all of a stack is."""
    if len(stack.missing) == sum(stack.types.values()):
        return
    named: dict[str, list[str]] = {}
    for urn in stack.missing:
        named.setdefault(type_name(urns.parse(urn).type), []).append(urns.parse(urn).name)
    for kind in sorted(named):
        yield from _WRAPPER.wrap(f"{kind} {', '.join(named[kind])}")


def _shortages(shortages: Sequence[Shortage]) -> Iterator[str]:
    if shortages:
        yield "machines that did not come:"
    yield from aligned(
        (f"  {one.group}", one.region, one.code, f"{one.missing:,} of {counted(one.wanted, 'machine')}")
        for one in shortages
    )


def _after(report: Report) -> Iterator[str]:
    if Phase.MEND not in {phase for stack in report.stacks for phase in stack.runs} or report.unexplained:
        yield "when it was over, not all could be made either: see above"
        return
    made = sum(len(stack.missing) for stack in report.stacks)
    did = f"a second run made the {counted(made, 'resource')} that were missing" if made else "nothing was missing"
    yield f"when it was over, {did}"
    if report.endured.shortages:
        yield "  the groups started their machines by themselves"
    yield "  a third run changed nothing" if report.is_stable else "  a third run changed more, and must not"
