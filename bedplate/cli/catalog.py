"""`bedplate catalog`: the facts about AWS that the project ships, asked anew."""

from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.output import DEFAULT_FLEET, FleetFile, show
from bedplate.errors import InputError

if TYPE_CHECKING:
    from bedplate.account.client import Door
    from bedplate.catalog import Catalog


def refresh(
    *,
    region: Annotated[
        list[str] | None,
        typer.Option("--region", metavar="REGION", help="Ask this region alone; repeatable."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write even where more than a tenth of what was known is gone.")
    ] = False,
) -> int:
    """Ask AWS for types, offers and prices."""
    from bedplate.account.client import open_door
    from bedplate.catalog import load_catalog
    from bedplate.catalog.catalog import RENEWED, changes, check_whole, rewritten, ship, shipped
    from bedplate.load.source import today
    from bedplate.report.cost import renewal_lines

    before, door = load_catalog(), open_door()
    _check_known(before, region or [])
    asked = tuple(region) if region else _enabled(door, before)
    after = _asked(door, before, asked)
    told = tuple(changes(before, after))
    if not force:
        check_whole(told)
    ship(rewritten({name: shipped(name) for name in RENEWED}, after, asked, today()))
    show(renewal_lines(told, () if region else (name for name in before.regions if name not in asked)))
    return 0


def _check_known(catalog: "Catalog", regions: list[str]) -> None:
    from bedplate.catalog.nearest import nearest

    for name in regions:
        if name not in catalog.regions:
            near = nearest(name, catalog.regions)
            raise InputError(f"{name} is no AWS region", fix=f"the nearest is {near}" if near else "name a region")


def _enabled(door: "Door", catalog: "Catalog") -> tuple[str, ...]:
    from bedplate.account.facts import enabled_regions

    enabled = enabled_regions(door, catalog.price_region)
    return tuple(name for name in catalog.regions if name in enabled)


def _asked(door: "Door", catalog: "Catalog", regions: tuple[str, ...]) -> "Catalog":
    """Return the catalogue as AWS tells it today; raises where any call fails."""
    from bedplate.account.client import ask_regions, every_answer
    from bedplate.account.facts import list_prices, region_answer
    from bedplate.catalog.catalog import renewed

    answers = every_answer(ask_regions(regions, lambda name: region_answer(door, name)), "nothing was written")
    return renewed(catalog, answers, list_prices(door, catalog.price_region))


def record(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    renew: Annotated[
        bool, typer.Option("--renew", help="Take the newest image also where one is recorded already.")
    ] = False,
) -> int:
    """Record today's Ubuntu images in fleet.lock."""
    from bedplate.account.client import check_account, open_door
    from bedplate.account.facts import newest_images
    from bedplate.catalog import load_catalog
    from bedplate.cli.fleet import opened, planned
    from bedplate.lock import lock_path, record_images, renew_images
    from bedplate.plan.planner import image_places, unrecorded_images
    from bedplate.report.plan import image_lines

    plan = planned(opened(fleet))
    places = image_places(plan, load_catalog())
    wanted = places if renew else unrecorded_images(plan, load_catalog())
    now = plan.record.images
    if wanted:
        door = open_door()
        check_account(door, plan.account, plan.home.name)
        write = renew_images if renew else record_images
        now = write(lock_path(fleet), plan.name, newest_images(door, wanted)).images
    show(image_lines(places, plan.record.images, now))
    return 0
