"""`bedplate rehearse`: every stack created, run again, changed and destroyed in a simulated AWS."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, Parts, show, show_document
from bedplate.errors import InputError, PartError, ViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bedplate.cli.stacks import Later, Waves
    from bedplate.graph.audit.rules import StackFault
    from bedplate.plan import FleetPlan
    from bedplate.plan.document import Origin
    from bedplate.rehearsal.faults import Fault
    from bedplate.rehearsal.rehearse import Report

ACCOUNT_OF_PROGRAMS = "123456789012"
_FAULTS = "region-down:REGION or no-capacity:TYPE@ZONE"


def rehearse(  # noqa: PLR0913 - one parameter an option
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    changed: Annotated[
        Path | None, typer.Option(metavar="FLEET2", help="Show what this fleet file would change.")
    ] = None,
    program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rehearse a Pulumi AWS program of your own instead.")
    ] = None,
    region: Annotated[str, typer.Option(metavar="R", help="With --program: its region.")] = "us-east-1",
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="FAULT", help=f"Inject {_FAULTS} while the stacks are created (repeatable)."),
    ] = None,
    types: Annotated[bool, typer.Option("--types", help="List the resource types it has a model of instead.")] = False,
    json: Json = False,
) -> int:
    """Run the stacks in a simulated AWS."""
    if types:
        return _list_types(json=json)
    if program:
        return _rehearse_program(program, region, parse_faults(fault or ()), json=json)
    return _rehearse_fleet(fleet, tuple(stack or ()), changed, tuple(fault or ()), json=json)


def parse_faults(texts: "Sequence[str]", plan: "FleetPlan | None" = None) -> "tuple[Fault, ...]":
    """Return the faults that the options name; raise InputError for an invalid one, or a place outside the plan."""
    return tuple(_parse_fault(text, plan) for text in texts)


def _parse_fault(text: str, plan: "FleetPlan | None") -> "Fault":
    from bedplate.rehearsal.faults import NoCapacity, RegionDown

    kind, _, value = text.partition(":")
    instance_type, _, zone = value.partition("@")
    regions = {region.name: region.zones for region in plan.regions} if plan else {}
    if kind == "region-down" and value:
        _check_place("region", value, regions)
        return RegionDown(value)
    if kind == "no-capacity" and instance_type and zone:
        _check_place("zone", zone, {each.name for zones in regions.values() for each in zones})
        return NoCapacity(instance_type, zone)
    raise InputError(f"unknown fault {text}", fix=f"write {_FAULTS}")


def _check_place(what: str, name: str, known: "Iterable[str]") -> None:
    if known and name not in known:
        raise InputError(f"the fleet has no {what} {name}", fix=f"one of {', '.join(sorted(known))}")


def _list_types(*, json: bool) -> int:
    from bedplate.rehearsal.kinds import KINDS
    from bedplate.report.rehearsal import type_lines, types_document

    if json:
        show_document(types_document(KINDS))
    else:
        show(type_lines(KINDS))
    return 0


def _rehearse_program(file: Path, region: str, faults: "tuple[Fault, ...]", *, json: bool) -> int:
    from bedplate.cli.stacks import program_stack
    from bedplate.plan.document import unknown_origin
    from bedplate.report.rehearsal import export_lines

    report = _act(ACCOUNT_OF_PROGRAMS, ((program_stack(file, region),),), (), faults)
    _print(report, unknown_origin, json=json)
    if not json:
        show(line for stack in report.stacks for line in export_lines(stack))
    return _status(report, ())


def _rehearse_fleet(
    path: Path, asked: tuple[str, ...], changed: Path | None, injected: tuple[str, ...], *, json: bool
) -> int:
    from bedplate.catalog import load_catalog
    from bedplate.cli.fleet import opened, planned, tracing
    from bedplate.cli.stacks import judged, later_fleet, waves
    from bedplate.plan import bill
    from bedplate.report.cost import price_lines
    from bedplate.report.rehearsal import next_line, outlook_lines

    loaded = opened(path)
    plan = planned(loaded)
    later = later_fleet(changed, loaded, plan, asked) if changed else None
    after = later.waves if later else ()
    report = _act(plan.account, waves(plan, asked), after, parse_faults(injected, plan))
    faults = judged(report)
    _print(report, tracing(loaded, plan), faults, later, json=json)
    if report.ok and not json:
        show((*outlook_lines(plan, report), *price_lines(bill(plan, load_catalog())), next_line(plan, report)))
    return _status(report, faults)


def _act(account: str, before: "Waves", after: "Waves", faults: "tuple[Fault, ...]") -> "Report":
    from bedplate.cli.progress import progress
    from bedplate.rehearsal.rehearse import rehearse as act

    with progress() as watch:
        return act(account, before, after, watch, faults)


def _print(
    report: "Report",
    origin: "Origin",
    faults: "Iterable[StackFault] | None" = None,
    later: "Later | None" = None,
    *,
    json: bool,
) -> None:
    """Print what a rehearsal came to, and what the checks say of it where they were asked."""
    from bedplate.plan.document import unknown_origin
    from bedplate.rehearsal.rehearse import document
    from bedplate.report.graph import judgement_lines, traced_fault_document
    from bedplate.report.rehearsal import rehearsal_lines
    from bedplate.report.updates import diff_document, diff_lines

    if json:
        status = {"ok": _status(report, faults or ()) == 0, "faults": traced_fault_document(faults or (), origin)}
        show_document(document(report, origin) | status | (diff_document(later.edits) if later else {}))
        return
    if later:
        show((*diff_lines(later.edits), ""))
    show(rehearsal_lines(report, origin, later.key if later else unknown_origin))
    if faults is not None and not report.real_failures:
        show(judgement_lines(faults, origin))


def _status(report: "Report", faults: "Iterable[StackFault]") -> int:
    """Return 2 when AWS would refuse something, 3 when a second run changes something or a rule is broken.

    And 6 when only an injected fault kept something from being created.
    """
    from bedplate.checks.diagnostics import Level

    if report.real_failures:
        return InputError.exit_code
    if any(fault.level is Level.ERROR for fault in faults) or not report.is_stable:
        return ViolationError.exit_code
    return PartError.exit_code if report.is_partial else 0
