"""The planner of capacity without a fleet: capacity decide, capacity simulate."""

import json
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from bedplate.capacity.planner import Memory
from bedplate.capacity.planner import decide as decide_once
from bedplate.capacity.protocol import decision_document, memory_document, parse_observation, read_memory
from bedplate.cli.output import Json, show, show_document
from bedplate.errors import InputError
from bedplate.writer import write_whole


def decide(
    *,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Keep the planner's memory in this file.")
    ] = None,
) -> int:
    """Decide on observations from stdin.

    Reads one observation a line and writes one decision a line, both JSON (docs/capacity.md).
    """
    memory = _memory(state)
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            observation = parse_observation(line.decode())
        except UnicodeDecodeError:
            raise InputError("is not UTF-8", where=f"stdin, line {number}", fix="write UTF-8") from None
        except InputError as error:
            raise InputError(error.what, where=f"stdin, line {number}", fix=error.fix) from None
        decision, memory = decide_once(observation, memory)
        if state:
            write_whole(state, memory_document(memory).encode())
        show([json.dumps(decision_document(decision))])
    return 0


def simulate(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A shipped scenario, such as burst-1600.")],
    *,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write a plot to this file.")] = None,
    as_json: Json = False,
) -> int:
    """Simulate a scenario.

    Runs the planner against a simulated cloud in event time: waiting times, cost, spills, unused machines.
    """
    from bedplate.capacity.scenarios import SCENARIOS
    from bedplate.capacity.simulator import simulate as simulate_scenario
    from bedplate.report.simulation import simulation_lines

    if scenario not in SCENARIOS:
        nearest = get_close_matches(scenario, SCENARIOS, 1, 0)
        raise InputError(f"no scenario named {scenario}", fix=f"write {nearest[0]}, or one of {', '.join(SCENARIOS)}")
    simulation = simulate_scenario(SCENARIOS[scenario]())
    if svg:
        from bedplate.picture.timeline import timeline

        write_whole(svg, timeline(simulation).encode())
    if as_json:
        show_document(simulation.document())
    else:
        show(simulation_lines(simulation))
    return 0


def _memory(state: Path | None) -> Memory:
    if state is None or not state.exists():
        return Memory()
    try:
        return read_memory(state.read_text())
    except InputError as error:
        raise InputError(error.what, where=str(state), fix=error.fix) from None
    except (OSError, UnicodeDecodeError):
        raise InputError("cannot be read", where=str(state), fix="name a readable file") from None
