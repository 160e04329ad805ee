"""The stacks of a fleet as the rehearsal takes them, and Pulumi programs of the operator's own."""

import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.graph.audit.document import StackFault, graph_of
from bedplate.graph.audit.run import audit
from bedplate.load import Loaded
from bedplate.operate import Operator
from bedplate.operate.fleet import device_counts, open_fleet, replanned
from bedplate.plan import FleetPlan
from bedplate.plan.planner import required_images
from bedplate.plan.stacks import LINKS, SHARED, Action, Origin, Step, chosen_parts, origin, stack_name, stack_order
from bedplate.rehearsal.provider import DefaultProvider
from bedplate.rehearsal.rehearse import Course, Report, Wave
from bedplate.rehearsal.stack import Stack, graph
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
    return Stack(stack_name(plan, part), PROJECT, partial(declare, plan, part), images=images, node_zone=zone)


def _with_later_facts(plan: FleetPlan) -> FleetPlan:
    """Return the plan with made-up image ids, and a key of the cluster's tokens, where `up` records real ones."""
    places = required_images(plan, load_catalog())
    images = {place: f"ami-{sha256(place.encode()).hexdigest()[:17]}" for place in places}
    record = plan.record.with_images(images)
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
    changed = open_fleet(operator, brief=False)
    changed_plan = replanned(changed, plan)
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


def audit_report(report: Report) -> tuple[StackFault, ...]:
    """Return the faults of all resources after their last change. None are returned if a stack was not created."""
    if report.real_failures:
        return ()
    runs = filter(None, (stack.deployed for stack in report.stacks))
    resources = chain.from_iterable(run.snapshot.entries.values() for run in runs)
    return audit(graph_of(graph(resources), "the rehearsal"), device_counts())
