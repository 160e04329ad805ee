"""Images of the fleet: which it needs and has, the bakes of those that are due, promotions, returns and deletions."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from bedplate.account.bundle import RegionStore
from bedplate.account.capacity import Clock
from bedplate.account.client import AwsClient, NotThere, RegionResults, ask_regions, failure_lines, require_all
from bedplate.account.facts import newest_images
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.files import held
from bedplate.folder.files import git_output
from bedplate.lock import lock_path, record_baked
from bedplate.operate import Operator, Result, open_account, plan_and_account, plan_of
from bedplate.operate.bundle import bundle_differences
from bedplate.operate.terminations import confirm, find_terminations
from bedplate.plan import FleetPlan
from bedplate.plan.node_document import node_document
from bedplate.plan.nodes import pool_node
from bedplate.plan.planner import ImageKind, image_kinds
from bedplate.plan.pools import PoolPlan
from bedplate.plan.registries import pulled_images
from bedplate.report import images as report
from bedplate.report.bundle import SHORT
from bedplate.report.images import PlannedImage
from bedplate.rounds import ask_each
from bedplate.spec.groups import Ring
from images import published
from images.bake import Bake, find_site
from images.bakes import Event, Progress, leased, run_bakes
from images.published import FleetImage, PoolRollout
from images.steps import BAKE_DOCUMENTS, BUNDLE, WITHDRAWN, Recipe, document_name, pinned_versions
from stacks.compute.template import bake_boot


@contextmanager
def locked(operator: Operator, plan: FleetPlan, client: AwsClient) -> Iterator[Clock]:
    """Exclude other commands that change images, here and of other operators; yield a clock. Raises HeldError."""
    store = RegionStore(client, plan, plan.home.name)
    with held(operator.fleet.with_name("images")), leased(store, Clock(time.time, time.sleep)) as lease:
        # It renews the lease during the pauses of a bake.
        yield Clock(lease.clock.now, lease.sleep)


def regions_of(plan: FleetPlan) -> tuple[str, ...]:
    """Return the names of the fleet's regions."""
    return tuple(plan.regions_by_name)


ChosenKinds = Mapping[ImageKind, tuple[PoolPlan, ...]]


def chosen_kinds(plan: FleetPlan, names: Sequence[str], regions: Sequence[str]) -> ChosenKinds:
    """Return the kinds of these names and their pools in these regions; all without names. Raises InputError."""
    kinds = image_kinds(plan, plan.catalog)
    kind_names = {kind.name for kind in kinds}
    for name in names:
        if name not in kind_names:
            raise InputError(
                f"the fleet needs no image of kind {name}", fix=f"write one of {', '.join(sorted(kind_names))}"
            )
    for region in regions:
        if region not in plan.regions_by_name:
            raise InputError(f"the fleet has no region {region}", fix=f"write one of {', '.join(regions_of(plan))}")
    chosen = {
        kind: tuple(pool for pool in pools if not regions or pool.region in regions)
        for kind, pools in kinds.items()
        if not names or kind.name in names
    }
    return {kind: pools for kind, pools in chosen.items() if pools}


def all_images(client: AwsClient, plan: FleetPlan) -> RegionResults[tuple[FleetImage, ...]]:
    """Return the images of each region that answers."""
    return ask_regions(regions_of(plan), lambda region: published.find_images(client, plan.name, region))


def images_of(client: AwsClient, plan: FleetPlan) -> list[FleetImage]:
    """Return the images of all regions; raises if a region does not answer."""
    answers = require_all(all_images(client, plan), "cannot list images")
    return [image for images in answers.values() for image in images]


def used_images(client: AwsClient, plan: FleetPlan, images: Iterable[FleetImage]) -> frozenset[str]:
    """Return the images that the lock, machines, templates or parameters use."""
    listed_images = list(images)

    def ask(region: str) -> frozenset[str]:
        return published.images_in_use(
            client, plan.name, region, [image for image in listed_images if image.region == region]
        )

    regions = {image.region for image in listed_images}
    answers = require_all(ask_regions(sorted(regions), ask), "cannot read which images are in use")
    return frozenset(plan.record.baked.values()).union(*answers.values())


def copies_of(images: Iterable[FleetImage], name: str) -> tuple[FleetImage, ...]:
    """Return the finished images of a name in all regions. Raises InputError for none."""
    copies = tuple(image for image in images if image.name == name and image.finished)
    if not copies:
        raise InputError(f"no finished image is named {name}", fix="`bedplate image list` shows all images")
    return copies


_EXCERPT = 15


