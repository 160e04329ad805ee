"""Stacks run in the simulated AWS: those of a fleet and of an edit of it, or a Pulumi program of the operator's own."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bedplate import STARTED
from bedplate.catalog import load_catalog
from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.graph.audit.document import StackFault
from bedplate.graph.audit.exposure import PUBLIC_PORTS
from bedplate.operate import Operator, Result
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
FAULTS = "region-down:REGION or no-capacity:TYPE@ZONE"


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
    raise InputError(f"unknown fault {text}", fix=f"write {FAULTS}")


def _check_place(noun: str, name: str, names: Collection[str]) -> None:
    if names and name not in names:
        raise InputError(f"the fleet has no {noun} {name}", fix=f"write one of {', '.join(sorted(names))}")


def list_types() -> Result:
    """Return the simulated resource types."""
    return Result(type_lines(KINDS), types_document(KINDS))


def rehearse_program(operator: Operator, file: Path, region: str, faults: Sequence[str]) -> Result:
    """Run a Pulumi program in the simulated AWS: create its resources, run it again, destroy them."""
    stacks = ((program_stack(file, region),),)
    with _progress(operator) as watch:
        report = run_rehearsal(ACCOUNT_OF_PROGRAMS, stacks, Course(), watch, parse_faults(faults))
    # The other rules are those of bedplate's own stacks.
    exposures = tuple(fault for fault in audit_report(report) if fault.code in PUBLIC_PORTS)
    result = _result(report, unknown_origin, exposures or None)
    lines = (*result.lines, *(line for stack in report.stacks for line in export_lines(stack)))
    return Result(lines, result.document, _status(report, exposures))


def rehearse_fleet(operator: Operator, parts: Sequence[str], changed: Operator | None, faults: Sequence[str]) -> Result:
    """Run the stacks of these parts of the fleet, or all, in the simulated AWS; then change them to another file."""
    loaded = open_fleet(operator, brief=False)
    plan = plan_loaded(loaded)
    later = later_fleet(changed, loaded, plan, parts) if changed else None
    injected = parse_faults(faults, plan)
    stacks = waves(plan, parts)
    with _progress(operator) as watch:
        course = later.course if later else Course(teardown=teardown_waves(plan, parts))
        report = run_rehearsal(plan.account, stacks, course, watch, injected)
    violations = audit_report(report)
    result = _result(report, resource_origin(loaded, plan), violations, later)
    lines = tuple(result.lines)
    if report.ok:
        last_plan = later.plan if later else plan
        is_recorded = not (plan.new_blocks or last_plan.new_blocks)
        last_stacks = waves(last_plan, parts) if later else stacks
        lines = (*lines, *_outlook(report, last_plan, last_stacks, is_recorded=is_recorded))
    return Result(lines, result.document, _status(report, violations))


def _outlook(report: Report, plan: FleetPlan, stacks: Waves, *, is_recorded: bool) -> Iterator[str]:
    """Yield what a deployment of the last fleet file would have, its price, and the next command."""
    reports = {stack.name: stack for stack in report.stacks}
    last = replace(report, stacks=tuple(reports[stack.name] for wave in stacks for stack in wave))
    yield from (*outlook_lines(plan, last), *price_lines(bill(plan, load_catalog())))
    yield next_line(last, is_recorded=is_recorded)


def _result(
    report: Report, origin: Origin, violations: Iterable[StackFault] | None = None, later: Later | None = None
) -> Result:
    """Return the report, and the violations if the stacks were checked. The time is that of the whole command."""
    report = replace(report, seconds=time.perf_counter() - STARTED)
    status = {
        "ok": _status(report, violations or ()) == 0,
        "faults": traced_fault_document(violations or (), origin),
    }
    lines: list[str] = []
    if later:
        lines += (*diff_lines(later.edits), *order_lines(later.plan, later.order), "")
    lines += rehearsal_lines(report, origin, later.key if later else unknown_origin)
    if violations is not None and not report.real_failures:
        lines += judgement_lines(violations, origin)
    return Result(lines, document(report, origin) | status | _change_document(later))


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


@contextmanager
def _progress(operator: Operator, *, in_log: bool = True) -> Iterator[StepCallback]:
    """Report the phases of stacks; after Ctrl-C, that nothing is left."""
    try:
        with operator.rehearsal(in_log=in_log) as count:
            yield lambda stack, phase, step: count(stack, _DOING[phase], step.is_in_cloud)
    except KeyboardInterrupt:
        operator.notify(["stopped; nothing is left behind: AWS was simulated"])
        raise


def create_stacks(operator: Operator, plan: FleetPlan, parts: Sequence[str]) -> tuple[list[dict[str, object]], bool]:
    """Create these parts of the fleet, or all, in the simulated AWS. Return their resources, and whether all exist.

    Failures are reported.
    """
    with _progress(operator, in_log=False) as watch:
        report = create(plan.account, waves(plan, parts), watch)
    for stack in report.stacks:
        operator.notify(failure_lines(stack))
    names = {stack_name(plan, part) for part in parts}
    runs = [stack.runs[Phase.CREATE] for stack in report.stacks if not names or stack.name in names]
    resources = [resource for run in runs for resource in resources_of(run.snapshot.entries.values())]
    return resources, not any(stack.failures for stack in report.stacks)
