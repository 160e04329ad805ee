"""`bedplate plan`: every address, machine and pool, what differs from the lock, and the picture of it all."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document, tell
from bedplate.errors import InputError

if TYPE_CHECKING:
    from bedplate.plan import FleetPlan

RELEASE_EXAMPLE = "`bedplate plan --write --release region/eu-west-1`"


def plan(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    write: Annotated[bool, typer.Option("--write", help="Record the plan in fleet.lock.")] = False,
    release: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="With --write: give back a block, as region/eu-west-1 with its tunnels."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the fleet into this file as well.")
    ] = None,
    json: Json = False,
) -> int:
    """Show addresses, machines, pools; record them."""
    if release and not write:
        raise InputError("--release changes the lock, so it needs --write", fix=f"add --write: {RELEASE_EXAMPLE}")
    if svg is not None and svg.resolve() == fleet.resolve():
        raise InputError(
            "--svg names the fleet file itself", where=str(svg), fix="name another file: `--svg fleet.svg`"
        )
    decided = _record(fleet, tuple(release or ()), json=json) if write else _preview(fleet, json=json)
    if svg is not None:
        _draw(decided, svg)
    return 0


def _preview(path: Path, *, json: bool) -> "FleetPlan":
    from bedplate.cli.opening import opened, planned
    from bedplate.report.lock import difference_lines

    decided = planned(opened(path))
    _print(decided, difference_lines(decided), json=json)
    return decided


def _record(path: Path, release: tuple[str, ...], *, json: bool) -> "FleetPlan":
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, placing
    from bedplate.lock import lock_path, record_plan
    from bedplate.report.lock import recorded_lines

    loaded = opened(path)
    with placing(loaded):
        done = record_plan(lock_path(path), loaded.fleet, load_catalog(), release_of=release)
    _print(done.plan, recorded_lines(done.plan, done.released), json=json)
    return done.plan


def _draw(decided: "FleetPlan", file: Path) -> None:
    from bedplate.picture import picture
    from bedplate.writer import write_whole

    write_whole(file, picture(decided).encode())
    tell([f"drawn in {file}"])


def _print(decided: "FleetPlan", end: Iterable[str], *, json: bool) -> None:
    """Print the plan and how it stands to the lock; for a program the latter goes to stderr."""
    from bedplate.catalog import load_catalog
    from bedplate.plan import bill, plan_document
    from bedplate.report.plan import plan_lines, unheard_lines, unpinned_lines
    from bedplate.report.price import price_lines

    if json:
        show_document(plan_document(decided))
        tell(end)
        return
    show(plan_lines(decided))
    advice = (*unheard_lines(decided), *unpinned_lines(decided, load_catalog()))
    show(("", *price_lines(bill(decided, load_catalog())), *advice, *end))