def list_planned(operator: Operator) -> Result:
    """Return the images that the fleet needs; one whose recipe has not changed is not baked again."""
    plan = plan_of(operator)
    images = tuple(_planned(operator, open_account(plan), plan, image_kinds(plan, plan.catalog)))
    return Result(report.planned_lines(images), report.planned_document(images))


def bake(operator: Operator, kinds: Sequence[str], regions: Sequence[str], *, keep: bool) -> None:
    """Bake the images of these kinds that are due, or of all, copy them to the regions, and record them.

    `keep` keeps the instance of a failed install stage. Raises the error of a single bake, or PartialError for several.
    """
    plan = plan_of(operator)
    chosen = chosen_kinds(plan, kinds, regions)
    client = open_account(plan)
    planned = tuple(_planned(operator, client, plan, chosen))
    current = [image for image in planned if not _is_due(image)]
    operator.show(f"{image.recipe.kind.name}: {image.state}: {image.recipe.name}" for image in current)
    due = tuple(image for image in planned if _is_due(image))
    if not due:
        return
    runs = _runs(client, plan, due, chosen)
    with locked(operator, plan, client) as clock:
        try:
            _follow(operator, runs, clock, plan.name, keep=keep)
        except KeyboardInterrupt:
            what = "the same command continues; `bedplate image sweep` removes what it has created"
            operator.notify([f"interrupted: {what}"])
            raise
    _check_results(operator, runs)


def list_images(operator: Operator) -> Result:
    """Return the fleet's images and the last roll-outs of workers, of the regions that answer."""
    plan, client = plan_and_account(operator)
    answers = all_images(client, plan)
    images = [image for region in answers.successes.values() for image in region]
    used = used_images(client, plan, images)
    workers = [pool for pool in plan.pools if pool.use.is_worker and pool.region in answers.successes]
    rollouts = tuple(published.last_rollouts(client, plan.name, workers))
    bucket = RegionStore(client, plan, plan.home.name).bucket
    document = {
        "images": report.image_documents(images, used, bucket),
        "rollouts": [asdict(rollout) for rollout in rollouts],
    }
    notes = [f"unknown: {line}" for line in failure_lines(answers.failures)]
    lines = (*report.image_lines(images, used, datetime.now(UTC)), *report.rollout_lines(rollouts))
    return Result(lines, document, PartialError.exit_code if notes else 0, notes)


def compare(operator: Operator, first: str, second: str) -> Result:
    """Return the differences of two images: inputs, packages, and files of roles."""
    plan, client = plan_and_account(operator)
    images = images_of(client, plan)
    before, after = (copies_of(images, name)[0] for name in (first, second))
    store = RegionStore(client, plan, plan.home.name)
    packages = report.package_lines(*(published.read_packages(store, image.name) for image in (before, after)))
    files = _file_lines(store, *(image.tags.get(BUNDLE, "") for image in (before, after)))
    return Result(chain(report.difference_lines(before, after), packages, files))


def _file_lines(store: RegionStore, first: str, second: str) -> Iterator[str]:
    """Yield the files of roles that differ between two bundles."""
    lines: list[str] = []
    try:
        if first != second:
            lines = [
                line
                for line in bundle_differences(store, first[:SHORT], second[:SHORT])
                if line.split()[-1].startswith("roles/")
            ]
    except BedplateError as error:
        lines = [f"files of roles: unknown: {error.what}"]
    yield from lines or ("files of roles: no differences",)


def _planned(operator: Operator, client: AwsClient, plan: FleetPlan, kinds: ChosenKinds) -> Iterator[PlannedImage]:
    """Yield each kind with its recipe, and the regions that have its image. Raises InputError for an unusable base."""
    home = plan.home.name
    bundle = _bundle(client, plan)
    answers = all_images(client, plan)
    operator.notify(f"images unknown: {line}" for line in failure_lines(answers.failures))
    finished = [image for images in answers.successes.values() for image in images if image.finished]
    for kind, pools in kinds.items():
        place = f"{home}/{kind.arch}"
        base = plan.record.images.get(place) or newest_images(client, [place])[place]
        published.check_base(client, home, kind.arch, base)
        recipe = Recipe(plan.name, kind, base, bundle, pinned_versions(plan, kind))
        regions = tuple(dict.fromkeys(pool.region for pool in pools))
        copies = {image.region: image for image in finished if image.name == recipe.name}
        yield PlannedImage(
            recipe,
            regions,
            {region: copies[region].id for region in (home, *regions) if region in copies},
            {region: plan.record.baked.get(f"{region}/{kind.name}", "") for region in regions},
            withdrawn=any(image.withdrawn for image in copies.values()),
        )


