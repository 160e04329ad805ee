"""Runs whose agent, program or hub is killed at a random time: none is lost, and none is doubled."""

import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.testlab.fakes.runs import AgentRun, RunHub
from tests.testlab.kills import SCRIPT, KilledRun

EVENTS = ("agent", "program", "hub", "stop", "agent and hub", "nothing")


def processes_of(folder: Path) -> set[int]:
    """Return the processes with a working folder below a folder: those of a unit."""
    found = set[int]()
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if path.readlink().is_relative_to(folder):
                found.add(int(path.parent.name))
    return found


def kill_all(folder: Path) -> None:
    """Kill the processes of a unit, as systemd does when its first one has ended."""
    while left := processes_of(folder):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def end_as_unit(run: AgentRun, process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of an agent, and do what its unit does then; return its exit status."""
    status = run.end_of(process)
    kill_all(run.folder)
    run.environment |= {"SERVICE_RESULT": "signal" if status < 0 else "exit-code", "EXIT_STATUS": str(status)}
    run.end_of(run.agent("end", "--folder", str(run.folder)))
    return status


def live_through(seed: int, base: Path) -> str:
    """Live through a run with an event at a random time; return what is wrong with it in the end."""
    chance, base = random.Random(seed), base / str(seed)  # noqa: S311  no secret
    base.mkdir()
    event, code = EVENTS[seed % len(EVENTS)], chance.choice((0, 7))
    with RunHub(base) as hub:
        script = SCRIPT.format(pause=chance.uniform(0.01, 0.08), code=code)
        run = AgentRun(hub, base / f"ada-{seed}", {"a": b""}, ["sh", "-c", script, str(base / "starts")], grace=5)
        run.pauses = {"_REPORT": 0.1, "_REPEAT": 0.1, "_UPLOAD": 0.1}
        process = run.start()
        time.sleep(chance.uniform(0, 1.2))
        hub.is_away = "hub" in event
        if hub.is_away:
            hub.end_connections()
        if "agent" in event:
            process.kill()
        elif event == "program":
            for one in processes_of(run.folder / "work"):
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        elif event == "stop":
            process.terminate()
        if hub.is_away:
            time.sleep(chance.uniform(0, 0.5))
            hub.is_away = False
        status = end_as_unit(run, process)
        if not (run.folder / "end.json").exists():
            # systemd starts the unit of a killed agent again.
            assert status < 0, f"no end after status {status}"
            status = end_as_unit(run, run.agent("run", "--folder", str(run.folder)))
        hub.shutdown()
        return f"{seed} {event} {wrong}" if (wrong := wrong_with(run, hub, base, code, status)) else ""


def wrong_with(run: AgentRun, hub: RunHub, base: Path, code: int, status: int) -> str:
    """Return what is wrong with a run that has ended."""
    starts = len((base / "starts").read_text().splitlines()) if (base / "starts").exists() else 0
    # An agent that was away from the hub says first that the run goes on.
    statuses = [status for status in hub.statuses if status != "RUNNING"] + hub.statuses[-1:]
    end, record = run.end, {**hub.tags, "status": " ".join({*statuses})}
    has_processes = bool(processes_of(run.folder))
    wrong = KilledRun(code, status, starts, hub.log().decode(), end, record, has_processes).problems()
    return wrong if status in {end["code"], -9, -15} else f"the agent ended otherwise {wrong}"


def failures(count: int, base: Path) -> list[str]:
    """Return what was wrong with so many runs."""
    with ThreadPoolExecutor(6) as pool:
        return [text for text in pool.map(lambda seed: live_through(seed, base), range(count)) if text]


def test_some_kills(tmp_path: Path) -> None:
    """One of each kind."""
    assert not failures(len(EVENTS), tmp_path)


@pytest.mark.nightly
def test_a_thousand_kills(tmp_path: Path) -> None:
    """No run is lost or doubled, and each has the same end in its folder and on the hub."""
    assert not failures(1_000, tmp_path)


def test_the_judge_finds_what_it_looks_for(tmp_path: Path) -> None:
    """A run that was started twice, and a hub with another end."""
    with RunHub(tmp_path) as hub:
        run = AgentRun(hub, tmp_path / "ada", {"a": b""}, ["sh", "-c", SCRIPT.format(pause=1, code=0), "/dev/null"])
        assert run.run() == 0
        hub.shutdown()

    assert not wrong_with(run, hub, tmp_path, 0, 0)
    (tmp_path / "starts").write_text("x\nx\n")
    hub.tags["cause"] = "another"
    hub.statuses.append("FAILED")

    assert wrong_with(run, hub, tmp_path, 7, 0).count(",") == 3
