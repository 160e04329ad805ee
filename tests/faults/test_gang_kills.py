"""Gangs whose agents, programs and hub are killed at random times: each ends as an uninterrupted one, or says why."""

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.testlab.fakes.gangs import AgentGang, final_value, trainer
from tests.testlab.fakes.runs import RunHub

STEPS, PAUSE = 30, 0.03
EVENTS = ("program", "agent", "notice", "hub", "program and hub", "nothing")


def kill(process: int) -> None:
    """Kill a process that may have ended."""
    with suppress(ProcessLookupError):
        if process:
            os.kill(process, signal.SIGKILL)


def strike(event: str, gang: AgentGang, chance: random.Random) -> None:
    """Let an event happen to a random node of a gang."""
    node = chance.randrange(len(gang.nodes))
    program = gang.program_of(node)
    if "hub" in event:
        gang.hub.is_away = True
        gang.hub.end_connections()
    if "program" in event:
        kill(program)
    elif event == "agent":
        gang.processes[node].kill()
        # As systemd and the kernel do with the rest of a unit and a pod.
        kill(program)
    elif event == "notice":
        gang.processes[node].send_signal(signal.SIGTERM)
    if "hub" in event:
        time.sleep(chance.uniform(0, 1))
        gang.hub.is_away = False


def end_rest(gang: AgentGang) -> None:
    """End agents that still wait for one that was killed before it had joined, as a cluster does with their pods."""
    end = time.monotonic() + 10
    while time.monotonic() < end and any(process.poll() is None for process in gang.processes):
        time.sleep(0.05)
    if not any(map(gang.program_of, range(len(gang.nodes)))):
        for process in gang.processes:
            process.kill()


def live_through(seed: int, base: Path) -> str:
    """Live through a gang with up to three events, made again as a cluster does; return what is wrong with it."""
    chance, base, event = random.Random(seed), base / str(seed), EVENTS[seed % len(EVENTS)]  # noqa: S311  no secret
    base.mkdir()
    nodes = chance.randrange(1, 4)
    with RunHub(base) as hub:
        gang = AgentGang(hub, base, nodes, trainer(STEPS, PAUSE), launch="ranks", grace=3)
        codes, starts = [200], 0
        while {200, 201, -9} & {*codes} and hub.tags.get("state") != "ended" and starts < 5:
            gang.start()
            starts += 1
            time.sleep(chance.uniform(0.3, 3))
            if starts < 3:
                strike(event, gang, chance)
            if event == "agent":
                end_rest(gang)
            codes = gang.codes()
        # As systemd does after the first process of a unit.
        first = gang.nodes[0]
        first.environment |= {"SERVICE_RESULT": "signal", "EXIT_STATUS": "KILL"}
        if hub.statuses in ([], ["RUNNING"]):
            (first.folder / "stop.json").write_text('{"by": "a shutdown", "now": false}')
            first.end_of(first.agent("end", "--folder", str(first.folder)))
        hub.shutdown()
        return f"{seed} {event} {wrong} {codes} {hub.tags}" if (wrong := wrong_with(gang, event, codes)) else ""


def wrong_with(gang: AgentGang, event: str, codes: list[int]) -> str:
    """Return what is wrong with a gang that has ended."""
    tags, attempt = gang.hub.tags, int(gang.hub.tags.get("attempt", 0))
    cause = tags.get("cause", "")
    known = ("checkpoint", "restart loop", "stopped by", "was lost", "ended before its program", "connection")
    is_done, ends = tags.get("code") == "0", [status for status in gang.hub.statuses if status != "RUNNING"]
    begins = [gang.output(0, number).count("begin 0\n") for number in range(attempt + 1)]
    checks = {
        "it has no end": tags.get("state") == "ended" and len(ends) == 1,
        "its end is not the right one": not is_done
        or gang.output(0, attempt).endswith(f"end {final_value(len(gang.nodes), STEPS)}\n"),
        "it began from scratch twice": sum(begins) <= 1 or "no program had run" in str(tags),
        "its cause is not true": is_done or any(word in cause for word in known),
        "it failed without an event": event != "nothing" or is_done,
        "a rank lacks its end": not is_done or all(f"exit.{attempt}.{rank}" in tags for rank in range(len(codes))),
    }
    return ", ".join(text for text, is_right in checks.items() if not is_right)


def failures(count: int, base: Path) -> list[str]:
    """Return what was wrong with so many gangs."""
    with ThreadPoolExecutor(2) as pool:
        return [text for text in pool.map(lambda seed: live_through(seed, base), range(count)) if text]


@pytest.mark.nightly
def test_a_hundred_gangs(tmp_path: Path) -> None:
    """None starts by halves, none is lost or doubled, and each end has a cause that was there."""
    assert not failures(100, tmp_path)