def _bundle(client: AwsClient, plan: FleetPlan) -> str:
    """Return the hash of the bundle that machines of the stable ring use."""
    ring = RegionStore(client, plan, plan.home.name).ring(Ring.STABLE)
    if ring is None:
        fix = "run `bedplate bundle push`, then `bedplate bundle promote stable`"
        raise InputError(f"no node bundle is promoted to stable in {plan.home.name}", fix=fix)
    return ring.bundle


def _is_due(image: PlannedImage) -> bool:
    return image.state not in {"unchanged", "withdrawn"}


def _runs(client: AwsClient, plan: FleetPlan, due: Iterable[PlannedImage], kinds: ChosenKinds) -> tuple[Progress, ...]:
    def progress(image: PlannedImage) -> Progress:
        pools = kinds[image.recipe.kind]
        node = pool_node(plan, pools[0], f"{pools[0].group}.{pools[0].region}", plan.catalog)
        document = node_document(replace(node, images=pulled_images(plan, pools)))
        user_data = bake_boot(plan, document_name(image.recipe.kind))
        site = find_site(client, plan, image.recipe)
        bake = Bake(client, plan, site, image.recipe, image.regions, user_data, document, _commit())
        return Progress(bake, {region: ident for region, ident in image.in_use.items() if ident})

    return tuple(progress(image) for image in due)


def _commit() -> str:
    """Return the commit of the clone of bedplate; `unknown` outside of a clone."""
    return (git_output(Path(__file__).parent, "rev-parse", "HEAD") or "unknown").strip()


def _follow(operator: Operator, runs: tuple[Progress, ...], clock: Clock, name: str, *, keep: bool) -> None:
    """Report what the bakes do until they are over."""

    def record(images: Mapping[str, str]) -> None:
        record_baked(lock_path(operator.fleet), name, images)

    start = time.monotonic()
    for event in run_bakes(runs, clock, record, keep=keep):
        minutes, seconds = divmod(int(time.monotonic() - start), 60)
        operator.notify([f"{minutes:02d}:{seconds:02d} {event.kind}: {event.text}"])
        if event.console:
            operator.notify(f"  | {line}" for line in event.console[-_EXCERPT:])
            operator.notify([f"  the whole console output: {_keep_log(event)}"])


