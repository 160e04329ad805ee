"""The stacks of a fleet, in the waves in which they are made; this is where the stacks meet the rehearsal."""

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
from bedplate.cli.fleet import opened, replanned
from bedplate.errors import InputError
from bedplate.graph.audit.document import graph_of
from bedplate.graph.audit.rules import StackFault
from bedplate.graph.audit.run import audit
from bedplate.load import Loaded
from bedplate.plan import FleetPlan
from bedplate.plan.document import Origin, origin
from bedplate.plan.planner import indispensable_images
from bedplate.rehearsal.provider import DefaultProvider
from bedplate.rehearsal.rehearse import Phase, Report, StackReport
from bedplate.rehearsal.stack import Run, Stack, graph
from bedplate.update.edit import Consequence, consequences
from stacks.options import LINKS, SHARED, parts, stack_name
from stacks.program import declare

PROJECT = "bedplate"

Waves = tuple[tuple[Stack, ...], ...]


def waves(plan: FleetPlan, asked: Sequence[str] = ()) -> Waves:
    """Return the stacks that hold the parts asked for, and those that they read; all stacks when none is asked for.

    Raises InputError for a part that the fleet does not have.
    """
    _check_parts(plan, asked)
    plan = _with_images(plan)
    regions = tuple(region.name for region in plan.regions)
    every = not asked or LINKS in asked
    chosen = tuple(name for name in regions if every or name in asked)
    wanted = ((SHARED,), chosen, (LINKS,) if every else ())
    return tuple(tuple(_stack(plan, part) for part in wave) for wave in wanted if wave)


def waves_of_change(plan: FleetPlan, asked: Sequence[str] = ()) -> Waves:
    """Return the stacks of a later plan; a part that was asked for may have gone from it."""
    kept = [part for part in asked if part in parts(plan)]
    return waves(plan, kept or [SHARED] if asked else ())


def _check_parts(plan: FleetPlan, asked: Sequence[str]) -> None:
    for part in asked:
        if part not in parts(plan):
            raise InputError(f"the fleet {plan.name} has no part {part}", fix=f"one of {', '.join(parts(plan))}")


def _stack(plan: FleetPlan, part: str) -> Stack:
    zone = plan.domain if part == plan.home.name else ""
    return Stack(
        stack_name(plan, part), PROJECT, partial(declare, plan, part), images=plan.record.images, node_zone=zone
    )


def _with_images(plan: FleetPlan) -> FleetPlan:
    """Return the plan with images that stand for those without which a live run would not begin."""
    places = indispensable_images(plan, load_catalog())
    images = {place: f"ami-{sha256(place.encode()).hexdigest()[:17]}" for place in places}
    return replace(plan, record=plan.record.with_images(images))


@dataclass(frozen=True, slots=True)
class Later:
    """What a fleet is to become; `key` tells the key, of either file, that a resource comes from."""

    waves: Waves
    edits: tuple[Consequence, ...]
    key: Origin


def later_fleet(path: Path, loaded: Loaded, plan: FleetPlan, asked: Sequence[str]) -> Later:
    """Return what a fleet with this plan becomes by a later file; FleetFaults where that is refused."""
    changed = opened(path)
    after = replanned(changed, plan)
    return Later(
        waves_of_change(after, asked),
        consequences(loaded.fleet, changed.fleet),
        lambda stack, name: origin(after, stack, name, plan),
    )


def program_stack(file: Path, region: str) -> Stack:
    """Return the stack of a program, named after its file; InputError when there is no such file."""
    if not file.is_file():
        raise InputError(f"there is no program {file}", fix="give the path of a Python file")
    program = partial(_run, file.resolve())
    return Stack(file.stem, file.stem, program, default_provider=DefaultProvider(region))


def _run(file: Path) -> None:
    """Run a program as the engine would: from its folder, its own modules imported anew, its prints on stderr."""
    with _at_home(file.parent), redirect_stdout(sys.stderr):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except SystemExit as end:
            if end.code:
                ended = RuntimeError(f"the program ended itself with {end.code}")
                raise ended.with_traceback(end.__traceback__) from None


@contextmanager
def _at_home(folder: Path) -> Iterator[None]:
    before, path, known = Path.cwd(), list(sys.path), set(sys.modules)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in sys.modules.keys() - known:
            if _lies_in(name, folder):
                del sys.modules[name]


def _lies_in(module: str, folder: Path) -> bool:
    file = getattr(sys.modules[module], "__file__", None) or ""
    return Path(file).is_relative_to(folder) and "site-packages" not in file


def judged(report: Report) -> tuple[StackFault, ...]:
    """Return every fault of all stacks together, as they were made last; none where something failed to be made."""
    runs = [_last(stack) for stack in report.stacks]
    made = [run.snapshot.entries.values() for run in runs if run]
    if report.real_failures:
        return ()
    return audit(graph_of(graph(chain.from_iterable(made)), "the rehearsal"))


def _last(stack: StackReport) -> Run | None:
    made = (stack.runs.get(phase) for phase in (Phase.CHANGE, Phase.RECOVER, Phase.CREATE))
    return next((run for run in made if run), None)
