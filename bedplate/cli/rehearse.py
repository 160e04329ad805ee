"""The command that runs stacks in the simulated AWS, and the resources that it creates, for graph and reach."""

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from bedplate import STARTED
from bedplate.catalog import load_catalog
from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, Parts, Terminal
from bedplate.cli.output import SafeStream, is_terminal, notify, show, show_document
from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.graph.audit.document import StackFault
from bedplate.graph.audit.exposure import PUBLIC_PORTS
from bedplate.operate.fleet import open_fleet, plan_loaded, resource_origin
from bedplate.operate.rehearsal_stacks import (
    Later,
    Waves,
    audit_report,
    later_fleet,
    program_stack,
    teardown_waves,
    waves,
)
from bedplate.plan import FleetPlan, bill
from bedplate.plan.stacks import Origin, stack_name, unknown_origin
from bedplate.rehearsal.faults import Fault, NoCapacity, RegionDown
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.rehearse import Course, Phase, Report, StepCallback, create, document
from bedplate.rehearsal.rehearse import rehearse as run_rehearsal
from bedplate.rehearsal.stack import graph as resources_of
from bedplate.rehearsal.state import Step
from bedplate.report.cost import price_lines
from bedplate.report.graph import judgement_lines, traced_fault_document
from bedplate.report.rehearsal import (
    export_lines,
    failure_lines,
    next_line,
    outlook_lines,
    rehearsal_lines,
    type_lines,
    types_document,
)
from bedplate.report.updates import diff_document, diff_lines, order_document, order_lines
from bedplate.rules import Level

ACCOUNT_OF_PROGRAMS = "123456789012"
_FAULTS = "region-down:REGION or no-capacity:TYPE@ZONE"


def rehearse(  # noqa: PLR0913 - one parameter an option
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    changed: Annotated[
        Path | None, typer.Option(metavar="FLEET2", help="Also change the stacks to this fleet file.")
    ] = None,
    program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rehearse your own Pulumi program instead of a fleet.")
    ] = None,
    region: Annotated[str, typer.Option(metavar="REGION", help="With --program: its region.")] = "us-east-1",
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="FAULT", help=f"Inject {_FAULTS} while stacks are created; repeatable."),
    ] = None,
    types: Annotated[bool, typer.Option("--types", help="List the simulated resource types instead.")] = False,
    json: Json = False,
) -> int:
    """Run the stacks in a simulated AWS.

    Create them, run them again, change them, destroy them. The exit status is 2 if AWS would reject a resource, 3 if
    a second run changes something or a rule is violated, 6 if only injected faults prevented resources.
    """
    if types:
        _print_types(json=json)
        return 0
    if program:
        return _rehearse_program(program, region, parse_faults(fault or ()), json=json)
    return _rehearse_fleet(fleet, tuple(stack or ()), changed, tuple(fault or ()), json=json)


def parse_faults(texts: Sequence[str], plan: FleetPlan | None = None) -> tuple[Fault, ...]:
    """Return the faults that the options name. Raises InputError for an invalid one, or a place outside the plan."""
    regions = {region.name: region.zones for region in plan.regions} if plan else {}
    zones = {zone.name for region_zones in regions.values() for zone in region_zones}
    return tuple(_parse_fault(text, regions.keys(), zones) for text in texts)


def _parse_fault(text: str, regions: Collection[str], zones: Collection[str]) -> Fault:
    kind, _, value = text.partition(":")
    instance_type, _, zone = value.partition("@")
    if kind == "region-down" and value:
        _check_place("region", value, regions)
        return RegionDown(value)
    if kind == "no-capacity" and instance_type and zone:
        _check_place("zone", zone, zones)
        return NoCapacity(instance_type, zone)
    raise InputError(f"unknown fault {text}", fix=f"write {_FAULTS}")


def _check_place(noun: str, name: str, names: Collection[str]) -> None:
    if names and name not in names:
        raise InputError(f"the fleet has no {noun} {name}", fix=f"write one of {', '.join(sorted(names))}")


def _print_types(*, json: bool) -> None:
    if json:
        show_document(types_document(KINDS))
    else:
        show(type_lines(KINDS))


def _rehearse_program(file: Path, region: str, faults: tuple[Fault, ...], *, json: bool) -> int:
    stacks = ((program_stack(file, region),),)
    with _progress() as watch:
        report = run_rehearsal(ACCOUNT_OF_PROGRAMS, stacks, Course(), watch, faults)
    # The other rules are those of bedplate's own stacks.
    exposures = tuple(fault for fault in audit_report(report) if fault.code in PUBLIC_PORTS)
    _print_report(report, unknown_origin, exposures or None, json=json)
    if not json:
        show(line for stack in report.stacks for line in export_lines(stack))
    return _status(report, exposures)


