"""The agent of runs as a process, with a stand-in for the hub: code, program, ranks, stops, output and ends."""

import fcntl
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from bedplate.programs.agent import uploads
from bedplate.programs.agent.uploads import Uploads
from bedplate.programs.connection import Connection
from tests.testlab.fakes.laptop import HOST, TOKEN
from tests.testlab.fakes.runs import ARTIFACTS, RUN_ID, AgentRun, RunHub, wait_for
from tests.testlab.machines.hub import ADA, FILES, OTHER, RUN, RunningHub, running_hub
from tests.testlab.machines.hub import token as front_token
from tests.testlab.run import need_program


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunHub]:
    """Yield a hub without runs."""
    with RunHub(tmp_path) as hub:
        yield hub


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
    """The agent ends with the code of the program, or with 1: what acts on its own codes must not act on those."""
    run = shell(hub, tmp_path, script)

    assert run.run() == (1 if code == 201 else code)

    assert (hub.tags["cause"], hub.tags["exit.0.0"], run.end["cause"]) == (cause, str(code), cause)
    assert (hub.tags["code"], run.end["code"]) == (str(code), code)
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
    wait_for(lambda: b"ready" in output(run))

    process.send_signal(signal.SIGTERM)

    assert run.end_of(process) == 201
    assert hub.log().split()[::2] == [b"ready", b"saved"]
    assert (hub.statuses, hub.tags["exit.0.0"]) == (["KILLED"], "5")
    assert hub.tags["cause"] == "stopped by SIGTERM, as at a shutdown"


def output(run: AgentRun, rank: int = 0) -> bytes:
    """Return the output that the folder of a run has."""
    return b"".join(part.read_bytes() for part in sorted(run.folder.glob(f"logs/0/{rank}/*")))


def test_a_program_that_ignores_the_signal_and_forks_away_is_killed(hub: RunHub, tmp_path: Path) -> None:
    """After its time, with every process that it has left anywhere; a second signal may shorten the time."""
    script = (
        "trap '' TERM; setsid sh -c 'sleep 300 & sleep 301' & setsid -f sleep 302; echo ready; sleep 303; sleep 304"
    )
    run = shell(hub, tmp_path, script, grace=60)
    process = run.start()
    wait_for(lambda: b"ready" in output(run))

    process.send_signal(signal.SIGTERM)
    wait_for((run.folder / "stop").exists)
    (run.folder / "stop.json").write_text('{"by": "ada", "now": true}')
    process.send_signal(signal.SIGTERM)

    assert run.end_of(process) == 201
    assert hub.tags["cause.0.0"] == "the program was killed by signal 9, Killed"
    assert not [line for line in processes() if line in {"sleep\x00303\x00", "sleep\x00304\x00"}]


def processes() -> list[str]:
    """Return the words of all processes."""
    texts = list[str]()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            texts.append(path.read_text(errors="replace"))
    return texts


def test_what_a_program_leaves_behind_ends_with_it(hub: RunHub, tmp_path: Path) -> None:
    """It keeps neither the pipe of the output nor a GPU."""
    run = shell(hub, tmp_path, "setsid -f sleep 303; sleep 304 & exit 0")

    assert run.run() == 0

    assert not [line for line in processes() if line in {"sleep\x00303\x00", "sleep\x00304\x00"}]


RANK = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR"; test "$MASTER_PORT" -gt 1024; '


def test_several_gpus_are_several_ranks(hub: RunHub, tmp_path: Path) -> None:
    """Each knows its place, and has its own output, exit code and cause."""
    run = shell(hub, tmp_path, RANK, gpus=3)

    assert run.run() == 0

    assert [hub.log(rank) for rank in range(3)] == [b"%d %d 3 3 127.0.0.1\n" % (rank, rank) for rank in range(3)]
    assert {hub.tags[f"exit.0.{rank}"] for rank in range(3)} == {"0"}


