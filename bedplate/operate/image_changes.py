"""Which images the fleet has and uses is changed: promotions, returns to earlier images, and deletions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from bedplate.account.bundle import RegionStore
from bedplate.account.client import AwsClient, NotThere, failure_lines
from bedplate.catalog import load_catalog
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.lock import lock_path, record_baked
from bedplate.operate import Operator
from bedplate.operate.fleet import open_account, plan_of
from bedplate.operate.images import chosen_kinds, copies_of, images_of, locked, regions_of, used_images
from bedplate.plan import FleetPlan
from bedplate.plan.planner import image_kinds
from bedplate.plan.pools import PoolPlan
from bedplate.report.images import by_name
from images.published import (
    FleetImage,
    PoolRollout,
    bill_key,
    discard,
    find_leftovers,
    mark,
    publish,
    remove_leftovers,
    unmark,
)
from images.steps import BAKE_DOCUMENTS, WITHDRAWN


def promote(operator: Operator, name: str) -> None:
    """Use a finished image for new machines, and replace workers on other images."""
    plan = plan_of(operator)
    client = open_account(plan)
    with locked(operator, plan, client):
        copies = copies_of(images_of(client, plan), name)
        for image in copies:
            if image.withdrawn:
                unmark(client, image.region, image.id, WITHDRAWN)
        _promote(operator, client, plan, copies)


def rollback(operator: Operator, kind: str) -> None:
    """Return to the previous image of a kind."""
    plan = plan_of(operator)
    chosen_kinds(plan, [kind], [])
    client = open_account(plan)
    with locked(operator, plan, client):
        images = [image for image in images_of(client, plan) if image.kind == kind and image.finished]
        recorded = {value for place, value in plan.record.baked.items() if place.endswith(f"/{kind}")}
        names = list(by_name(images))
        current = next((image.name for image in images if image.id in recorded), None)
        if current is None:
            raise InputError(f"fleet.lock has no image of {kind}", fix="`bedplate image bake` bakes one")
        withdrawn = {image.name for image in images if image.withdrawn}
        earlier = [name for name in names[names.index(current) + 1 :] if name not in withdrawn]
        if not earlier:
            raise InputError(f"no image of {kind} is older than {current}", fix="`bedplate image list` shows all")
        for image in copies_of(images, current):
            mark(client, image.region, image.id, WITHDRAWN)
        ended = [pool.name for pool in _workers(plan, kind) if PoolRollout(client, plan.name, pool).end()]
        operator.show(f"{pool}: AWS rolls the machines back to the previous image" for pool in ended)
        _promote(operator, client, plan, copies_of(images, earlier[0]))


def prune(operator: Operator, keep: int) -> None:
    """Delete old images of each kind but the newest, and those in use or protected."""
    plan = plan_of(operator)
    client = open_account(plan)
    with locked(operator, plan, client):
        images = [image for image in images_of(client, plan) if image.finished]
        used = used_images(client, plan, images)
        for copies in _old(images, used, keep):
            for image in copies:
                discard(client, image)
            RegionStore(client, plan, plan.home.name).delete(bill_key(copies[0].name))
            operator.show([f"deleted {copies[0].name} in {', '.join(image.region for image in copies)}"])


def sweep(operator: Operator) -> int:
    """Remove what killed bakes have left; return the exit status."""
    plan = plan_of(operator)
    client = open_account(plan)
    with locked(operator, plan, client):
        answers = find_leftovers(client, plan.name, regions_of(plan))
        for leftovers in answers.successes.values():
            remove_leftovers(client, leftovers)
            operator.show(f"{leftovers.region}: removed {name}" for name in leftovers.names)
        store = RegionStore(client, plan, plan.home.name)
        with suppress(NotThere):  # no bucket
            for key in tuple(store.keys(f"nodes/{BAKE_DOCUMENTS}")):
                store.delete(key)
                operator.show([f"{store.region}: removed {key}"])
    operator.notify(f"not searched: {line}" for line in failure_lines(answers.failures))
    return PartialError.exit_code if answers.failures else 0


def _promote(operator: Operator, client: AwsClient, plan: FleetPlan, copies: tuple[FleetImage, ...]) -> None:
    """Publish and record an image in the regions that have it. Raises PartialError if a region lacks it."""
    kind, ids = copies[0].kind, {image.region: image.id for image in copies}
    pools = _pools(plan, kind)
    for region, ident in ids.items():
        publish(client, plan.name, kind, region, ident)
    needed = {pool.region for pool in pools}
    images = {f"{region}/{kind}": ident for region, ident in ids.items() if region in needed}
    record_baked(lock_path(operator.fleet), plan.name, images)
    operator.show([f"{kind}: {copies[0].name} in {', '.join(sorted(ids))}: `bedplate up` uses it for new machines"])
    errors = _roll_out(operator, client, plan, kind, ids)
    if missing := sorted(needed - ids.keys()):
        fix = f"run `bedplate image bake {kind}`"
        raise PartialError(f"{copies[0].name} is not in {', '.join(missing)}", fix=fix)
    if errors:
        raise PartialError(f"not rolled out: {'; '.join(error.what for error in errors)}", fix=errors[0].fix)


def _roll_out(
    operator: Operator, client: AwsClient, plan: FleetPlan, kind: str, images: Mapping[str, str]
) -> list[BedplateError]:
    """Start the roll-out in each pool of workers; return the errors."""
    errors = []
    for pool in (pool for pool in _workers(plan, kind) if pool.region in images):
        try:
            operator.show([PoolRollout(client, plan.name, pool).start(images[pool.region])])
        except BedplateError as error:
            errors.append(error)
    return errors


def _pools(plan: FleetPlan, kind: str) -> tuple[PoolPlan, ...]:
    """Return the pools of a kind; none if the fleet does not need it now."""
    return next(
        (pools for image_kind, pools in image_kinds(plan, load_catalog()).items() if image_kind.name == kind), ()
    )


def _workers(plan: FleetPlan, kind: str) -> tuple[PoolPlan, ...]:
    return tuple(pool for pool in _pools(plan, kind) if pool.use.is_worker)


def _old(images: Iterable[FleetImage], used: frozenset[str], keep: int) -> Iterator[tuple[FleetImage, ...]]:
    """Yield the images of each kind that are neither among the newest, nor in use or protected in any region."""
    counts: dict[str, int] = {}
    for copies in by_name(images).values():
        kind = copies[0].kind
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > keep and not any(image.id in used or image.protected for image in copies):
            yield copies
