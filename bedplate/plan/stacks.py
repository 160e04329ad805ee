"""The Pulumi stacks of a fleet, the order in which a change needs them, and the document of `plan --json`.

`shared` has what all regions use, each region has a stack, and `links` connects the regions and sites. Regions read
outputs of `shared`, and `links` reads outputs of the regions.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.hub import HUB_HOST
from bedplate.plan.links import has_transit, is_linked
from bedplate.plan.pools import PoolPlan

SHARED = "shared"
LINKS = "links"
# The output of a region's stack with its list price in USD an hour, at the minimum of its groups.
PRICE = "hourly_price"
# The output of every stack with the text of the fleet file at its last deployment.
FLEET_TEXT = "fleet_file"


def parts(plan: FleetPlan) -> tuple[str, ...]:
    """Return the parts of a fleet, each with a stack, in order of deployment."""
    return (SHARED, *_regions(plan), *((LINKS,) if is_linked(plan) else ()))


def chosen_parts(plan: FleetPlan, names: Collection[str], removed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the named parts of a fleet in order of deployment, all without names; removed parts are last.

    Raises InputError for names of other parts.
    """
    part_names = tuple(dict.fromkeys((*parts(plan), *removed)))
    for name in names:
        if name not in part_names:
            raise InputError(f"the fleet {plan.name} has no part {name}", fix=f"write one of {', '.join(part_names)}")
    return tuple(part for part in part_names if not names or part in names)


def parts_read(plan: FleetPlan, part: str) -> tuple[str, ...]:
    """Return the parts whose outputs the stack of a part reads."""
    if part == SHARED:
        return ()
    return _regions(plan) if part == LINKS else (SHARED,)


def stack_name(plan: FleetPlan, part: str) -> str:
    """Return the name of the stack that holds a part."""
    return f"{plan.name}.{part}"


def bundle_region(plan: FleetPlan, stack: str) -> str | None:
    """Return the region that gets its bundle once a stack is deployed, before the next step: its machines run then."""
    return next((name for name in _regions(plan) if stack == stack_name(plan, name)), None)


class Action(StrEnum):
    """Pulumi's operation on a stack."""

    UP = "up"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True)
class Step:
    """Parts whose stacks are deployed, or destroyed, in parallel."""

    action: Action
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The facts that decide the order of stacks, of a plan or of a deployment.

    `outputs` are those that `links` reads of the regions, without transit gateways: (region, name).
    """

    home: str
    regions: tuple[str, ...]
    is_linked: bool
    has_transit: bool
    outputs: frozenset[tuple[str, str]]


def layout(plan: FleetPlan) -> Layout:
    """Return the layout of a plan."""
    return Layout(plan.home.name, _regions(plan), is_linked(plan), has_transit(plan), frozenset(_outputs(plan)))


def stack_order(before: FleetPlan | None, after: FleetPlan | None) -> tuple[Step, ...]:
    """Return the steps from one plan to another; without `before` the fleet is created, without `after` destroyed."""
    return layout_order(layout(before) if before else None, layout(after) if after else None)


def layout_order(before: Layout | None, after: Layout | None) -> tuple[Step, ...]:
    """Return the steps from one layout to another, as `stack_order`."""
    if after is None:
        steps = _teardown(before) if before else iter(())
    else:
        steps = _change(before, after) if before else _creation(after)
    return tuple(step for step in steps if step.parts)


def _creation(plan: Layout) -> Iterator[Step]:
    yield _shared()
    yield Step(Action.UP, plan.regions)
    yield _links(Action.UP, plan)


def _teardown(plan: Layout) -> Iterator[Step]:
    """Yield the reverse of creation; the home region is after the others, whose nodes write into its DNS zone."""
    yield _links(Action.DESTROY, plan)
    yield Step(Action.DESTROY, tuple(region for region in plan.regions if region != plan.home))
    yield Step(Action.DESTROY, (plan.home,))
    yield Step(Action.DESTROY, (SHARED,))


def _change(before: Layout, after: Layout) -> Iterator[Step]:
    removed = tuple(name for name in before.regions if name not in after.regions)
    # Nodes of a removed region need their permissions until they are terminated; new nodes need them at once.
    shared_last = set(after.regions) < set(before.regions)
    first, last = _links_of_change(before, after)
    yield from first
    if not shared_last:
        yield _shared()
    yield Step(Action.UP, after.regions)
    yield from last
    yield Step(Action.DESTROY, removed)
    if shared_last:
        yield _shared()


def _links_of_change(before: Layout, after: Layout) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return the steps of `links` before the regions, and those after: AWS deletes no transit gateway in use."""
    if not after.is_linked:
        return (_links(Action.DESTROY, before),), ()
    if not before.has_transit or after.has_transit:
        return (), (_links(Action.UP, after),)
    if after.outputs == {output for output in before.outputs if output[0] in after.regions}:
        return (_links(Action.UP, after),), ()
    # The regions must create an output before `links` can read it, but cannot be deployed while it holds the gateways.
    return (_links(Action.DESTROY, before),), (_links(Action.UP, after),)


