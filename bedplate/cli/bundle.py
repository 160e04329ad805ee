"""The commands of node bundles: build, push, promote, list, diff."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, FleetOption, Json, Pythons, Terminal
from bedplate.cli.output import show, show_document
from bedplate.operate import bundle as bundles
from bedplate.operate.fleet import plan_of
from bedplate.report.bundle import bundle_document, bundle_lines, ring_lines, rings_document
from bedplate.spec.groups import Ring


def build(*, python: Pythons = None, json: Json = False) -> int:
    """Build the bundle of this installation."""
    cache, bundle = bundles.built(python or ())
    sizes = {name: len(cache.read(name)) for name in bundle.blobs}
    if json:
        show_document(bundle_document(bundle, sizes))
    else:
        show(bundle_lines(bundle, sizes))
    return 0


def push(fleet: FleetFile = DEFAULT_FLEET, *, python: Pythons = None) -> int:
    """Build the bundle and upload it to all regions."""
    return bundles.push(Terminal(fleet), python or ())


def promote(
    ring: Annotated[Ring, typer.Argument(metavar="RING", help="stable or canary.")],
    bundle: Annotated[
        str | None,
        typer.Argument(metavar="HASH", help="A pushed bundle. Default: this installation's; for stable, canary's."),
    ] = None,
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Let the machines of a ring follow a bundle.

    The exit status is 3 if the bundle failed on a machine of the ring canary.
    """
    return bundles.promote(Terminal(fleet), ring, bundle)


def list_bundles(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the bundle of each ring."""
    operator = Terminal(fleet)
    rings, errors = bundles.read_rings(plan_of(operator))
    if json:
        show_document(rings_document(rings))
    else:
        show(ring_lines(rings, datetime.now(UTC)))
    return bundles.report_errors(operator, errors, "bedplate bundle list")


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A ring or a hash.")],
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="A ring or a hash. Default: this installation.")
    ] = None,
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Show the files that differ between two bundles."""
    show(bundles.differences(plan_of(Terminal(fleet)), first, second))
    return 0
