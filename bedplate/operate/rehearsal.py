"""Stacks run in the simulated AWS: those of a fleet and of an edit of it, or a Pulumi program of the operator's own."""

import os
import runpy
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path

from bedplate import STARTED
from bedplate.catalog import Catalog, load_catalog
from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.graph.audit.document import StackFault, graph_of
from bedplate.graph.audit.exposure import PUBLIC_PORTS
from bedplate.graph.audit.run import audit
from bedplate.load import Loaded
from bedplate.operate import Operator, Result, open_fleet, plan_loaded
from bedplate.permissions import alias_name
from bedplate.plan import FleetPlan, bill
from bedplate.plan.planner import required_images
from bedplate.plan.pools import PoolPlan
from bedplate.plan.registration import device_counts
from bedplate.plan.stacks import (
    LINKS,
    SHARED,
    Action,
    Origin,
    Step,
    bundle_region,
    chosen_parts,
    origin,
    parts,
    stack_name,
    stack_order,
    unknown_origin,
)
from bedplate.rehearsal.faults import Fault, NoCapacity, RegionDown, StackFails
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.provider import DefaultProvider
from bedplate.rehearsal.rehearse import Course, Phase, Report, StepCallback, Wave, create, document
from bedplate.rehearsal.rehearse import rehearse as run_rehearsal
from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.stack import Stack
from bedplate.rehearsal.stack import graph as resources_of
from bedplate.report import rehearsal as reports
from bedplate.report.cost import price_lines
from bedplate.report.graph import judgement_lines, traced_fault_document
from bedplate.report.updates import diff_document, diff_lines, order_document, order_lines
from bedplate.rules import Level
from bedplate.spec.groups import Ring
from bedplate.update import Consequence, consequences
from stacks.program import declare

PROJECT = "bedplate"
_ACCOUNT_KEY = f"MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE{'A' * 128}"

Waves = tuple[tuple[Stack, ...], ...]
"""Stacks in the order of their creation or teardown: those of one wave run in parallel."""


def waves(plan: FleetPlan, names: Sequence[str] = ()) -> Waves:
    """Return the stacks of these parts of the fleet and the stacks that they read. No names mean all stacks.

    Raises InputError for a part that the fleet does not have.
    """
    chosen_parts(plan, names)
    return tuple(tuple(wave.stacks) for wave in _waves(None, plan, names))


def teardown_waves(plan: FleetPlan, names: Sequence[str] = ()) -> Waves:
    """Return the same stacks in the order in which they must be destroyed."""
    return tuple(tuple(wave.stacks) for wave in _waves(plan, None, names))


def waves_of_change(before: FleetPlan, after: FleetPlan, names: Sequence[str] = ()) -> tuple[Wave, ...]:
    """Return the stacks of a change. The changed fleet may lack some of the parts."""
    return tuple(_waves(before, after, names))


def _waves(before: FleetPlan | None, after: FleetPlan | None, names: Sequence[str]) -> Iterator[Wave]:
    """Yield the steps of the order with the stacks of these parts and of the parts that they read."""
    deployed, destroyed = (plan and _with_later_facts(plan) for plan in (after, before))
    for step in stack_order(before, after):
        plan = deployed if step.action is Action.UP else destroyed
        wave_parts = [part for part in step.parts if not names or LINKS in names or part in (SHARED, *names)]
        if plan and wave_parts:
            yield Wave([_stack(plan, part) for part in wave_parts], step.action is Action.DESTROY)


def _stack(plan: FleetPlan, part: str) -> Stack:
    zone = plan.domain if part == plan.home.name else ""
    images = {**plan.record.images, **plan.record.baked}
    keys = dict.fromkeys(plan.record.baked.values(), alias_name(plan, "data"))
    program = partial(declare, plan, part)
    return Stack(stack_name(plan, part), PROJECT, program, images=images, image_keys=keys, node_zone=zone)


def _with_later_facts(plan: FleetPlan) -> FleetPlan:
    """Return the plan with made-up image ids, and a key of the cluster's tokens, where `up` records real ones."""
    places = required_images(plan, plan.catalog)
    images = {place: f"ami-{sha256(place.encode()).hexdigest()[:17]}" for place in places}
    record = plan.record.adding(images=images)
    return replace(plan, record=replace(record, account_keys=record.account_keys or (_ACCOUNT_KEY,)))


