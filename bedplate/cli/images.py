"""The commands of machine images: plan, bake, list, diff; and what all commands of images share."""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.bake import Bake, find_site
from bedplate.account.bakes import Event, Progress, leased, run_bakes
from bedplate.account.bundle import RegionStore
from bedplate.account.capacity import Clock
from bedplate.account.client import AwsClient, RegionResults, ask_regions, failure_lines, require_all
from bedplate.account.facts import newest_images
from bedplate.account.images import FleetImage, check_base, find_images, images_in_use, last_rollouts, read_packages
from bedplate.catalog import load_catalog
from bedplate.cli.bundle import bundle_differences
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, FleetOption, Json, notify, show, show_document
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.files import held
from bedplate.lock import lock_path, record_baked
from bedplate.plan import FleetPlan
from bedplate.plan.node_document import pool_document
from bedplate.plan.planner import ImageKind, image_kinds
from bedplate.plan.pools import PoolPlan
from bedplate.report.bundle import SHORT
from bedplate.report.images import (
    PlannedImage,
    difference_lines,
    image_documents,
    image_lines,
    package_lines,
    planned_document,
    planned_lines,
    rollout_lines,
)
from bedplate.spec.groups import Ring
from images.bake import BUNDLE, Recipe, document_name, pinned_versions


@contextmanager
def locked(fleet: Path, plan: FleetPlan, client: AwsClient) -> Iterator[Clock]:
    """Exclude other commands that change images, here and of other operators; yield a clock. Raises HeldError."""
    store = RegionStore(client, plan, plan.home.name)
    with held(fleet.with_name("images")), leased(store, Clock(time.time, time.sleep)) as lease:
        # It renews the lease during the pauses of a bake.
        yield Clock(lease.clock.now, lease.sleep)


def regions_of(plan: FleetPlan) -> tuple[str, ...]:
    """Return the names of the fleet's regions."""
    return tuple(plan.regions_by_name)


ChosenKinds = Mapping[ImageKind, tuple[PoolPlan, ...]]


def chosen_kinds(plan: FleetPlan, names: list[str], regions: list[str]) -> ChosenKinds:
    """Return the kinds of these names and their pools in these regions; all without names. Raises InputError."""
    kinds = image_kinds(plan, load_catalog())
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
    return ask_regions(regions_of(plan), lambda region: find_images(client, plan.name, region))


def images_of(client: AwsClient, plan: FleetPlan) -> list[FleetImage]:
    """Return the images of all regions; raises if a region does not answer."""
    answers = require_all(all_images(client, plan), "cannot list images")
    return [image for images in answers.values() for image in images]


def used_images(client: AwsClient, plan: FleetPlan, images: Iterable[FleetImage]) -> frozenset[str]:
    """Return the images that the lock, machines, templates or parameters use."""
    listed_images = list(images)

    def ask(region: str) -> frozenset[str]:
        return images_in_use(client, plan.name, region, [image for image in listed_images if image.region == region])

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