def _rehearse_fleet(
    path: Path, parts: tuple[str, ...], changed: Path | None, faults: tuple[str, ...], *, json: bool
) -> int:
    loaded = open_fleet(Terminal(path), brief=False)
    plan = plan_loaded(loaded)
    later = later_fleet(Terminal(changed), loaded, plan, parts) if changed else None
    injected = parse_faults(faults, plan)
    stacks = waves(plan, parts)
    with _progress() as watch:
        course = later.course if later else Course(teardown=teardown_waves(plan, parts))
        report = run_rehearsal(plan.account, stacks, course, watch, injected)
    violations = audit_report(report)
    _print_report(report, resource_origin(loaded, plan), violations, later, json=json)
    if report.ok and not json:
        last_plan = later.plan if later else plan
        is_recorded = not (plan.new_blocks or last_plan.new_blocks)
        _print_outlook(report, last_plan, waves(last_plan, parts) if later else stacks, is_recorded=is_recorded)
    return _status(report, violations)


def _print_outlook(report: Report, plan: FleetPlan, stacks: Waves, *, is_recorded: bool) -> None:
    """Print what a deployment of the last fleet file would have, its price, and the next command."""
    reports = {stack.name: stack for stack in report.stacks}
    last = replace(report, stacks=tuple(reports[stack.name] for wave in stacks for stack in wave))
    show((*outlook_lines(plan, last), *price_lines(bill(plan, load_catalog()))))
    show([next_line(last, is_recorded=is_recorded)])


def _print_report(
    report: Report,
    origin: Origin,
    violations: Iterable[StackFault] | None = None,
    later: Later | None = None,
    *,
    json: bool,
) -> None:
    """Print the report, and the violations if the stacks were checked. The time is that of the whole command."""
    report = replace(report, seconds=time.perf_counter() - STARTED)
    if json:
        status = {
            "ok": _status(report, violations or ()) == 0,
            "faults": traced_fault_document(violations or (), origin),
        }
        show_document(document(report, origin) | status | _change_document(later))
        return
    if later:
        show((*diff_lines(later.edits), *order_lines(later.plan, later.order), ""))
    show(rehearsal_lines(report, origin, later.key if later else unknown_origin))
    if violations is not None and not report.real_failures:
        show(judgement_lines(violations, origin))


def _change_document(later: Later | None) -> dict[str, object]:
    return diff_document(later.edits) | order_document(later.plan, later.order) if later else {}


def _status(report: Report, violations: Iterable[StackFault]) -> int:
    if report.real_failures:
        return InputError.exit_code
    if any(fault.level is Level.ERROR for fault in violations) or not report.is_stable:
        return ViolationError.exit_code
    return PartialError.exit_code if report.is_partial else 0


_DOING = {
    Phase.CREATE: "creating",
    Phase.RECOVER: "creating missing resources",
    Phase.AGAIN: "running again",
    Phase.CHANGE: "changing",
    Phase.DESTROY: "destroying",
}


class _Tally:
    """The phase of each stack and its number of steps so far. The stacks' threads write to it."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[Phase, int]] = {}

    def count(self, stack: str, phase: Phase, step: Step) -> bool:
        """Count a step. Return whether it is the first of its phase."""
        current, count = self._counts.get(stack, (None, 0))
        self._counts[stack] = (phase, step.is_in_cloud + (count if current is phase else 0))
        return current is not phase

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 3))
        for stack, (phase, count) in list(self._counts.items()):
            table.add_row(stack, _DOING[phase], f"{count:,}")
        return table


@contextmanager
def _progress(*, in_log: bool = True) -> Iterator[StepCallback]:
    """Show progress on stderr: a live table on a terminal, else, with `in_log`, one line for each phase of a stack."""
    tally = _Tally()

    def count(stack: str, phase: Phase, step: Step) -> None:
        if tally.count(stack, phase, step) and in_log and not is_terminal():
            notify([f"{stack}: {_DOING[phase]}"])

    # While a Live runs, rich replaces sys.stderr by a stream that leads back to the Live. This one does not.
    console = Console(file=cast("IO[str]", SafeStream(sys.stderr)))
    try:
        with Live(tally, console=console, transient=True) if is_terminal() else nullcontext():
            yield count
    except KeyboardInterrupt:
        notify(["stopped; nothing is left behind: AWS was simulated"])
        raise


def create_stacks(plan: FleetPlan, parts: Sequence[str]) -> tuple[list[dict[str, object]], bool]:
    """Create these parts of the fleet, or all, in the simulated AWS. Return their resources, and whether all exist.

    Failures go to stderr.
    """
    with _progress(in_log=False) as watch:
        report = create(plan.account, waves(plan, parts), watch)
    for stack in report.stacks:
        notify(failure_lines(stack))
    names = {stack_name(plan, part) for part in parts}
    runs = [stack.runs[Phase.CREATE] for stack in report.stacks if not names or stack.name in names]
    resources = [resource for run in runs for resource in resources_of(run.snapshot.entries.values())]
    return resources, not any(stack.failures for stack in report.stacks)