@dataclass(frozen=True, slots=True)
class Later:
    """A changed fleet: its plan, its stacks, and the edits. `key` returns the fleet file's key of a resource."""

    plan: FleetPlan
    course: Course
    order: tuple[Step, ...]
    edits: tuple[Consequence, ...]
    key: Origin


def later_fleet(operator: Operator, loaded: Loaded, plan: FleetPlan, names: Sequence[str]) -> Later:
    """Return the changed fleet, that of the operator's file. Raises FleetFaults if the change is refused."""
    changed = open_fleet(operator, with_warnings=True)
    changed_plan = changed.plan(plan.recorded())
    return Later(
        changed_plan,
        Course(waves_of_change(plan, changed_plan, names), teardown_waves(changed_plan, names)),
        stack_order(plan, changed_plan),
        consequences(loaded.fleet, changed.fleet),
        lambda stack, name: origin(changed_plan, stack, name, plan),
    )


def program_stack(file: Path, region: str) -> Stack:
    """Return the stack of a Pulumi program, named after its file. Raises InputError if the file does not exist."""
    if not file.is_file():
        raise InputError(f"no such file: {file}", fix="name a Python file: --program FILE")
    program = partial(_run_program, file.resolve())
    return Stack(file.stem, file.stem, program, default_provider=DefaultProvider(region), images=None)