def _keep_log(event: Event) -> Path:
    """Write the console output of a failed instance to the cache folder."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bedplate"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"bake-{event.kind}.log"
    path.write_text("".join(f"{line}\n" for line in event.console), encoding="utf-8")
    return path


def _check_results(operator: Operator, runs: tuple[Progress, ...]) -> None:
    """Report each result. Raises the error of a single bake, or PartialError for several."""
    for run in runs:
        if "" not in run.failures:
            operator.show([f"{run.kind}: {run.bake.recipe.name} in {', '.join(sorted(run.recorded)) or 'no region'}"])
    errors: list[BedplateError] = [error for run in runs for error in run.failures.values()]
    if len(errors) == 1 and len(runs) == 1 and "" in runs[0].failures:
        raise errors[0]
    if errors:
        operator.notify(f"{run.kind} {region}: {error.what}" for run in runs for region, error in run.failures.items())
        raise PartialError("not all images are complete", fix=errors[0].fix or "run `bedplate image bake` again")


def promote(operator: Operator, name: str) -> None:
    """Use a finished image for new machines, and replace workers on other images."""
    plan, client = plan_and_account(operator)
    with locked(operator, plan, client):
        copies = copies_of(images_of(client, plan), name)
        _confirm_rollout(operator, client, plan, copies)
        for image in copies:
            if image.withdrawn:
                published.unmark(client, image.region, image.id, WITHDRAWN)
        _promote(operator, client, plan, copies)


def rollback(operator: Operator, kind: str) -> None:
    """Return to the previous image of a kind."""
    plan = plan_of(operator)
    chosen_kinds(plan, [kind], [])
    client = open_account(plan)
    with locked(operator, plan, client):
        images = [image for image in images_of(client, plan) if image.kind == kind and image.finished]
        recorded = {value for place, value in plan.record.baked.items() if place.endswith(f"/{kind}")}
        names = list(report.by_name(images))
        current = next((image.name for image in images if image.id in recorded), None)
        if current is None:
            raise InputError(f"fleet.lock has no image of {kind}", fix="`bedplate image bake` bakes one")
        withdrawn = {image.name for image in images if image.withdrawn}
        earlier = [name for name in names[names.index(current) + 1 :] if name not in withdrawn]
        if not earlier:
            raise InputError(f"no image of {kind} is older than {current}", fix="`bedplate image list` shows all")
        _confirm_rollout(operator, client, plan, copies_of(images, earlier[0]))
        for image in copies_of(images, current):
            published.mark(client, image.region, image.id, WITHDRAWN)
        ended = [pool.name for pool in _workers(plan, kind) if PoolRollout(client, plan.name, pool).end()]
        operator.show(f"{pool}: AWS rolls the machines back to the previous image" for pool in ended)
        _promote(operator, client, plan, copies_of(images, earlier[0]))


def prune(operator: Operator, keep: int) -> None:
    """Delete old images of each kind but the newest, and those in use or protected."""
    plan, client = plan_and_account(operator)
    with locked(operator, plan, client):
        images = [image for image in images_of(client, plan) if image.finished]
        used = used_images(client, plan, images)
        for copies in _old(images, used, keep):
            for image in copies:
                published.discard(client, image)
            RegionStore(client, plan, plan.home.name).delete(published.bill_key(copies[0].name))
            operator.show([f"deleted {copies[0].name} in {', '.join(image.region for image in copies)}"])


def sweep(operator: Operator) -> int:
    """Remove what killed bakes have left; return the exit status."""
    plan, client = plan_and_account(operator)
    with locked(operator, plan, client):
        answers = published.find_leftovers(client, plan.name, regions_of(plan))
        for leftovers in answers.successes.values():
            published.remove_leftovers(client, leftovers)
            operator.show(f"{leftovers.region}: removed {name}" for name in leftovers.names)
        store = RegionStore(client, plan, plan.home.name)
        with suppress(NotThere):  # no bucket
            for key in tuple(store.keys(f"nodes/{BAKE_DOCUMENTS}")):
                store.delete(key)
                operator.show([f"{store.region}: removed {key}"])
    operator.notify(f"not searched: {line}" for line in failure_lines(answers.failures))
    return PartialError.exit_code if answers.failures else 0


def _confirm_rollout(operator: Operator, client: AwsClient, plan: FleetPlan, copies: tuple[FleetImage, ...]) -> None:
    """Name the running workers on other images, which a roll-out ends, and ask; ask nothing without any."""
    ids = {image.region: image.id for image in copies}
    kept = defaultdict[str, dict[str, int]](dict)
    for pool in _workers(plan, copies[0].kind):
        if pool.region in ids:
            kept[pool.region][f"{plan.name}-{pool.name}"] = 0
    terminations = find_terminations(client, plan, kept, lambda machine: machine.image != ids[machine.region])
    if terminations:
        operator.show_changes(end.line for end in terminations)
        confirm(operator, "replace them?", terminations)


def _promote(operator: Operator, client: AwsClient, plan: FleetPlan, copies: tuple[FleetImage, ...]) -> None:
    """Publish and record an image in the regions that have it. Raises PartialError if a region lacks it."""
    kind, ids = copies[0].kind, {image.region: image.id for image in copies}
    pools = _pools(plan, kind)
    for region, ident in ids.items():
        published.publish(client, plan.name, kind, region, ident)
    needed = {pool.region for pool in pools}
    images = {f"{region}/{kind}": ident for region, ident in ids.items() if region in needed}
    record_baked(lock_path(operator.fleet), plan.name, images)
    operator.show([f"{kind}: {copies[0].name} in {', '.join(sorted(ids))}: `bedplate up` uses it for new machines"])
    workers = {pool.name: pool for pool in _workers(plan, kind) if pool.region in ids}

    def begin(name: str) -> None:
        operator.show([PoolRollout(client, plan.name, workers[name]).start(ids[workers[name].region])])

    _, errors = ask_each(workers, begin, 1)
    if missing := sorted(needed - ids.keys()):
        fix = f"run `bedplate image bake {kind}`"
        raise PartialError(f"{copies[0].name} is not in {', '.join(missing)}", fix=fix)
    if errors:
        what = "; ".join(error.what for error in errors.values())
        raise PartialError(f"not rolled out: {what}", fix=next(iter(errors.values())).fix)


def _pools(plan: FleetPlan, kind: str) -> tuple[PoolPlan, ...]:
    """Return the pools of a kind; none if the fleet does not need it now."""
    return {image_kind.name: pools for image_kind, pools in image_kinds(plan, plan.catalog).items()}.get(kind, ())


def _workers(plan: FleetPlan, kind: str) -> tuple[PoolPlan, ...]:
    return tuple(pool for pool in _pools(plan, kind) if pool.use.is_worker)


def _old(images: Iterable[FleetImage], used: frozenset[str], keep: int) -> Iterator[tuple[FleetImage, ...]]:
    """Yield the images of each kind that are neither among the newest, nor in use or protected in any region."""
    counts: dict[str, int] = {}
    for copies in report.by_name(images).values():
        kind = copies[0].kind
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > keep and not any(image.id in used or image.protected for image in copies):
            yield copies