@pytest.mark.parametrize(("gpus", "launch"), [(0, ""), (1, ""), (4, "program")])
def test_other_runs_are_one_process_without_a_rank(gpus: int, launch: str, hub: RunHub, tmp_path: Path) -> None:
    """Also with several GPUs, if the command starts ranks itself."""
    run = shell(hub, tmp_path, "echo ${RANK-none} ${WORLD_SIZE-none}", gpus=gpus, launch=launch)

    assert run.run() == 0

    assert (hub.log(), hub.log(1)) == (b"none none\n", b"")


def test_the_first_rank_that_fails_is_the_cause(hub: RunHub, tmp_path: Path) -> None:
    """The others are stopped by the signal, and their ends are kept."""
    script = "trap 'exit 9' TERM; echo ready; if [ $RANK = 1 ]; then sleep 0.5; exit 3; fi; while :; do sleep 0.1; done"
    run = shell(hub, tmp_path, script, gpus=3)

    assert run.run() == 3

    assert hub.tags["cause"] == "rank 1 ended with exit code 3"
    assert [hub.tags[f"exit.0.{rank}"] for rank in range(3)] == ["9", "3", "9"]
    assert hub.statuses == ["FAILED"]


def test_a_program_has_its_environment_and_nothing_of_the_agent(hub: RunHub, tmp_path: Path) -> None:
    """What MLflow needs, the pinned variables, those of the person, and secrets, of which no file is left."""
    run = shell(hub, tmp_path, "env", environment={"LEFT": "set"}, secrets={"KEY": "k"}, params={"lr": "1"})
    run.environment |= {"BEDPLATE_FOO": "x", "BEDPLATE_GPUS": "7", "CUDA_VISIBLE_DEVICES": "GPU-1"}

    assert run.run() == 0

    found = dict(line.partition("=")[::2] for line in hub.log().decode().splitlines())
    assert {name for name in found if name.startswith("BEDPLATE_")} == {
        *(f"BEDPLATE_{name}" for name in ("RUN", "ATTEMPT", "STOP", "OUTPUT", "PARAMS", "CHECKPOINTS", "RESUMED")),
    }
    assert (found["LEFT"], found["KEY"], found["CUDA_VISIBLE_DEVICES"]) == ("set", "k", "GPU-1")
    assert (found["MLFLOW_RUN_ID"], found["MLFLOW_TRACKING_URI"]) == (RUN_ID, run.given["hub"])
    assert (found["MLFLOW_TRACKING_TOKEN"], found["MLFLOW_ENABLE_ASYNC_LOGGING"]) == (TOKEN, "true")
    assert Path(found["MLFLOW_TRACKING_SERVER_CERT_PATH"]).read_text() == run.given["certificate"]
    assert json.loads(Path(found["BEDPLATE_PARAMS"]).read_text()) == {"lr": "1"}
    assert not (run.folder / "secrets").exists()


@pytest.mark.nightly
def test_the_leases_of_gpus_are_those_of_the_program(hub: RunHub, tmp_path: Path) -> None:
    """A program keeps them after its agent was killed, and frees them while its record waits for the hub."""
    lease = tmp_path / "gpu-0"
    lease.touch()
    run = shell(hub, tmp_path, "echo ready; while [ ! -e ../go ]; do sleep 0.1; done")
    with lease.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run.environment["BEDPLATE_LEASE_FDS"] = str(file.fileno())
        process = run.start(pass_fds=[file.fileno()])
    wait_for(lambda: b"ready" in output(run))

    assert is_locked(lease)
    hub.is_away = True
    hub.end_connections()
    (run.folder / "go").touch()
    wait_for(lambda: not is_locked(lease))

    assert process.poll() is None
    hub.is_away = False
    assert run.end_of(process) == 0
    assert hub.statuses == ["FINISHED"]


