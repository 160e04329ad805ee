"""The stacks of a fleet, in the waves in which they are made; this is where the stacks meet the rehearsal."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan import FleetPlan
from bedplate.plan.images import indispensable_images
from bedplate.rehearsal.stack import Stack
from stacks.names import LINKS, SHARED, parts, stack_name
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
