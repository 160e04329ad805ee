"""`bedplate image`: the images that the fleet's machines start from."""

from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show


def record(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    renew: Annotated[
        bool, typer.Option("--renew", help="Take the newest image also where one is recorded already.")
    ] = False,
) -> int:
    """Record today's Ubuntu images in fleet.lock."""
    from bedplate.account.door import check_account, open_door
    from bedplate.account.images import newest_images
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, planned
    from bedplate.lock import lock_path, record_images, renew_images
    from bedplate.plan.images import image_places, unrecorded_images
    from bedplate.report.images import image_lines

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