def _run_program(file: Path) -> None:
    """Run a program as Pulumi does: in its folder, with its modules freshly imported. Its output goes to stderr."""
    with _inside(file.parent), redirect_stdout(sys.stderr):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except SystemExit as end:
            if end.code:
                error = RuntimeError(f"the program exited with status {end.code}")
                raise error.with_traceback(end.__traceback__) from None


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder from which modules are imported. Afterwards forget the modules imported from it."""
    previous_folder, previous_path, previous_modules = Path.cwd(), list(sys.path), set(sys.modules)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(previous_folder)
        sys.path[:] = previous_path
        for name in sys.modules.keys() - previous_modules:
            if _is_in(name, folder):
                del sys.modules[name]


def _is_in(module: str, folder: Path) -> bool:
    file = getattr(sys.modules[module], "__file__", None) or ""
    return Path(file).is_relative_to(folder) and "site-packages" not in file


def audit_report(report: Report, catalog: Catalog | None = None) -> tuple[StackFault, ...]:
    """Return the faults of all resources after their last change. None are returned if a stack was not created."""
    if report.real_failures:
        return ()
    runs = filter(None, (stack.deployed for stack in report.stacks))
    resources = chain.from_iterable(run.snapshot.entries.values() for run in runs)
    return audit(graph_of(resources_of(resources), "the rehearsal"), device_counts(catalog or load_catalog()))


ACCOUNT_OF_PROGRAMS = "123456789012"
FAULTS = "region-down:REGION, no-capacity:TYPE@ZONE or stack-fails:PART"


def parse_faults(texts: Sequence[str], plan: FleetPlan | None = None) -> tuple[Fault, ...]:
    """Return the faults that the options name. Raises InputError for an invalid one, or a place outside the plan."""
    regions = {region.name: region.zones for region in plan.regions} if plan else {}
    zones = {zone.name for region_zones in regions.values() for zone in region_zones}
    part_names = parts(plan) if plan else ()
    return tuple(_parse_fault(text, regions.keys(), zones, part_names) for text in texts)


def _parse_fault(text: str, regions: Collection[str], zones: Collection[str], part_names: Collection[str]) -> Fault:
    kind, _, value = text.partition(":")
    instance_type, _, zone = value.partition("@")
    if kind == "region-down" and value:
        _check_place("region", value, regions)
        return RegionDown(value)
    if kind == "stack-fails" and value:
        _check_place("part", value, part_names)
        return StackFails(value)
    if kind == "no-capacity" and instance_type and zone:
        _check_place("zone", zone, zones)
        return NoCapacity(instance_type, zone)
    raise InputError(f"unknown fault {text}", fix=f"write {FAULTS}")


def _check_place(noun: str, name: str, names: Collection[str]) -> None:
    if names and name not in names:
        raise InputError(f"the fleet has no {noun} {name}", fix=f"write one of {', '.join(sorted(names))}")


def list_types() -> Result:
    """Return the simulated resource types."""
    return Result(reports.type_lines(KINDS), reports.types_document(KINDS))


def rehearse_program(operator: Operator, file: Path, region: str, faults: Sequence[str]) -> Result:
    """Run a Pulumi program in the simulated AWS: create its resources, run it again, destroy them."""
    stacks = ((program_stack(file, region),),)
    with _progress(operator) as watch:
        report = run_rehearsal(ACCOUNT_OF_PROGRAMS, stacks, Course(), watch, parse_faults(faults))
    # The other rules are those of bedplate's own stacks.
    exposures = tuple(fault for fault in audit_report(report) if fault.code in PUBLIC_PORTS)
    result = _result(report, unknown_origin, exposures or None)
    lines = (*result.lines, *(line for stack in report.stacks for line in reports.export_lines(stack)))
    return Result(lines, result.document, _status(report, exposures))


def rehearse_fleet(operator: Operator, parts: Sequence[str], changed: Operator | None, faults: Sequence[str]) -> Result:
    """Run the stacks of these parts of the fleet, or all, in the simulated AWS; then change them to another file."""
    loaded = open_fleet(operator, with_warnings=True)
    plan = plan_loaded(loaded)
    later = later_fleet(changed, loaded, plan, parts) if changed else None
    injected = parse_faults(faults, plan)
    stacks = waves(plan, parts)
    with _progress(operator) as watch:
        course = later.course if later else Course(teardown=teardown_waves(plan, parts))
        course = replace(course, then=partial(_deliver, plan), abandoned=partial(_abandoned, plan))
        report = run_rehearsal(plan.account, stacks, course, watch, injected)
    violations = audit_report(report, plan.catalog)
    result = _result(report, lambda stack, name: loaded.reading.where(origin(plan, stack, name)), violations, later)
    lines = tuple(result.lines)
    if report.ok:
        last_plan = later.plan if later else plan
        last_stacks = waves(last_plan, parts) if later else stacks
        lines = (*lines, *_outlook(report, last_plan, last_stacks))
    return Result(lines, result.document, _status(report, violations))


def _deliver(plan: FleetPlan, simulation: Simulation, stack: str) -> None:
    """Let the rings of a region name a bundle where `up` does so."""
    if region := bundle_region(plan, stack):
        for ring in Ring:
            parameter = {"Name": plan.ring_parameter(ring), "Value": "{}", "Type": "String"}
            simulation.region(region).call("ssm", "put_parameter", **parameter)


def _abandoned(plan: FleetPlan, simulation: Simulation) -> tuple[str, ...]:
    """Return the pools with machines whose ring names no bundle, when the first deployment has ended."""

    def waits(pool: PoolPlan) -> bool:
        aws, name = simulation.region(pool.region), f"{plan.name}-{pool.name}"
        groups = aws.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[name])
        bundles = aws.call("ssm", "get_parameters", Names=[plan.ring_parameter(pool.group_spec.ring)])
        return any(group["Instances"] for group in groups["AutoScalingGroups"]) and not bundles["Parameters"]

    return tuple(pool.name for pool in plan.pools if waits(pool))


def _outlook(report: Report, plan: FleetPlan, stacks: Waves) -> Iterator[str]:
    """Yield what a deployment of the last fleet file would have, its price, and the next command."""
    by_name = {stack.name: stack for stack in report.stacks}
    last = replace(report, stacks=tuple(by_name[stack.name] for wave in stacks for stack in wave))
    yield from (*reports.outlook_lines(plan, last), *price_lines(bill(plan, plan.catalog)))
    yield "next: `bedplate up`"


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
        lines += (*diff_lines(later.edits), *order_lines(later.order), "")
    lines += reports.rehearsal_lines(report, origin, later.key if later else unknown_origin)
    if violations is not None and not report.real_failures:
        lines += judgement_lines(violations, origin)
    changes = diff_document(later.edits) | order_document(later.plan, later.order) if later else {}
    return Result(lines, document(report, origin) | status | changes)


def _status(report: Report, violations: Iterable[StackFault]) -> int:
    if report.real_failures:
        return InputError.exit_code
    if any(fault.level is Level.ERROR for fault in violations) or not report.is_stable or report.abandoned:
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
        with operator.views.rehearsal(in_log=in_log) as count:
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
        operator.notify(reports.failure_lines(stack))
    names = {stack_name(plan, part) for part in parts}
    runs = [stack.runs[Phase.CREATE] for stack in report.stacks if not names or stack.name in names]
    resources = [resource for run in runs for resource in resources_of(run.snapshot.entries.values())]
    return resources, not any(stack.failures for stack in report.stacks)
