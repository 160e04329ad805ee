"""The commands of machine images: plan, bake, list, promote, rollback, diff, prune, sweep."""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.bake import Bake, find_site
from bedplate.account.bakes import Event, Progress, run_bakes
from bedplate.account.bundle import RegionStore
from bedplate.account.client import AwsClient, RegionResults, ask_regions, failure_lines, require_all
from bedplate.account.facts import newest_images
from bedplate.account.images import (
    FleetImage,
    check_base,
    discard,
    find_images,
    find_leftovers,
    images_in_use,
    mark,
    publish,
    remove_leftovers,
    unmark,
)
from bedplate.account.start import Clock
from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, FleetOption, Json, notify, show, show_document
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.hold import held
from bedplate.images.recipe import WITHDRAWN, Recipe, document_name, pinned_versions
from bedplate.lock import lock_path, record_baked
from bedplate.plan import FleetPlan
from bedplate.plan.images import ImageKind, image_kinds
from bedplate.plan.node_document import pool_document
from bedplate.plan.pools import PoolPlan
from bedplate.report.images import (
    PlannedImage,
    by_name,
    difference_lines,
    image_documents,
    image_lines,
    planned_document,
    planned_lines,
)
from bedplate.spec.groups import Ring

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
    chosen = _chosen(fleet_plan, kinds or [], region or [])
    client = open_account(fleet_plan)
    with _held(fleet):
        planned = tuple(_planned(client, fleet_plan, chosen))
        show(f"{image.recipe.kind.name}: {image.state}: {image.recipe.name}" for image in planned if not _is_due(image))
        due = tuple(image for image in planned if _is_due(image))
        if not due:
            return 0
        runs = _runs(client, fleet_plan, due, chosen)
        try:
            _follow(runs, fleet, fleet_plan.name, keep=keep)
        except KeyboardInterrupt:
            notify(["interrupted: the same command continues; `bedplate image sweep` removes what it has created"])
            raise
    return _result(runs)


def list_images(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the fleet's images."""
    fleet_plan = plan_of(fleet)
    client = open_account(fleet_plan)
    answers = _all_images(client, fleet_plan)
    images = [image for region in answers.given.values() for image in region]
    used = _used(client, fleet_plan, images)
    if json:
        show_document({"images": image_documents(images, used)})
    else:
        show(image_lines(images, used, datetime.now(UTC)))
    notify(f"unknown: {line}" for line in failure_lines(answers.failures))
    return PartialError.exit_code if answers.failures else 0


Name = Annotated[str, typer.Argument(metavar="NAME", help="An image of `image list`.")]


def promote(name: Name, *, fleet: FleetOption = DEFAULT_FLEET) -> int:
    """Use a finished image for new machines."""
    fleet_plan = plan_of(fleet)
    client = open_account(fleet_plan)
    with _held(fleet):
        copies = _copies(_images(client, fleet_plan), name)
        for image in copies:
            if image.withdrawn:
                unmark(client, image.region, image.id, WITHDRAWN)
        return _promote(client, fleet_plan, fleet, copies)


def rollback(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of `image plan`.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Return to the previous image of a kind."""
    fleet_plan = plan_of(fleet)
    _chosen(fleet_plan, [kind], [])
    client = open_account(fleet_plan)
    with _held(fleet):
        images = [image for image in _images(client, fleet_plan) if image.kind == kind and image.finished]
        recorded = {value for place, value in fleet_plan.record.baked.items() if place.endswith(f"/{kind}")}
        names = list(by_name(images))
        current = next((image.name for image in images if image.id in recorded), None)
        if current is None:
            raise InputError(f"fleet.lock has no image of {kind}", fix="`bedplate image bake` bakes one")
        withdrawn = {image.name for image in images if image.withdrawn}
        earlier = [name for name in names[names.index(current) + 1 :] if name not in withdrawn]
        if not earlier:
            raise InputError(f"no image of {kind} is older than {current}", fix="`bedplate image list` shows all")
        for image in _copies(images, current):
            mark(client, image.region, image.id, WITHDRAWN)
        return _promote(client, fleet_plan, fleet, _copies(images, earlier[0]))


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="An image of `image list`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Show in which inputs two images differ."""
    fleet_plan = plan_of(fleet)
    images = _images(open_account(fleet_plan), fleet_plan)
    show(difference_lines(_copies(images, first)[0], _copies(images, second)[0]))
    return 0


def prune(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=1, help="The newest images of each kind to keep.")
    ] = 3,
) -> int:
    """Delete old images.

    Images that are in use or protected are kept.
    """
    fleet_plan = plan_of(fleet)
    client = open_account(fleet_plan)
    with _held(fleet):
        images = [image for image in _images(client, fleet_plan) if image.finished]
        used = _used(client, fleet_plan, images)
        for copies in _old(images, used, keep):
            for image in copies:
                discard(client, image)
            show([f"deleted {copies[0].name} in {', '.join(image.region for image in copies)}"])
    return 0


