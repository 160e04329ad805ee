"""The commands of node bundles: build, push, promote, list, diff."""

from typing import Annotated

import typer

from bedplate.cli.options import Json, OnFleet, Pythons, WithFleet, printed
from bedplate.cli.output import notify
from bedplate.operate import bundle as bundles
from bedplate.spec.groups import Ring


def build(*, python: Pythons = None, json: Json = False) -> int:
    """Build the bundle of this installation."""
    return printed(bundles.build(python or (), notify), as_json=json)


def push(operator: OnFleet, *, python: Pythons = None) -> int:
    """Build the bundle and upload it to all regions."""
    return bundles.push(operator, python or ())


def promote(
    ring: Annotated[Ring, typer.Argument(metavar="RING", help="stable or canary.")],
    bundle: Annotated[
        str | None,
        typer.Argument(metavar="HASH", help="A pushed bundle. Default: this installation's; for stable, canary's."),
    ] = None,
    *,
    operator: WithFleet,
) -> int:
    """Let the machines of a ring follow a bundle.

    The exit status is 3 if the bundle failed on a machine of the ring canary.
    """
    return bundles.promote(operator, ring, bundle)


def list_bundles(operator: OnFleet, *, json: Json = False) -> int:
    """Show the bundle of each ring."""
    return printed(bundles.list_rings(operator), as_json=json)


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A ring or a hash.")],
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="A ring or a hash. Default: this installation.")
    ] = None,
    *,
    operator: WithFleet,
) -> int:
    """Show the files that differ between two bundles."""
    return printed(bundles.differences(operator, first, second))
