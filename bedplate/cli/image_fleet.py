"""What the commands of machine images share: kinds by name, the fleet's images and their use, and the lock."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bedplate.account.bakes import leased
from bedplate.account.bundle import RegionStore
from bedplate.account.capacity import Clock
from bedplate.account.client import AwsClient, RegionResults, ask_regions, require_all
from bedplate.account.images import FleetImage, find_images, images_in_use
from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.files import held
from bedplate.plan import FleetPlan
from bedplate.plan.planner import ImageKind, image_kinds
from bedplate.plan.pools import PoolPlan


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
    known = {kind.name for kind in kinds}
    for name in names:
        if name not in known:
            raise InputError(f"the fleet needs no image of kind {name}", fix=f"write one of {', '.join(sorted(known))}")
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
    known = list(images)

    def ask(region: str) -> frozenset[str]:
        return images_in_use(client, plan.name, region, [image for image in known if image.region == region])

    regions = {image.region for image in known}
    answers = require_all(ask_regions(sorted(regions), ask), "cannot read which images are in use")
    return frozenset(plan.record.baked.values()).union(*answers.values())


def copies_of(images: Iterable[FleetImage], name: str) -> tuple[FleetImage, ...]:
    """Return the finished images of a name in all regions. Raises InputError for none."""
    copies = tuple(image for image in images if image.name == name and image.finished)
    if not copies:
        raise InputError(f"no finished image is named {name}", fix="`bedplate image list` shows all images")
    return copies