def is_locked(path: Path) -> bool:
    """Return whether another process has the lock of a file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_person_whom_the_hub_refuses_has_no_runs(hub: RunHub, tmp_path: Path) -> None:
    """The program is stopped with the reason of the hub; the end is in the folder."""
    run = shell(hub, tmp_path, "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    run.pauses = {"_REPORT": 0.2, "_REPEAT": 0.2}
    process = run.start()
    wait_for(lambda: "seen" in hub.tags)

    hub.refusal = 403

    assert run.end_of(process) == 205
    assert run.end["cause"] == "stopped: the hub refuses: no person of the fleet (403)"
    assert (hub.statuses, output(run)) == ([], b"ready\nsaved\n")


def test_one_refusal_ends_no_run(hub: RunHub, tmp_path: Path) -> None:
    """The hub may restart, or restore its list of people."""
    run = shell(hub, tmp_path, "sleep 2")
    run.pauses = {"_REPORT": 0.2, "_REPEAT": 0.2}
    hub.first_refusals = 1

    assert run.run() == 0

    assert hub.statuses == ["FINISHED"]


def test_a_long_upload_delays_no_report(hub: RunHub, tmp_path: Path) -> None:
    """The run is seen meanwhile, and a person who was removed is refused within the time of one part."""
    script = "head -c 16777216 /dev/zero; trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    run = shell(hub, tmp_path, script)
    run.pauses = {"_REPORT": 0.2, "_REPEAT": 0.2, "_UPLOAD": 0.1}
    hub.seconds_of_put = 0.5
    process = run.start()
    wait_for(hub.log)
    first = hub.tags["seen"]

    wait_for(lambda: hub.tags["seen"] != first, 3)
    hub.refusal = 403

    assert run.end_of(process) == 205
    assert len(hub.log()) < 1 << 24


def test_a_run_that_was_counted_as_lost_goes_on_in_the_record(hub: RunHub, tmp_path: Path) -> None:
    """The hub ends a run of which it has heard nothing. The next report of its agent takes that back."""
    run = shell(hub, tmp_path, "echo ready; while [ ! -e ../go ]; do sleep 0.1; done")
    run.pauses = {"_REPORT": 0.2, "_REPEAT": 0.2, "_UPLOAD": 0.1}
    process = run.start()
    wait_for(lambda: "seen" in hub.tags)
    hub.is_away = True
    hub.end_connections()
    time.sleep(1)
    hub.tags.update({"state": "ended", "cause": "its pod was silent"})

    hub.is_away = False
    wait_for(lambda: hub.statuses == ["RUNNING"])
    assert (hub.tags["state"], hub.tags["cause"]) == ("running", "unknown")
    (run.folder / "go").touch()

    assert run.end_of(process) == 0
    assert hub.statuses[1:] == ["FINISHED"]


def test_the_hub_hears_of_an_idle_program_and_of_the_time_of_an_agent(hub: RunHub, tmp_path: Path) -> None:
    """Its output ends that. In each question the agent says for how long the program is idle, by its own word."""
    run = shell(hub, tmp_path, "until [ -e ../go ]; do sleep 0.1; done; echo ready; sleep 0.3; exit 4")
    run.pauses = {"_REPORT": 0.2, "_UPLOAD": 0.1, "_IDLE": 1.0}
    process = run.start()
    wait_for(lambda: hub.tags.get("idle_since", "-") != "-")
    assert 0.8 < time.time() - int(hub.tags["idle_since"]) / 1000 < 20
    wait_for(lambda: any(line.endswith("/bedplate/stop?idle=1") for line, _, _ in hub.requests))
    (run.folder / "go").touch()

    wait_for(lambda: hub.tags["idle_since"] == "-")
    assert run.end_of(process) == 4
    ((name, seconds),) = [(name, text) for name, text in hub.tags.items() if name.startswith("ran.")]
    assert name.removeprefix("ran.").isdecimal()
    assert 1 <= int(seconds) < 30


def test_a_process_that_the_kernel_cannot_end_is_an_end(hub: RunHub, tmp_path: Path) -> None:
    """Such as one that waits for a file server: the record has a code and a cause of it. Lost signals stand in."""
    run = shell(hub, tmp_path, "echo $$; while :; do sleep 0.1; done", gpus=2)
    run.before = "ranks._signal, ranks._LONGEST_KILL = lambda *_: None, 0.5"
    run.given["grace"] = 0.5
    process = run.start()
    wait_for(lambda: output(run) and output(run, 1))

    process.send_signal(signal.SIGTERM)

    assert run.end_of(process) == 201
    for rank in range(2):
        os.kill(int(output(run, rank)), signal.SIGKILL)
        assert hub.tags[f"exit.0.{rank}"] == "137"
        assert hub.tags[f"cause.0.{rank}"] == f"rank {rank} did not end: it waits for a device or a file server"


def test_a_run_that_goes_on_keeps_its_folder(hub: RunHub, tmp_path: Path) -> None:
    """systemd-tmpfiles leaves out what is locked, however old the code is."""
    run = shell(hub, tmp_path, "echo ready; while [ ! -e ../go ]; do sleep 0.1; done")
    process = run.start()
    wait_for(lambda: b"ready" in output(run))

    folder = os.open(run.folder, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (run.folder / "go").touch()

    assert run.end_of(process) == 0
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"tree": "0" * 40}, "no code: the packs lack the tree"),
        ({"packs": ["packs/ada/none.pack"]}, "no code: the hub refuses: no reason given (404)"),
    ],
)
def test_a_run_without_code_says_why(change: dict[str, object], cause: str, hub: RunHub, tmp_path: Path) -> None:
    """Exit code 203; nothing is checked out."""
    run = shell(hub, tmp_path, "echo never", **change)

    assert run.run() == 203

    assert hub.tags["cause"].startswith(cause)
    assert (hub.statuses, hub.tags["state"]) == (["FAILED"], "ended")
    assert not (run.folder / "work").exists()


def test_a_damaged_pack_is_fetched_again_by_the_next_run(hub: RunHub, tmp_path: Path) -> None:
    """It does not stay in the cache."""
    run = shell(hub, tmp_path, "true")
    (tmp_path / "packs").mkdir()
    kept = tmp_path / "packs" / Path(run.given["packs"][0]).name
    kept.write_bytes(b"PACK\0\0\0\2\0\0\0\1")

    assert run.run() == 203
    assert "is damaged" in hub.tags["cause"]

    hub.tags.clear()
    run.folder = tmp_path / "ada-1127-later-otter"
    assert run.run() == 0


def test_a_command_that_does_not_exist_is_named(hub: RunHub, tmp_path: Path) -> None:
    """Exit code 127, as in a shell."""
    run = AgentRun(hub, tmp_path / "ada-1127-brave-otter", {"a": b""}, ["no-such-program", "x"])

    assert run.run() == 127

    assert hub.tags["cause"] == "cannot start no-such-program: No such file or directory"


def test_a_run_stops_when_its_time_is_over(hub: RunHub, tmp_path: Path) -> None:
    """Exit code 201, and the cause."""
    run = shell(hub, tmp_path, "trap 'exit 0' TERM; while :; do sleep 0.1; done", **{"for": 1})

    assert run.run() == 201

    assert (hub.tags["cause"], hub.statuses) == ("stopped: its time was over", ["KILLED"])


def test_a_process_that_was_killed_for_memory_is_the_cause(hub: RunHub, tmp_path: Path) -> None:
    """The counter of the kernel is injected: this machine's kernel has no such limit for a test."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "memory.events").write_text("low 0\noom 0\noom_kill 0\noom_group_kill 0\n")
    run = shell(hub, tmp_path, f"echo 'oom_kill 1' >{own}/memory.events; kill -KILL $$")
    run.cgroup = own

    assert run.run() == 137

    assert hub.tags["cause"] == "the program was out of memory: the kernel has killed a process"


