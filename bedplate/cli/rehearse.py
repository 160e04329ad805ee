"""The commands that run stacks in the simulated AWS: rehearse, and graph, which prints the resources it created."""

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_fleet, plan_loaded, plan_of, resource_origin
from bedplate.cli.output import (
    DEFAULT_FLEET,
    FleetFile,
    Json,
    Parts,
    SafeStream,
    is_terminal,
    notify,
    show,
    show_document,
)
from bedplate.cli.stacks import Later, Waves, audit_report, later_fleet, program_stack, teardown_waves, waves
from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.graph.audit.rules import Severity, StackFault
from bedplate.graph.terraform import plan_document
from bedplate.plan import FleetPlan, bill
from bedplate.plan.document import Origin, unknown_origin
from bedplate.plan.stacks import stack_name
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
    _print_report(report, unknown_origin, json=json)
    if not json:
        show(line for stack in report.stacks for line in export_lines(stack))
    return _status(report, ())


def _rehearse_fleet(
    path: Path, parts: tuple[str, ...], changed: Path | None, faults: tuple[str, ...], *, json: bool
) -> int:
    loaded = open_fleet(path)
    plan = plan_loaded(loaded)
    later = later_fleet(changed, loaded, plan, parts) if changed else None
    injected = parse_faults(faults, plan)
    stacks = waves(plan, parts)
    with _progress() as watch:
        course = later.course if later else Course(teardown=teardown_waves(plan, parts))
        report = run_rehearsal(plan.account, stacks, course, watch, injected)
    violations = audit_report(report)
    _print_report(report, resource_origin(loaded, plan), violations, later, json=json)
    if report.ok and not json:
        show((*outlook_lines(plan, report), *price_lines(bill(plan, load_catalog())), next_line(plan, report)))
    return _status(report, violations)


def _print_report(
    report: Report,
    origin: Origin,
    violations: Iterable[StackFault] | None = None,
    later: Later | None = None,
    *,
    json: bool,
) -> None:
    """Print the report, and the violations if the stacks were checked."""
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
    if any(fault.level is Severity.ERROR for fault in violations) or not report.is_stable:
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
def _progress() -> Iterator[StepCallback]:
    """Show progress on stderr: a live table on a terminal, else one line for each phase of a stack."""
    tally = _Tally()

    def on_terminal(stack: str, phase: Phase, step: Step) -> None:
        tally.count(stack, phase, step)

    def in_log(stack: str, phase: Phase, step: Step) -> None:
        if tally.count(stack, phase, step):
            notify([f"{stack}: {_DOING[phase]}"])

    if is_terminal():
        # While a Live runs, rich replaces sys.stderr by a stream that leads back to the Live. This one does not.
        console = Console(file=cast("IO[str]", SafeStream(sys.stderr)))
        with Live(tally, console=console, transient=True):
            yield on_terminal
    else:
        yield in_log


class Format(StrEnum):
    """The output format of `graph`."""

    GRAPH = "graph"
    TERRAFORM_PLAN = "terraform-plan"


def graph(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    every: Annotated[bool, typer.Option("--all", help="Print the resources of all stacks.")] = False,
    form: Annotated[
        Format, typer.Option("--format", help="terraform-plan suits policy tools such as checkov and conftest.")
    ] = Format.GRAPH,
) -> int:
    """Print a stack's resources as JSON.

    As the simulated AWS creates them. The exit status is 2 if AWS would reject a resource.
    """
    if bool(stack) is every:
        what = "--all and --stack exclude each other" if every else "no stack selected"
        raise InputError(what, fix="pass --stack PART or --all")
    plan = plan_of(fleet)
    parts = tuple(stack or ())
    report = _created(plan, waves(plan, parts))
    resources = list(_resources(report, {stack_name(plan, part) for part in parts}))
    show_document(plan_document(resources) if form is Format.TERRAFORM_PLAN else resources)
    return InputError.exit_code if any(stack.failures for stack in report.stacks) else 0


def created_resources(plan: FleetPlan, stacks: Waves) -> Iterator[dict[str, object]]:
    """Return the resources of the stacks, created in the simulated AWS. Raises InputError if creation fails."""
    report = _created(plan, stacks)
    if any(stack.failures for stack in report.stacks):
        raise InputError("the fleet's stacks cannot be created", fix="run `bedplate rehearse` for details")
    return _resources(report)


def _created(plan: FleetPlan, stacks: Waves) -> Report:
    """Create the stacks in the simulated AWS. Failures go to stderr."""
    report = create(plan.account, stacks)
    for stack in report.stacks:
        notify(failure_lines(stack))
    return report


def _resources(report: Report, names: Collection[str] = ()) -> Iterator[dict[str, object]]:
    """Yield the resources of the stacks with these names, or of all stacks."""
    for stack in report.stacks:
        if not names or stack.name in names:
            yield from resources_of(stack.runs[Phase.CREATE].snapshot.entries.values())
