"""The commands that read the fleet file and the lock, and nothing else: check, plan, cost, diff, schema."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, Json, OnFleet, Terminal, printed
from bedplate.errors import InputError
from bedplate.folder.files import find_fleet_file, git_output
from bedplate.operate import Result, planning
from bedplate.spec.fleet import fleet_schema


def plan(
    operator: OnFleet,
    *,
    write: Annotated[bool, typer.Option("--write", help="Record the plan in fleet.lock.")] = False,
    release: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="With --write: free a recorded block, such as region/eu-west-1; repeatable."),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the fleet as SVG.")] = None,
    json: Json = False,
) -> None:
    """Show addresses, machines and pools."""
    if release and not write:
        command = " ".join(("bedplate plan --write", *(f"--release {path}" for path in release)))
        raise InputError("--release changes fleet.lock and requires --write", fix=f"run `{command}`")
    if svg is not None and svg.resolve() == operator.fleet.resolve():
        raise InputError(
            "--svg would overwrite the fleet file", where=str(svg), fix="name another file: `--svg fleet.svg`"
        )
    if write:
        fleet_plan, result = planning.write_plan(operator, release or (), as_json=json)
    else:
        fleet_plan, result = planning.read_plan(operator, as_json=json)
    printed(result, as_json=json)
    if svg is not None:
        planning.draw(operator, fleet_plan, svg)


def cost(operator: OnFleet, *, json: Json = False) -> int:
    """Show the hourly list price.

    By group, rung and region, at the minimum and the maximum number of machines.
    """
    return printed(planning.price(operator), as_json=json)


Files = Annotated[
    list[Path] | None, typer.Argument(metavar="[OLD] NEW", help="Fleet files before and after, or a git revision.")
]
_OLD_HELP = "The fleet file before the edit, as OLD.  [default: fleet.yaml]"


def diff(
    files: Files = None,
    *,
    deployed: Annotated[bool, typer.Option("--deployed", help="Compare with what is deployed, as OLD.")] = False,
    fleet: Annotated[Path | None, typer.Option("--fleet", metavar="OLD", help=_OLD_HELP)] = None,
    json: Json = False,
) -> int:
    """Show the effects of an edit.

    On a fleet that is deployed. With --deployed, or a git revision such as HEAD, NEW is fleet.yaml unless named. The
    exit status is 2 if `check` would reject the new file, 3 if the edit replaces or removes something, or is refused.
    """
    names = [find_fleet_file(path) for path in (*filter(None, [fleet]), *(files or ()))]
    current = find_fleet_file(DEFAULT_FLEET)
    if len(names) > 2:  # noqa: PLR2004  old and new
        raise InputError("more than two fleet files", fix="write `bedplate diff OLD NEW`")
    if deployed:
        # Slow: it imports Pulumi.
        from bedplate.operate.deploy import deployed_text

        if len(names) > 1:
            fix = f"write `bedplate diff --deployed {names[1]}`, or `bedplate diff {names[0]} {names[1]}`"
            raise InputError("--deployed stands for OLD: it takes one fleet file", fix=fix)
        operator = Terminal(names[0] if names else current)
        return printed(planning.compare("the last deployment", operator, deployed_text(operator)), as_json=json)
    if not names:
        raise InputError("no fleet file to compare with", fix="write `bedplate diff HEAD`, or name a file")
    # A single name is that of a revision unless there is such a file.
    old, new = names if len(names) > 1 else (current, *names) if names[0].exists() else (*names, current)
    if old.exists():
        return printed(planning.compare(str(old), Terminal(new)), as_json=json)
    text = git_output(new.parent, "show", "--end-of-options", f"{old}:./{new.name}")
    if text is None:
        what = f"{old} is neither a file nor a git revision with {new.name}"
        raise InputError(what, fix="name a file, or a revision that `git log` shows")
    return printed(planning.compare(f"{old}:{new.name}", Terminal(new), text), as_json=json)


def schema() -> int:
    """Print the fleet file's JSON Schema.

    An editor completes and checks the file by it.
    """
    return printed(Result((), fleet_schema()), as_json=True)


def check(
    operator: OnFleet,
    *,
    json: Json = False,
    explain: Annotated[
        str, typer.Option(metavar="CODE", help="Explain a rule instead, such as E301; `all` lists the rules.")
    ] = "",
) -> int:
    """Check the fleet file; print every error."""
    if explain:
        return printed(planning.explain(explain))
    return printed(planning.check(operator), as_json=json)
