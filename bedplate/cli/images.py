"""The commands of machine images: plan, bake, list, promote, rollback, diff, prune, sweep."""

from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, FleetOption, Json, Terminal, printed
from bedplate.operate import image_changes, images

Name = Annotated[str, typer.Argument(metavar="NAME", help="An image of `image list`.")]


def plan(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the images that the fleet needs.

    An image whose recipe has not changed is not baked again.
    """
    return printed(images.list_planned(Terminal(fleet)), as_json=json)


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
    images.bake(Terminal(fleet), kinds or (), region or (), keep=keep)
    return 0


def list_images(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the fleet's images."""
    return printed(images.list_images(Terminal(fleet)), as_json=json)


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="An image of `image list`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Compare two images: inputs, packages, and files of roles."""
    return printed(images.compare(Terminal(fleet), first, second))


def promote(name: Name, *, fleet: FleetOption = DEFAULT_FLEET) -> int:
    """Use a finished image for new machines, and replace workers on other images.

    Machines with SSH stay on theirs.
    """
    image_changes.promote(Terminal(fleet), name)
    return 0


def rollback(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of `image plan`.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Return to the previous image of a kind."""
    image_changes.rollback(Terminal(fleet), kind)
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
    image_changes.prune(Terminal(fleet), keep)
    return 0


def sweep(fleet: FleetFile = DEFAULT_FLEET) -> int:
    """Remove what killed bakes have left.

    Finished images are kept.
    """
    return image_changes.sweep(Terminal(fleet))
