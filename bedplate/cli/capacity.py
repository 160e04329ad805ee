"""The planner of capacity without a fleet: capacity decide, capacity simulate."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import Json, printed
from bedplate.operate import Result, simulation


def decide(
    *,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Keep the planner's memory in this file.")
    ] = None,
) -> int:
    """Decide on observations from stdin.

    Reads one observation a line and writes one decision a line, both JSON (docs/capacity.md).
    """
    decisions = simulation.decide(sys.stdin.buffer, "stdin", state)
    return printed(Result(json.dumps(decision) for decision in decisions))


def simulate(
    name: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="A shipped scenario, such as burst-1600.")
    ] = None,
    *,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="What `capacity run --record` wrote, instead.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write a plot to this file.")] = None,
    as_json: Json = False,
) -> int:
    """Simulate a scenario.

    Runs the planner against a simulated cloud in event time: waiting times, cost, spills, unused machines.
    """
    return printed(simulation.simulate(name, replay, svg), as_json=as_json)
