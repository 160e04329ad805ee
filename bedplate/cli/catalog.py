"""`bedplate catalog`: the facts about AWS that the project ships, asked anew."""

from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.output import show
from bedplate.errors import InputError

if TYPE_CHECKING:
    from bedplate.account.door import Door
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
    from bedplate.account.door import open_door
    from bedplate.catalog import load_catalog
    from bedplate.catalog.renewal import changes, check_whole
    from bedplate.catalog.rewritten import RENEWED, rewritten
    from bedplate.catalog.shipped import ship, shipped
    from bedplate.load.clock import today
    from bedplate.report.renewal import renewal_lines

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
    from bedplate.account.offers import enabled_regions

    enabled = enabled_regions(door, catalog.price_region)
    return tuple(name for name in catalog.regions if name in enabled)


def _asked(door: "Door", catalog: "Catalog", regions: tuple[str, ...]) -> "Catalog":
    """Return the catalogue as AWS tells it today; raises where any call fails."""
    from bedplate.account.offers import region_answer
    from bedplate.account.prices import list_prices
    from bedplate.account.regions import ask_regions, every_answer
    from bedplate.catalog.renewal import renewed

    answers = every_answer(ask_regions(regions, lambda name: region_answer(door, name)), "nothing was written")
    return renewed(catalog, answers, list_prices(door, catalog.price_region))
