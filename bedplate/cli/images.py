"""The commands of machine images: plan, bake, list, promote, rollback, diff, prune, sweep."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from bedplate.account.client import failure_lines
from bedplate.cli.options import DEFAULT_FLEET, FleetFile, FleetOption, Json, Terminal
from bedplate.cli.output import notify, show, show_document
from bedplate.errors import PartialError
from bedplate.operate import image_changes, images
from bedplate.operate.fleet import plan_of
from bedplate.report.images import image_documents, image_lines, planned_document, planned_lines, rollout_lines

Name = Annotated[str, typer.Argument(metavar="NAME", help="An image of `image list`.")]


def plan(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the images that the fleet needs.

    An image whose recipe has not changed is not baked again.
    """
    operator = Terminal(fleet)
    planned = images.planned_images(operator, plan_of(operator))
    if json:
        show_document(planned_document(planned))
    else:
        show(planned_lines(planned))
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
    operator = Terminal(fleet)
    images.bake(operator, plan_of(operator), kinds or (), region or (), keep=keep)
    return 0


def list_images(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the fleet's images."""
    found = images.read_images(plan_of(Terminal(fleet)))
    if json:
        documents = image_documents(found.images, found.used, found.bucket)
        show_document({"images": documents, "rollouts": [asdict(rollout) for rollout in found.rollouts]})
    else:
        show(image_lines(found.images, found.used, datetime.now(UTC)))
        show(rollout_lines(found.rollouts))
    notify(f"unknown: {line}" for line in failure_lines(found.failures))
    return PartialError.exit_code if found.failures else 0


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="An image of `image list`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Compare two images: inputs, packages, and files of roles."""
    show(images.compare(plan_of(Terminal(fleet)), first, second))
    return 0


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
