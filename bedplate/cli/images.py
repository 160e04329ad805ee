"""The commands of machine images: plan, bake, list, promote, rollback, diff, prune, sweep; and container images."""

from typing import Annotated, Literal

import typer

from bedplate.cli.options import Json, OnFleet, WithFleet, WithFleetEnding, printed
from bedplate.operate import containers, images
from images.containers import MIRROR

Name = Annotated[str, typer.Argument(metavar="NAME", help="An image of `image list`.")]


def plan(operator: OnFleet, *, json: Json = False) -> int:
    """Show the images that the fleet needs.

    An image whose recipe has not changed is not baked again.
    """
    return printed(images.list_planned(operator), as_json=json)


def bake(
    kinds: Annotated[list[str] | None, typer.Argument(metavar="[KIND]...", help="Default: all that are due.")] = None,
    *,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="REGION", help="Only copy to this region; repeatable.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the instance of a failed install stage.")] = False,
    operator: WithFleet,
) -> None:
    """Bake images, copy and record them.

    Continues a bake that was killed.
    """
    images.bake(operator, kinds or (), region or (), keep=keep)


def list_images(operator: OnFleet, *, json: Json = False) -> int:
    """Show the fleet's images."""
    return printed(images.list_images(operator), as_json=json)


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="An image of `image list`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    operator: WithFleet,
) -> int:
    """Compare two images: inputs, packages, and files of roles."""
    return printed(images.compare(operator, first, second))


def promote(name: Name, operator: WithFleetEnding) -> None:
    """Use a finished image for new machines, and replace workers on other images.

    Machines with SSH stay on theirs.
    """
    images.promote(operator, name)


def rollback(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of `image plan`.")], operator: WithFleetEnding
) -> None:
    """Return to the previous image of an image kind."""
    images.rollback(operator, kind)


def prune(
    operator: OnFleet,
    *,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=1, help="The newest images of each kind to keep.")
    ] = 3,
) -> None:
    """Delete old images.

    Images that are in use or protected are kept.
    """
    images.prune(operator, keep)


def sweep(operator: OnFleet) -> int:
    """Remove what killed bakes have left.

    Finished images are kept.
    """
    return images.sweep(operator)


def container(
    action: Annotated[Literal["build", "push", "list"], typer.Argument(metavar="ACTION", help="build, push or list.")],
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE]...", help="base, torch, mpi. Default: all, or all built.")
    ] = None,
    *,
    mirror: Annotated[str, typer.Option("--mirror", metavar="URL", help="Debian's archive, for `build`.")] = MIRROR,
    json: Json = False,
    operator: WithFleet,
) -> int:
    """Build, push or list the standard container images of jobs.

    `build` works for the architecture of this machine, without Docker.
    """
    if action == "list":
        return printed(containers.list_images(operator), as_json=json)
    if action == "push":
        containers.push(operator, recipes or ())
    else:
        containers.build(operator, recipes or (), mirror.rstrip("/"))
    return 0
