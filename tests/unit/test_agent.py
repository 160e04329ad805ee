"""The agent of runs as a process, with a stand-in for the hub: code, program, ranks, stops, output and ends."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testlab.fakes.runs import AgentRun, RunHub, wait_for


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunHub]:
    """Yield a hub without runs."""
    with RunHub(tmp_path) as hub:
        yield hub
        hub.shutdown()


SHELL = ["sh", "-c"]


def shell(hub: RunHub, tmp_path: Path, script: str, **given: object) -> AgentRun:
    """Return a run of a shell script in a folder with one file."""
    return AgentRun(hub, tmp_path / "ada-1127-brave-otter", {"a": {"b.txt": b"code\n"}}, [*SHELL, script], **given)


def test_a_run_has_its_code_and_ends_with_its_record(hub: RunHub, tmp_path: Path) -> None:
    """The program runs in its code; output, state, machine and end are on the hub, which then ends the token."""
    run = shell(hub, tmp_path, "cat a/b.txt; echo error >&2; pwd")

    assert run.run() == 0

    assert hub.log() == f"code\nerror\n{run.folder}/work\n".encode()
    assert (hub.tags["state"], hub.tags["exit.0.0"], hub.tags["cause"]) == ("ended", "0", hub.tags["cause.0.0"])
    assert hub.tags["machine"] == hub.tags["node.0"] == os.uname().nodename
    assert (hub.statuses, hub.ends) == (["FINISHED"], 1)
    assert run.end["code"] == 0
    assert [word.partition("=")[0] for word in hub.tags["times.0"].split()] == [
        *("fetched", "unpacked", "started", "ended"),
    ]


@pytest.mark.parametrize(
    ("script", "code", "cause"),
    [
        ("exit 3", 3, "the program ended with exit code 3"),
        ("kill -SEGV $$", 139, "the program was killed by signal 11, Segmentation fault"),
        ("exit 201", 201, "the program ended with exit code 201"),
    ],
)
def test_the_end_of_a_program_is_its_cause(script: str, code: int, cause: str, hub: RunHub, tmp_path: Path) -> None:
    """The agent ends with the code of the program; nothing acts on a code that is one of its own."""
    run = shell(hub, tmp_path, script)

    assert run.run() == code

    assert (hub.tags["cause"], hub.tags["exit.0.0"], run.end["cause"]) == (cause, str(code), cause)
    assert hub.statuses == ["FAILED"]


def test_a_stopped_run_gets_time_and_its_program_only_the_signal(hub: RunHub, tmp_path: Path) -> None:
    """What the program has started gets no signal before the end of its time; a file has the deadline."""
    script = """
    sh -c 'trap "echo child" TERM; while :; do sleep 0.1; done' &
    trap 'cat "$BEDPLATE_STOP"; echo saved; exit 5' TERM
    echo ready
    while :; do sleep 0.1; done
    """
    run = shell(hub, tmp_path, script)
    process = run.start()
    wait_for(lambda: b"ready" in b"".join(part.read_bytes() for part in run.folder.glob("logs/0/0/*")))

    process.send_signal(signal.SIGTERM)

    assert run.end_of(process) == 201
    assert hub.log().split()[::2] == [b"ready", b"saved"]
    assert (hub.statuses, hub.tags["exit.0.0"]) == (["KILLED"], "5")
    assert hub.tags["cause"] == "stopped by SIGTERM, as at a shutdown"
