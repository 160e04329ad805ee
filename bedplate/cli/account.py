"""The commands about an account or a region of AWS: quotas, image record, catalog refresh."""

from typing import Annotated

import typer

from bedplate.cli.options import Json, OnFleet, printed
from bedplate.operate import account


def quotas(operator: OnFleet, *, json: Json = False) -> int:
    """Show required and granted quotas.

    The exit status is 3 if a granted quota is too small for the minimum number of machines.
    """
    return printed(account.quotas(operator), as_json=json)


def record_image_ids(
    operator: OnFleet,
    *,
    renew: Annotated[bool, typer.Option("--renew", help="Also replace recorded images by the newest.")] = False,
) -> int:
    """Record Ubuntu images in fleet.lock."""
    return printed(account.record_images_of_ubuntu(operator, renew=renew))


def refresh_catalog(
    operator: OnFleet,
    *,
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region", metavar="REGION", help="Ask only this region; repeatable. Default: the regions of the fleet."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Record even if more than a tenth of the known facts disappear.")
    ] = False,
) -> None:
    """Record types, offers, prices and checksums of the account in fleet.catalog."""
    account.refresh_catalog(operator, region or (), force=force)