def _outputs(plan: FleetPlan) -> set[tuple[str, str]]:
    """Return what `links` reads of each region, without transit gateways: (region, name)."""
    zones = {(region.name, zone.name) for region in plan.regions for zone in region.zones}
    gateways = {(pool.place, "laptops") for pool in plan.laptops if pool.place in _regions(plan)}
    files, _, buckets = plan.stores
    stores = {(system.region, system.store) for system in files} | {(bucket.region, bucket.store) for bucket in buckets}
    return zones | gateways | stores


def _regions(plan: FleetPlan) -> tuple[str, ...]:
    return tuple(region.name for region in plan.regions)


def _shared() -> Step:
    return Step(Action.UP, (SHARED,))


def _links(action: Action, plan: Layout) -> Step:
    return Step(action, (LINKS,) if plan.is_linked else ())


def plan_document(plan: FleetPlan) -> dict[str, Any]:
    """Return blocks by path, addresses by machine, pools, and ids of people and groups, as JSON types."""
    return {
        "blocks": {path: str(block) for path, block in plan.blocks.items()},
        "addresses": {name: str(address) for name, address in plan.addresses.items()},
        "pools": [_pool(plan, pool) for pool in plan.pools],
        "people": dict(plan.accounts.uids),
        "groups": dict(plan.accounts.groups),
    }


def _pool(plan: FleetPlan, pool: PoolPlan) -> dict[str, Any]:
    return {
        "group": pool.group,
        "region": pool.region,
        "zones": list(pool.zones),
        "market": pool.market.value,
        "types": list(pool.types),
        "min": pool.min,
        "max": pool.max,
        "stack": stack_name(plan, pool.region),
        "name": pool.name,
    }


# Returns the fleet file key for a stack and the name of a resource in it; empty without a fleet file.
Origin = Callable[[str, str], str]


def unknown_origin(stack: str, name: str) -> str:  # noqa: ARG001  # the form of Origin
    """Return an empty key, for resources without a fleet file."""
    return ""


def origin(plan: FleetPlan, stack: str, name: str, *earlier: FleetPlan) -> str:
    """Return the fleet file key of a stack's resource, from the longest prefix of its name that is known.

    Without such a prefix it is the key of the stack's region, else `name`. `earlier` plans supply the names of removed
    resources.
    """
    suffix = name.removeprefix(f"{plan.name}-")
    pairs = (pair for known_plan in (*earlier, plan) for pair in _keys_by_prefix(known_plan))
    matches = {prefix: key for prefix, key in pairs if suffix == prefix or suffix.startswith(f"{prefix}-")}
    if matches:
        return matches[max(matches, key=len)]
    part = stack.removeprefix(f"{plan.name}.")
    return f"regions.{part}" if part in plan.regions_by_name else "name"


def _keys_by_prefix(plan: FleetPlan) -> Iterator[tuple[str, str]]:
    for region in plan.regions:
        yield region.name, f"regions.{region.name}"
        yield from ((zone.name, f"regions.{region.name}.zones") for zone in region.zones)
    yield from ((site.name, f"sites.{site.name}") for site in plan.sites)
    files, _, buckets = plan.stores
    stores = (*(system.store for system in files), *(bucket.store for bucket in buckets))
    yield from ((store, f"storage.{store}") for store in stores)
    if plan.control_plane:
        yield "control", "kubernetes.control_plane"
    if plan.hub:
        yield HUB_HOST, "hub"
    yield from ((pool.name, f"groups.{pool.group}.ladder.{pool.rung}") for pool in plan.pools)