def test_without_memory_the_program_is_killed_before_its_agent(hub: RunHub, tmp_path: Path) -> None:
    """The kernel takes the highest score: an agent may have more memory of its own than each of many processes."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    run = shell(hub, tmp_path, "sleep 0.5; cat /proc/self/oom_score_adj")

    assert run.run() == 0

    assert output(run) == f"{min(own + 100, 1_000)}\n".encode()


def test_files_that_a_program_leaves_are_kept(hub: RunHub, tmp_path: Path) -> None:
    """By the hub, with the run; no links, and what the hub refuses is named."""
    script = 'cd "$BEDPLATE_OUTPUT"; mkdir -p a; echo x >"a/b c.txt"; ln -s /etc/passwd link; echo y >model'
    run = shell(hub, tmp_path, script)

    assert run.run() == 0

    assert {name for name in hub.files if "/output/" in name} == {
        *(f"{ARTIFACTS}/output/{name}" for name in ("a/b%20c.txt", "model")),
    }
    assert "output" not in hub.tags


class Events:
    """Event files of a run, and a clock."""

    def __init__(self, uploads: Uploads, folder: Path) -> None:
        self.uploads, self.now, self._folder = uploads, 100.0, folder
        folder.mkdir(parents=True)

    def write(self, name: str, size: int) -> None:
        """Write a file of so many bytes."""
        (self._folder / name).write_bytes(b"e" * size)

    def put(self, seconds: float) -> None:
        """Give the hub what may travel now, and wait."""
        self.uploads.put_events(self.now + 30)
        self.now += seconds


def test_event_files_of_tensorboard_are_on_the_hub_before_the_end(hub: RunHub, tmp_path: Path) -> None:
    """Each as it grows, but for what is too large; other files, links and pipes travel at the end, or never."""
    script = """cd "$BEDPLATE_OUTPUT"; mkdir a; n=events.out.tfevents.1; mkfifo $n.pipe; ln -s /etc/passwd $n.link
    echo one >a/$n; echo x >model; head -c 200 /dev/zero >$n.large
    until [ -e ../sent ]; do sleep 0.05; done; echo two >>a/$n; until [ -e ../go ]; do sleep 0.05; done"""
    run = shell(hub, tmp_path, script)
    run.pauses = {"_UPLOAD": 0.1}
    run.before = "from bedplate.programs.agent import uploads; uploads._EVENTS, uploads._EVENTS_AT_ONCE = 0.1, 100"
    name = f"{ARTIFACTS}/output/a/events.out.tfevents.1"
    process = run.start()
    wait_for(lambda: hub.files.get(name) == b"one\n")
    (run.folder / "sent").touch()
    wait_for(lambda: hub.files[name] == b"one\ntwo\n")
    before = {path for path in hub.files if "/output/" in path}
    (run.folder / "go").touch()

    assert run.end_of(process) == 0
    assert before == {name}
    assert {path.rpartition("/")[2] for path in hub.files if "/output/" in path} == {
        *("events.out.tfevents.1", "events.out.tfevents.1.large", "model")
    }


@pytest.fixture
def events(hub: RunHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    """Yield event files of a run, and the hub that gets them."""
    connection = Connection(
        f"https://{HOST}:{hub.server_address[1]}", hub.certificate.read_text(), lambda _: TOKEN, "127.0.0.1"
    )
    events = Events(Uploads(connection, tmp_path / "run", ARTIFACTS), tmp_path / "run/output")
    monkeypatch.setattr(uploads, "time", SimpleNamespace(monotonic=lambda: events.now))
    yield events
    connection.close()


def test_each_event_file_is_sent_in_its_turn(events: Events, hub: RunHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all grow, and not all may travel at once, those go first that were sent before the others."""
    monkeypatch.setattr(uploads, "_EVENTS_AT_ONCE", 320)
    for size in (50, 51):
        for number in range(8):
            events.write(f"{number}.tfevents", size)
        events.put(60)

    sizes = [len(hub.files[f"{ARTIFACTS}/output/{number}.tfevents"]) for number in range(8)]
    assert sizes == [51, 51, 51, 51, 50, 50, 51, 51]


