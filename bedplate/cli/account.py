"""The commands about an account or a region of AWS: quotas, image record, catalog refresh."""

from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, Terminal, printed
from bedplate.operate import account


def quotas(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show required and granted quotas.

    The exit status is 3 if a granted quota is too small for the minimum number of machines.
    """
    return printed(account.quotas(Terminal(fleet)), as_json=json)


def record_image_ids(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    renew: Annotated[bool, typer.Option("--renew", help="Also replace recorded images by the newest.")] = False,
) -> int:
    """Record Ubuntu images in fleet.lock."""
    return printed(account.record_images_of_ubuntu(Terminal(fleet), renew=renew))


def refresh_catalog(
    *,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="REGION", help="Ask only this region; repeatable.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write even if more than a tenth of the known facts disappear.")
    ] = False,
) -> int:
    """Update types, offers, prices and checksums."""
    account.refresh_catalog(Terminal(DEFAULT_FLEET), region or (), force=force)
    return 0