def sweep(fleet: FleetFile = DEFAULT_FLEET) -> int:
    """Remove what killed bakes have left.

    Finished images are kept.
    """
    fleet_plan = plan_of(fleet)
    client = open_account(fleet_plan)
    with _held(fleet):
        answers = find_leftovers(client, fleet_plan.name, _regions(fleet_plan))
        for leftovers in answers.given.values():
            remove_leftovers(client, leftovers)
            show(f"{leftovers.region}: removed {name}" for name in leftovers.names)
    notify(f"not searched: {line}" for line in failure_lines(answers.failures))
    return PartialError.exit_code if answers.failures else 0


def _held(fleet: Path) -> AbstractContextManager[None]:
    """Exclude a second command that changes images; raises HeldError."""
    return held(fleet.with_name("images"))


def _regions(plan: FleetPlan) -> tuple[str, ...]:
    return tuple(plan.regions_by_name)


Chosen = Mapping[ImageKind, tuple[PoolPlan, ...]]


def _chosen(plan: FleetPlan, names: list[str], regions: list[str]) -> Chosen:
    """Return the kinds of these names and their pools in these regions; all without names. Raises InputError."""
    kinds = image_kinds(plan, load_catalog())
    known = {kind.name for kind in kinds}
    for name in names:
        if name not in known:
            raise InputError(f"the fleet needs no image of kind {name}", fix=f"write one of {', '.join(sorted(known))}")
    for region in regions:
        if region not in plan.regions_by_name:
            raise InputError(f"the fleet has no region {region}", fix=f"write one of {', '.join(_regions(plan))}")
    chosen = {
        kind: tuple(pool for pool in pools if not regions or pool.region in regions)
        for kind, pools in kinds.items()
        if not names or kind.name in names
    }
    return {kind: pools for kind, pools in chosen.items() if pools}


def _planned(client: AwsClient, plan: FleetPlan, kinds: Chosen) -> Iterator[PlannedImage]:
    """Yield each kind with its recipe, and the regions that have its image. Raises InputError for an unusable base."""
    home = plan.home.name
    bundle = _bundle(client, plan)
    answers = _all_images(client, plan)
    notify(f"images unknown: {line}" for line in failure_lines(answers.failures))
    finished = [image for images in answers.given.values() for image in images if image.finished]
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


def _runs(client: AwsClient, plan: FleetPlan, due: Iterable[PlannedImage], kinds: Chosen) -> tuple[Progress, ...]:
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


def _follow(runs: tuple[Progress, ...], fleet: Path, name: str, *, keep: bool) -> None:
    """Print what the bakes do until they are over."""

    def record(images: Mapping[str, str]) -> None:
        record_baked(lock_path(fleet), name, images)

    start = time.monotonic()
    for event in run_bakes(runs, Clock(time.time, time.sleep), record, keep=keep):
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


def _all_images(client: AwsClient, plan: FleetPlan) -> RegionResults[tuple[FleetImage, ...]]:
    return ask_regions(_regions(plan), lambda region: find_images(client, plan.name, region))


def _images(client: AwsClient, plan: FleetPlan) -> list[FleetImage]:
    """Return the images of all regions; raises if a region does not answer."""
    answers = require_all(_all_images(client, plan), "cannot list images")
    return [image for images in answers.values() for image in images]


def _used(client: AwsClient, plan: FleetPlan, images: Iterable[FleetImage]) -> frozenset[str]:
    """Return the images that the lock, machines, templates or parameters use."""
    known = list(images)

    def ask(region: str) -> frozenset[str]:
        return images_in_use(client, plan.name, region, [image for image in known if image.region == region])

    regions = {image.region for image in known}
    answers = require_all(ask_regions(sorted(regions), ask), "cannot read which images are in use")
    return frozenset(plan.record.baked.values()).union(*answers.values())


def _copies(images: Iterable[FleetImage], name: str) -> tuple[FleetImage, ...]:
    """Return the finished images of a name in all regions. Raises InputError for none."""
    copies = tuple(image for image in images if image.name == name and image.finished)
    if not copies:
        raise InputError(f"no finished image is named {name}", fix="`bedplate image list` shows all images")
    return copies


def _promote(client: AwsClient, plan: FleetPlan, fleet: Path, copies: tuple[FleetImage, ...]) -> int:
    """Publish and record an image in the regions that have it. Raises PartialError if a region lacks it."""
    kind, ids = copies[0].kind, {image.region: image.id for image in copies}
    pools = next((pools for kind_, pools in image_kinds(plan, load_catalog()).items() if kind_.name == kind), ())
    for region, ident in ids.items():
        publish(client, plan.name, kind, region, ident)
    needed = {pool.region for pool in pools}
    images = {f"{region}/{kind}": ident for region, ident in ids.items() if region in needed}
    record_baked(lock_path(fleet), plan.name, images)
    show([f"{kind}: {copies[0].name} in {', '.join(sorted(ids))}: `bedplate up` uses it for new machines"])
    if missing := sorted(needed - ids.keys()):
        fix = f"run `bedplate image bake {kind}`"
        raise PartialError(f"{copies[0].name} is not in {', '.join(missing)}", fix=fix)
    return 0


def _old(images: Iterable[FleetImage], used: frozenset[str], keep: int) -> Iterator[tuple[FleetImage, ...]]:
    """Yield the images of each kind that are neither among the newest, nor in use or protected in any region."""
    counts: dict[str, int] = {}
    for copies in by_name(images).values():
        kind = copies[0].kind
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > keep and not any(image.id in used or image.protected for image in copies):
            yield copies