def test_many_bytes_of_event_files_are_followed_by_a_long_pause(events: Events, hub: RunHub) -> None:
    """Of four seconds for each MiB: the event files of all runs share the hub."""
    sent = []
    for size, seconds in ((20 << 20, 79), (21 << 20, 1), (21 << 20, 0)):
        events.write("a.tfevents", size)
        events.put(seconds)
        sent.append(len(hub.files[f"{ARTIFACTS}/output/a.tfevents"]) >> 20)

    assert sent == [20, 20, 21]


def test_event_files_wait_while_a_report_is_due(events: Events, hub: RunHub) -> None:
    """Without it the run counts as lost; they are sent after it."""
    events.write("a.tfevents", 5)
    events.uploads.put_events(events.now)
    before = dict(hub.files)
    events.put(0)

    assert (before, [*hub.files]) == ({}, [f"{ARTIFACTS}/output/a.tfevents"])


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        ("mkfifo pipe; ln -s / all; ln -s . loop; mknod zero c 1 5; ln ../token a", ["a", "z"]),
        ("printf x >'a\nb'; printf x >\"$(printf '\\377')\"; printf x >'%2e%2e'", ["%252e%252e", "%FF", "a%0Ab", "z"]),
        ('for i in $(seq 1100); do mkdir d && cd -P d || exit 1; done; echo x >deep; cd "$BEDPLATE_OUTPUT"', ["z"]),
        ("mkdir closed; touch closed/a; chmod 0 closed", ["z"]),
        ('rm -r "$BEDPLATE_OUTPUT"; mkfifo "$BEDPLATE_OUTPUT"', []),
    ],
    ids=["kinds", "names", "depth", "closed", "none"],
)
def test_strange_files_do_not_hold_up_the_end(script: str, kept: list[str], hub: RunHub, tmp_path: Path) -> None:
    """Files are kept, and nothing else; names are those of the disk. The record has its end in any case."""
    run = shell(hub, tmp_path, f'cd "$BEDPLATE_OUTPUT"; {script}; echo x >z || true')

    code = run.run()
    # Python cannot remove it.
    subprocess.run(("rm", "-rf", run.folder / "output"), check=True)

    assert code == 0
    names = [name.removeprefix(f"{ARTIFACTS}/output/") for name in sorted(hub.files) if "/output/" in name]
    assert [name for name in names if not name.startswith(("d/", "closed/"))] == kept
    assert (hub.statuses, hub.ends) == (["FINISHED"], 1)