def plan(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the images that the fleet needs.

    An image whose recipe has not changed is not baked again.
    """
    fleet_plan = plan_of(fleet)
    images = tuple(_planned(open_account(fleet_plan), fleet_plan, image_kinds(fleet_plan, load_catalog())))
    if json:
        show_document(planned_document(images))
    else:
        show(planned_lines(images))
    return 0


def bake(
    kinds: Annotated[list[str] | None, typer.Argument(metavar="[KIND]...", help="Default: all that are due.")] = None,
    *,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="REGION", help="Only copy to this region; repeatable.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the instance of a failed install stage.")] = False,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Bake images, copy and record them.

    Continues a bake that was killed.
    """
    fleet_plan = plan_of(fleet)
    chosen = chosen_kinds(fleet_plan, kinds or [], region or [])
    client = open_account(fleet_plan)
    planned = tuple(_planned(client, fleet_plan, chosen))
    show(f"{image.recipe.kind.name}: {image.state}: {image.recipe.name}" for image in planned if not _is_due(image))
    due = tuple(image for image in planned if _is_due(image))
    if not due:
        return 0
    runs = _runs(client, fleet_plan, due, chosen)
    with locked(fleet, fleet_plan, client) as clock:
        try:
            _follow(runs, clock, fleet, fleet_plan.name, keep=keep)
        except KeyboardInterrupt:
            notify(["interrupted: the same command continues; `bedplate image sweep` removes what it has created"])
            raise
    return _result(runs)


def list_images(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the fleet's images."""
    fleet_plan = plan_of(fleet)
    client = open_account(fleet_plan)
    answers = all_images(client, fleet_plan)
    images = [image for region in answers.successes.values() for image in region]
    used = used_images(client, fleet_plan, images)
    workers = [pool for pool in fleet_plan.pools if pool.use.is_worker and pool.region in answers.successes]
    rollouts = tuple(last_rollouts(client, fleet_plan.name, workers))
    if json:
        bucket = RegionStore(client, fleet_plan, fleet_plan.home.name).bucket
        documents = image_documents(images, used, bucket)
        show_document({"images": documents, "rollouts": [asdict(rollout) for rollout in rollouts]})
    else:
        show(image_lines(images, used, datetime.now(UTC)))
        show(rollout_lines(rollouts))
    notify(f"unknown: {line}" for line in failure_lines(answers.failures))
    return PartialError.exit_code if answers.failures else 0


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="An image of `image list`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Compare two images: inputs, packages, and files of roles."""
    fleet_plan = plan_of(fleet)
    client = open_account(fleet_plan)
    images = images_of(client, fleet_plan)
    before, after = (copies_of(images, name)[0] for name in (first, second))
    show(difference_lines(before, after))
    store = RegionStore(client, fleet_plan, fleet_plan.home.name)
    show(package_lines(*(read_packages(store, image.name) for image in (before, after))))
    show(_file_lines(store, *(image.tags.get(BUNDLE, "") for image in (before, after))))
    return 0


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


def _planned(client: AwsClient, plan: FleetPlan, kinds: ChosenKinds) -> Iterator[PlannedImage]:
    """Yield each kind with its recipe, and the regions that have its image. Raises InputError for an unusable base."""
    home = plan.home.name
    bundle = _bundle(client, plan)
    answers = all_images(client, plan)
    notify(f"images unknown: {line}" for line in failure_lines(answers.failures))
    finished = [image for images in answers.successes.values() for image in images if image.finished]
    for kind, pools in kinds.items():
        place = f"{home}/{kind.arch}"
        base = plan.record.images.get(place) or newest_images(client, [place])[place]
        check_base(client, home, kind.arch, base)
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
        raise InputError(f"no bundle is promoted to stable in {plan.home.name}", fix=fix)
    return ring.bundle


def _is_due(image: PlannedImage) -> bool:
    return image.state not in {"unchanged", "withdrawn"}


def _runs(client: AwsClient, plan: FleetPlan, due: Iterable[PlannedImage], kinds: ChosenKinds) -> tuple[Progress, ...]:
    # Slow: it imports Pulumi.
    from stacks.compute.template import bake_boot

    def progress(image: PlannedImage) -> Progress:
        document = pool_document(plan, kinds[image.recipe.kind][0], load_catalog())
        user_data = bake_boot(plan, document_name(image.recipe.kind))
        site = find_site(client, plan, image.recipe)
        bake = Bake(client, plan, site, image.recipe, image.regions, user_data, document, _commit())
        return Progress(bake, {region: ident for region, ident in image.in_use.items() if ident})

    return tuple(progress(image) for image in due)


def _commit() -> str:
    """Return the commit of the clone of bedplate; `unknown` outside of a clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _follow(runs: tuple[Progress, ...], clock: Clock, fleet: Path, name: str, *, keep: bool) -> None:
    """Print what the bakes do until they are over."""

    def record(images: Mapping[str, str]) -> None:
        record_baked(lock_path(fleet), name, images)

    start = time.monotonic()
    for event in run_bakes(runs, clock, record, keep=keep):
        minutes, seconds = divmod(int(time.monotonic() - start), 60)
        notify([f"{minutes:02d}:{seconds:02d} {event.kind}: {event.text}"])
        if event.console:
            notify(f"  | {line}" for line in event.console[-_EXCERPT:])
            notify([f"  the whole console output: {_keep_log(event)}"])


def _keep_log(event: Event) -> Path:
    """Write the console output of a failed instance to the cache folder."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bedplate"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"bake-{event.kind}.log"
    path.write_text("".join(f"{line}\n" for line in event.console), encoding="utf-8")
    return path


def _result(runs: tuple[Progress, ...]) -> int:
    """Print each result. Raises the error of a single bake, or PartialError for several."""
    for run in runs:
        if "" not in run.failures:
            show([f"{run.kind}: {run.bake.recipe.name} in {', '.join(sorted(run.recorded)) or 'no region'}"])
    errors: list[BedplateError] = [error for run in runs for error in run.failures.values()]
    if len(errors) == 1 and len(runs) == 1 and "" in runs[0].failures:
        raise errors[0]
    if errors:
        notify(f"{run.kind} {region}: {error.what}" for run in runs for region, error in run.failures.items())
        raise PartialError("not all images are complete", fix=errors[0].fix or "run `bedplate image bake` again")
    return 0
