"""The planner of capacity without a fleet: decisions on recorded observations, and simulated scenarios."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.capacity.observation import Observation
from bedplate.capacity.planner import Memory
from bedplate.capacity.planner import decide as decide_once
from bedplate.capacity.protocol import decision_document, memory_document, parse_observation, read_memory
from bedplate.errors import InputError, nearest_fix
from bedplate.files import write_whole
from bedplate.operate import Result

if TYPE_CHECKING:
    from bedplate.capacity.scenario import Scenario


def decide(lines: Iterable[bytes], where: str, state: Path | None) -> Iterator[dict[str, object]]:
    """Yield the decision on the observation of each line; the planner's memory is kept in the file `state`."""
    memory = _memory(state)
    for observation in _observations(lines, where):
        decision, memory = decide_once(observation, memory)
        if state:
            write_whole(state, memory_document(memory).encode())
        yield decision_document(decision)


def simulate(name: str | None, recording: Path | None, svg: Path | None) -> Result:
    """Return the figures of a shipped scenario, or of a recording; write a plot to a file."""
    from bedplate.capacity.simulator import simulate as simulate_scenario
    from bedplate.report.capacity import simulation_lines

    scenario = _shipped(name) if recording is None else _recorded(recording, name)
    simulation = simulate_scenario(scenario)
    if svg:
        from bedplate.picture.timeline import timeline

        write_whole(svg, timeline(f"{scenario.name}: {scenario.about}", simulation.frames).encode())
    return Result(simulation_lines(simulation), simulation.document())


def _shipped(name: str | None) -> "Scenario":
    from bedplate.capacity.scenario import SCENARIOS

    if name is None:
        raise InputError("no scenario", fix=f"write one of {', '.join(SCENARIOS)}, or --replay FILE")
    if name not in SCENARIOS:
        raise InputError(f"no scenario named {name}", fix=nearest_fix(name, SCENARIOS))
    return SCENARIOS[name]()


def _recorded(path: Path, name: str | None) -> "Scenario":
    from bedplate.capacity.simulator import recorded_scenario

    if name is not None:
        raise InputError("a scenario and --replay exclude each other", fix=f"omit {name}")
    try:
        with path.open("rb") as file:
            return recorded_scenario(path.stem, _observations(file, str(path)))
    except InputError as error:
        raise InputError(error.what, where=error.where or str(path), fix=error.fix) from None
    except OSError as error:
        raise InputError(
            f"the recording cannot be read: {error.strerror}", where=str(path), fix="name a readable file"
        ) from None


def _observations(lines: Iterable[bytes], where: str) -> Iterator[Observation]:
    """Yield the observation of each line. Raises InputError with the number of a line that has none."""
    for number, line in enumerate(lines, 1):
        try:
            yield parse_observation(line.decode())
        except UnicodeDecodeError:
            raise InputError("is not UTF-8", where=f"{where}, line {number}", fix="write UTF-8") from None
        except InputError as error:
            raise InputError(error.what, where=f"{where}, line {number}", fix=error.fix) from None


def _memory(state: Path | None) -> Memory:
    if state is None or not state.exists():
        return Memory()
    try:
        return read_memory(state.read_text())
    except InputError as error:
        raise InputError(error.what, where=str(state), fix=error.fix) from None
    except (OSError, UnicodeDecodeError):
        raise InputError("cannot be read", where=str(state), fix="name a readable file") from None