def test_a_hub_that_is_away_gets_everything_later(hub: RunHub, tmp_path: Path) -> None:
    """The program goes on, and its exit code and the end are in the folder at once."""
    run = shell(hub, tmp_path, "echo ready; while [ ! -e ../go ]; do sleep 0.1; done; echo done; exit 4")
    process = run.start()
    wait_for(lambda: b"ready" in output(run))
    hub.is_away = True
    hub.end_connections()

    (run.folder / "go").touch()
    wait_for((run.folder / "end.json").exists)
    assert process.poll() is None
    hub.is_away = False

    assert run.end_of(process) == 4
    assert (hub.log(), hub.statuses, hub.tags["exit.0.0"]) == (b"ready\ndone\n", ["FAILED"], "4")


def test_a_run_is_started_once(hub: RunHub, tmp_path: Path) -> None:
    """A second first process of a run ends with 204, and starts no program."""
    run = shell(hub, tmp_path, "echo once")
    assert run.run() == 0

    assert run.end_of(run.agent("run", "--folder", str(run.folder))) == 204

    assert hub.log() == b"once\n"


def test_a_pod_has_its_settings_in_its_environment(hub: RunHub, tmp_path: Path) -> None:
    """The token, secrets and parameters are beside each other in a folder that cannot be written."""
    run = shell(hub, tmp_path, "cat a/b.txt; echo $KEY; cat $BEDPLATE_PARAMS", secrets={"KEY": "k"}, params={"lr": "1"})
    run.prepare()
    given, work = run.given, tmp_path / "pod"
    work.mkdir()
    names = {name: given[name.lower()] for name in ("HUB", "RUN", "TREE", "GPUS", "GRACE", "ADDRESS")}
    names |= {"CERT": run.folder / "certificate", "TOKEN_FILE": run.folder / "token", "WORK": work / "tree"}
    names |= {"PACKS": ",".join(given["packs"]), "ARTIFACTS": ARTIFACTS}
    run.environment |= {f"BEDPLATE_{name}": str(value) for name, value in names.items()}

    assert run.end_of(run.agent("run", "--", *given["command"])) == 0

    assert hub.log() == b'code\nk\n{"lr": "1"}'


def test_an_end_that_no_disk_takes_is_on_the_hub(hub: RunHub, tmp_path: Path) -> None:
    """A limit of the size of files stands in for a full disk; what the program has printed until then is kept."""
    run = shell(hub, tmp_path, "echo ready; sleep 1; exit 6")
    process = run.start()
    wait_for(lambda: b"ready" in output(run))
    limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, limits[1]))

    assert run.end_of(process) == 6

    assert (hub.tags["cause"], hub.log()) == ("the program ended with exit code 6", b"ready\n")
    assert not (run.folder / "end.json").exists()


@pytest.mark.nightly
def test_a_line_of_a_gibibyte_needs_little_memory(hub: RunHub, tmp_path: Path) -> None:
    """The agent with its connections needs 60 MB at most; the program is not held up by the hub."""
    script = "head -c 1073741824 /dev/zero; while [ ! -e ../go ]; do sleep 0.1; done"
    run = shell(hub, tmp_path, script)
    process = run.start()
    wait_for(lambda: len(list(run.folder.glob("logs/0/0/*"))) > 60 and not head_of(run), 120)

    status = Path(f"/proc/{process.pid}/status").read_text()
    (run.folder / "go").touch()

    assert run.end_of(process) == 0
    assert int(status.partition("VmHWM:")[2].split()[0]) < 60_000
    assert 256 << 20 <= len(hub.log()) <= 1 << 30


def head_of(run: AgentRun) -> list[str]:
    """Return the processes that still print."""
    return [line for line in processes() if line.startswith("head\x00-c\x001073741824")]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """Yield the real nginx and check of a hub, with a stand-in for MLflow."""
    need_program("nginx")
    with running_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


def run_of_ada(front: RunningHub, tmp_path: Path, run_id: str, script: str) -> AgentRun:
    """Return a run of ada, whose pack she has sent."""
    hub = SimpleNamespace(files={}, server_address=("", front.port), certificate=front.folder / "keys/tls.crt")
    run = shell(hub, tmp_path, script)  # type: ignore[arg-type]
    run.given |= {"run": run_id, "experiment": "1", "token": front_token(ADA, f"run:{run_id}")}
    for name, data in hub.files.items():
        assert front.ask("PUT", f"{FILES}/{name}", front_token(), data).status in {201, 409}
    return run


def test_the_front_of_a_hub_takes_all_that_a_run_writes(front: RunningHub, tmp_path: Path) -> None:
    """Logs, files and the end; then the token is of no use. What the hub refuses as a name is named."""
    script = 'echo line; cd "$BEDPLATE_OUTPUT"; echo x >"a b%c"; mkdir d; echo y >d/model.pt; touch "back\\slash"'
    run = run_of_ada(front, tmp_path, RUN, script)

    assert run.run() == 0

    folder = front.files / f"1/{RUN}/artifacts"
    assert (folder / "logs/0/0/000000").read_text() == "line\n"
    assert (folder / "output/d/model.pt").read_text() == "y\n"
    assert not (folder / "output/back\\slash").exists()
    assert front.ask("GET", "/bedplate/whoami", run.given["token"]).status == 401


def test_a_removed_person_has_no_runs_by_the_real_check(front: RunningHub, tmp_path: Path) -> None:
    """The hub refuses her token from the next request on, and the run ends."""
    run = run_of_ada(front, tmp_path, OTHER, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    run.pauses = {"_REPORT": 0.2, "_REPEAT": 0.2}
    process = run.start()
    wait_for(lambda: b"ready" in output(run))

    (front.folder / "tokens/removed").write_text(f"{ADA}\n")
    try:
        assert run.end_of(process) == 205
    finally:
        (front.folder / "tokens/removed").unlink()

    assert run.end["cause"] == "stopped: the hub refuses: no person of the fleet (403)"
